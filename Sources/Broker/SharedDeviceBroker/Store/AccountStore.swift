import GRDB
import SharedDevice

/// Keeps the device's state across restarts, crashes and power cuts.
///
/// Both calls block their thread until the disk has answered; see `DeviceDatabase`.
package final class AccountStore: Sendable {
    private let database: DeviceDatabase

    package init(database: DeviceDatabase) {
        self.database = database
    }

    /// The state that was committed last.
    ///
    /// - Throws: `StoreError`; `damaged` where the stored state makes no sense.
    package func state() throws(StoreError) -> DeviceState {
        let path = database.path
        return try database.read("read the device's state") { db in try Self.fetch(db, path: path) }
    }

    /// Whether account and mode are as they were when the store was made, and have always been.
    ///
    /// - Throws: `StoreError`.
    package func isUntouched() throws(StoreError) -> Bool {
        try database.read("read whether the device was ever in use") { db in
            try Bool.fetchOne(db, sql: "SELECT epoch = first_epoch FROM device WHERE id = 1") ?? false
        }
    }

    /// Makes `new` the stored state. When this returns, it is on the disk; when it throws, nothing has changed.
    ///
    /// Where an account has left, its bytes have left the file and its write-ahead log as well, unless
    /// `DeviceDatabase.remnants` says why not.
    ///
    /// - Throws: `StoreError`; `staleEpoch` unless `new` is exactly one epoch after the stored state. Then someone else has
    ///   committed since: read the state again and decide anew.
    package func commit(_ new: DeviceState) throws(StoreError) {
        let attempted = "commit the device's state of epoch \(new.epoch)"
        let path = database.path
        let hasLeft: Bool
        do {
            hasLeft = try database.write(attempted) { db in
                try Self.replace(db, with: new, attempted: attempted, path: path)
            }
        } catch {
            throw StoreError(error, attempted: attempted, path: path)
        }
        if hasLeft { database.eraseRemnants() }
    }

    /// Within the caller's transaction; whether an account has left.
    static func replace(_ db: Database, with new: DeviceState, attempted: String, path: String) throws -> Bool {
        let old = try fetch(db, path: path)
        guard new.epoch == old.epoch + 1 else {
            throw StoreError(
                .staleEpoch,
                attempted: attempted,
                message: "the stored state is of epoch \(old.epoch)",
                remedy: "read the state again and decide anew"
            )
        }
        try db.execute(
            sql: """
                UPDATE device SET mode = ?, epoch = ?,
                    account_identifier = ?, account_username = ?, account_display_name = ?
                """,
            arguments: [
                new.mode.rawValue, Int64(clamping: new.epoch),
                new.account?.identifier, new.account?.username, new.account?.displayName,
            ]
        )
        return old.account.map { $0.identifier != new.account?.identifier } ?? false
    }

    static func fetch(_ db: Database, path: String) throws -> DeviceState {
        let row = try Row.fetchOne(
            db,
            sql:
                "SELECT mode, epoch, account_identifier, account_username, account_display_name FROM device WHERE id = 1"
        )
        let mode: String? = row?.value("mode")
        let epoch: Int64? = row?.value("epoch")
        guard let row, let mode = mode.flatMap(ManagedMode.init(rawValue:)),
            let epoch = epoch.flatMap(UInt64.init(exactly:))
        else {
            throw StoreError.damaged(
                attempted: "read the device's state",
                message: "\(path): the state's row is missing or makes no sense"
            )
        }
        let identifier: String? = row.value("account_identifier")
        let username: String? = row.value("account_username")
        var account: Account?
        if let identifier, let username {
            account = Account(
                identifier: identifier,
                username: username,
                displayName: row.value("account_display_name")
            )
        }
        return DeviceState(mode: mode, account: account, epoch: epoch)
    }
}
