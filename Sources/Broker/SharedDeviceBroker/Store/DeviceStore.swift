import Basics
package import BrokerCore
import DeviceConfiguration
package import DeviceStorage
package import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

/// Keeps the device's state, the ledger and the log across restarts, crashes and power cuts. Related changes are one
/// transaction. Every call blocks its thread for the disk. A row that makes no sense is a `StoreError`: `damaged`.
package final class DeviceStore: Sendable {
    /// The maximum length of the log in bytes; the oldest entries are cut first. Entries of an open session or round
    /// stay until the log has twice this length.
    package static let longestLog = 32 * 1024 * 1024
    private static let entriesBetweenCuts = 1000

    package let database: DeviceDatabase
    package let notes: SignOutNotes
    private let longestLog: Int
    private let provider: ProviderRows
    private let sinceCut = Locked(0)

    /// - Parameters:
    ///   - runtimeDirectory: A directory in memory that survives a restart of the broker (systemd's
    ///     `RuntimeDirectory=`).
    ///   - sealer: Seals the provider's records. With `nil`, they are kept in memory only.
    /// - Throws: ``StoreError`` if no space can be reserved for noting a sign-out.
    package init(
        database: DeviceDatabase,
        longestLog: Int = DeviceStore.longestLog,
        runtimeDirectory: String? = nil,
        sealer: RecordVault? = nil
    ) throws(StoreError) {
        provider = ProviderRows(sealer: sealer)
        self.database = database
        self.longestLog = longestLog
        notes = try SignOutNotes(beside: database.path, runtimeDirectory: runtimeDirectory)
    }

    /// Reads the last committed content.
    package func load(at now: Moment) throws(StoreError) -> StoredContent {
        var content = try Self.read(database, at: now)
        try database.read("read the stored records of the provider") { try provider.read($0, at: now, into: &content) }
        content.noted = notes.latest(after: content.device.epoch)
        return content
    }

    /// Reads the content on the disk, for programs other than the broker.
    package static func read(
        _ database: DeviceDatabase,
        at now: Moment = Moment(wall: Date(), uptime: .zero)
    ) throws(StoreError) -> StoredContent {
        try database.read("read the device's state") { db in
            var content = StoredContent()
            content.device = try device(db)
            content.membership = try membership(db)
            content.ledger = try LedgerRows.read(db, at: now)
            try KeptSettings.read(db, into: &content)
            return content
        }
    }

    /// Reads the account and the mode. Works even if the ledger is damaged.
    package static func device(of database: DeviceDatabase) throws(StoreError) -> DeviceState {
        try database.read("read the device's state") { db in try device(db) }
    }

    /// Writes the batch in one transaction, which is on the disk on return. On error, a noted sign-out is flushed
    /// instead.
    package func commit(_ batch: Batch) throws(StoreError) {
        do throws(StoreError) {
            let isCutDue = sinceCut.withLock { count in
                count += batch.log.count
                return count >= Self.entriesBetweenCuts
            }
            try database.store("write the device's state") { db in
                if let device = batch.device { try Self.save(device, to: db) }
                if let membership = batch.membership { try Self.save(membership, to: db) }
                try LedgerRows.save(batch, to: db)
                try provider.save(batch, to: db)
                for entry in batch.log { try Self.append(entry, to: db) }
                if batch.device != nil || !batch.sessions.isEmpty || batch.log.contains(where: { $0.account != nil }) {
                    try Self.forgetSubjects(in: db)
                }
                if isCutDue { try Self.cutLog(to: longestLog, in: db) }
            }
            if isCutDue { sinceCut.withLock { $0 = 0 } }
        } catch {
            if batch.device != nil { notes.sync() }
            throw error
        }
    }

    /// Stores valid settings.
    package func keep(_ settings: KeptSettings) throws(StoreError) {
        try database.store("keep the administrator's settings") { db in try settings.write(to: db) }
    }

    // MARK: Device and membership

    static func device(_ db: SQLiteConnection) throws -> DeviceState {
        let device = try db.row("SELECT * FROM device WHERE id = 1") { row in
            guard let mode: ManagedMode = row["mode"], let epoch: UInt64 = row["epoch"] else {
                throw SQLiteError.damaged("the device's row makes no sense")
            }
            let groups: String = row["account_groups"] ?? ""
            return DeviceState(
                mode: mode,
                account: account(row),
                groups: Set(groups.split(separator: "\n").map(String.init)),
                epoch: epoch
            )
        }
        guard let device else { throw SQLiteError.damaged("the device's row makes no sense") }
        return device
    }

    private static func save(_ device: DeviceState, to db: SQLiteConnection) throws {
        try db.run(
            """
            UPDATE device SET mode = ?, epoch = ?,
                account_identifier = ?, account_username = ?, account_display_name = ?, account_groups = ?
            """,
            device.mode.rawValue,
            device.epoch,
            device.account?.identifier,
            device.account?.username,
            device.account?.displayName,
            device.groups.sorted().joined(separator: "\n")
        )
    }

    private static func membership(_ db: SQLiteConnection) throws -> Membership? {
        try db.row("SELECT * FROM membership WHERE id = 1") { row in
            guard let tenant: String = row["tenant_identifier"], let joined: Date = row["joined_at"] else {
                throw SQLiteError.damaged("the membership's row makes no sense")
            }
            return Membership(organization: row["organization"], tenantIdentifier: tenant, joinedAt: joined)
        }
    }

    private static func save(_ membership: Membership?, to db: SQLiteConnection) throws {
        guard let membership else { return try db.run("DELETE FROM membership") }
        try db.run(
            "INSERT OR REPLACE INTO membership (id, organization, tenant_identifier, joined_at) VALUES (1, ?, ?, ?)",
            membership.organization,
            membership.tenantIdentifier,
            membership.joinedAt
        )
    }

    // MARK: The log

    private static func append(_ entry: AuditEntry, to db: SQLiteConnection) throws {
        if let account = entry.account {
            let insertion = "INSERT OR IGNORE INTO subject (account_identifier, username) VALUES (?, ?)"
            try db.run(insertion, account, entry.accountName ?? "")
        }
        try db.run(
            """
            INSERT INTO audit (at, event, session, app, user, detail, subject)
            VALUES (?, ?, ?, ?, ?, ?, (SELECT number FROM subject WHERE account_identifier = ?))
            """,
            entry.at,
            entry.event.rawValue,
            entry.session,
            entry.app,
            entry.user,
            entry.detail,
            entry.account
        )
    }

    /// Anonymises the log entries of accounts that are not in the directory, not signed in, and owe no cleanup.
    private static func forgetSubjects(in db: SQLiteConnection) throws {
        try db.run(
            """
            DELETE FROM subject WHERE account_identifier NOT IN (
                SELECT lower(identifier) FROM user
                UNION SELECT lower(account_identifier) FROM device WHERE account_identifier IS NOT NULL
                UNION SELECT lower(account_identifier) FROM session WHERE account_identifier IS NOT NULL)
            """
        )
    }

    /// Removes the oldest entries beyond `bytes`. Entries of an open session or round stay up to twice that length: the
    /// rate of an app's entries is limited, but a round may stay open for months. Refused calls, which any process can
    /// make, get at most a quarter of the room.
    private static func cutLog(to bytes: Int, in db: SQLiteConnection) throws {
        let selection = { (entries: String) in
            """
            SELECT sequence FROM (
                SELECT sequence, sum(100 + ifnull(length(CAST(detail AS BLOB)), 0) + ifnull(length(CAST(app AS BLOB)), 0))
                    OVER (ORDER BY sequence DESC) AS total FROM \(entries)
            ) WHERE total > ? ORDER BY sequence DESC LIMIT 1
            """
        }
        let refused = "event = '\(AuditEntry.Event.refused.rawValue)'"
        if let last: Int64 = try db.value(selection("audit WHERE \(refused)"), bytes / 4) {
            try db.run("DELETE FROM audit WHERE \(refused) AND sequence <= ?", last)
        }
        guard let last: Int64 = try db.value(selection("audit"), bytes) else { return }
        try db.run(
            """
            DELETE FROM audit WHERE sequence <= ? AND ifnull(session NOT IN (
                SELECT number FROM session WHERE ifnull(outcome, 'open') = 'open'), TRUE)
            """,
            last
        )
        guard let last: Int64 = try db.value(selection("audit"), 2 * bytes) else { return }
        try db.run("DELETE FROM audit WHERE sequence <= ?", last)
    }

    // MARK: Values

    static func account(_ row: borrowing SQLiteRow) -> Account? {
        guard let identifier: String = row["account_identifier"], let username: String = row["account_username"] else {
            return nil
        }
        return Account(identifier: identifier, username: username, displayName: row["account_display_name"])
    }
}

/// The last valid content of the administrator's files. A start applies it if the files have become invalid.
package struct KeptSettings: Sendable, Equatable {
    /// The managed configuration, as JSON; `nil` keeps the stored one.
    package var configuration: Data?
    /// All app manifests, by file name, those of packages by path; `nil` keeps the stored ones.
    package var manifests: [String: Data]?

    static func read(_ db: SQLiteConnection, into content: inout StoredContent) throws {
        let configuration: [UInt8]? = try db.value("SELECT content FROM configuration WHERE id = 1")
        content.configuration = configuration.map { Data($0) }
        let manifests = try db.rows("SELECT file, content FROM manifest") { row -> (String, Data)? in
            guard let file: String = row["file"], let content: [UInt8] = row["content"] else { return nil }
            return (file, Data(content))
        }
        content.manifests = Dictionary(manifests.compactMap(\.self)) { $1 }
    }

    fileprivate func write(to db: SQLiteConnection) throws {
        if let configuration {
            try db.run("INSERT OR REPLACE INTO configuration (id, content) VALUES (1, ?)", [UInt8](configuration))
        }
        guard let manifests else { return }
        try db.run("DELETE FROM manifest")
        for (file, content) in manifests {
            try db.run("INSERT INTO manifest (file, content) VALUES (?, ?)", file, [UInt8](content))
        }
    }
}
