package import DeviceStorage
package import FoundationEssentials
import Logging

/// An entry of the audit log: what happened, when, in which session, through which app. On the disk it names no person:
/// the account is a number, which resolves to a name only while the account is on the device.
package struct AuditEntry: Sendable, Equatable {
    /// The kind of entry. Databases and scripts contain the raw values, so their meaning never changes.
    package enum Event: String, Sendable, CaseIterable {
        case signedIn = "signed-in"
        case signedOut = "signed-out"
        case modeChanged = "mode-changed"
        /// All apps were told to ask for the state.
        case announced
        /// An app received the session's account, and may hold the session's data from here on.
        case held
        /// An app asked, and was told that it owes the cleanup.
        case told
        case begun
        case finished
        case failed
        case waived
        /// An app was late with its cleanup: it was stopped, and its data deleted.
        case enforced
        /// The enforcement failed.
        case notEnforced = "not-enforced"
        /// An app ended before it reported the end of a cleanup, or its receipt does not count for that reason.
        case interrupted
        case woken
        /// No app owes the session's cleanup any more.
        case completed
        /// The policy no longer waits for the session's cleanup.
        case expired
        /// An app reported on its cleanup more often than the log accepts.
        case reported
        case refused
        /// A sign-out ended the login session at the seat, or failed to.
        case loginEnded = "login-ended"
        case joined
        case left
    }

    package var event: Event
    package var at: Date
    package var session: UInt64?
    package var app: String?
    /// The user that runs the app.
    package var user: UInt32?
    /// The account's identifier, in lower case. The log stores a number instead.
    package var account: String?
    /// The account's name, by which the number resolves to the person while the account is on the device.
    package var accountName: String?
    /// Further details for people. For `refused`, it begins with the error's code.
    package var detail: String?
}

/// Reads the audit log, also while the broker writes it. Each call sees a consistent snapshot of the file.
package final class AuditLog: Sendable {
    /// Criteria for entries. `nil` means any.
    package struct Filter: Sendable {
        /// Only entries after this number.
        package var after: Int64?
        package var since: Date?
        package var session: UInt64?
        package var app: String?
        package var event: AuditEntry.Event?
        /// Only this many of the last entries that match the other criteria.
        package var last: Int?
        /// Only this many of the first entries that match the other criteria. Not together with `last`.
        package var first: Int?

        package init(
            after: Int64? = nil,
            since: Date? = nil,
            session: UInt64? = nil,
            app: String? = nil,
            event: AuditEntry.Event? = nil,
            last: Int? = nil,
            first: Int? = nil
        ) {
            self.after = after
            self.since = since
            self.session = session
            self.app = app
            self.event = event
            self.last = last
            self.first = first
        }
    }

    package struct Line: Sendable {
        /// The entry's number, in ascending order.
        package let sequence: Int64
        package let entry: AuditEntry
        /// The name of the account that the entry concerns, or “account #3” if the account is no longer on the device.
        /// `nil` if the entry names none.
        package let account: String?
    }

    private let database: DeviceDatabase

    package init(database: DeviceDatabase) { self.database = database }

    /// Returns the entries that match the filter, oldest first.
    ///
    /// - Throws: `StoreError`; `damaged` if a row is invalid.
    package func lines(_ filter: Filter = Filter()) throws(StoreError) -> [Line] {
        let path = database.path
        let lines = try database.read("read the audit log") { db in
            try db.rows(
                filter.first == nil ? Self.selection : Self.selectionFromFirst,
                filter.after,
                filter.since?.timeIntervalSince1970,
                filter.session,
                filter.app,
                filter.event?.rawValue,
                (filter.first ?? filter.last).map { max(0, $0) }
            ) { try Self.line($0, path: path) }
        }
        return filter.first == nil ? lines.reversed() : lines
    }

    /// Starts with the newest entry, because `last` counts from there. SQLite treats a negative limit as no limit.
    private static let selection = "\(columns) ORDER BY sequence DESC LIMIT ifnull(?6, -1)"
    private static let selectionFromFirst = "\(columns) ORDER BY sequence LIMIT ?6"
    private static let columns = """
        SELECT sequence, at, event, session, app, user, subject, detail,
            (SELECT username FROM subject WHERE number = audit.subject) AS username
        FROM audit
        WHERE sequence > ifnull(?1, -1) AND at >= ifnull(?2, at) AND (?3 IS NULL OR session = ?3)
            AND (?4 IS NULL OR app = ?4) AND event = ifnull(?5, event)
        """

    private static func line(_ row: borrowing SQLiteRow, path: String) throws -> Line {
        let event: String? = row["event"]
        guard let sequence: Int64 = row["sequence"], let at = DeviceStore.time(row, "at"),
            let event = event.flatMap(AuditEntry.Event.init)
        else { throw StoreError.damaged(attempted: "read the audit log", message: "\(path): a row makes no sense") }
        let subject: Int64? = row["subject"]
        let username: String? = row["username"]
        let entry = AuditEntry(
            event: event,
            at: at,
            session: row["session"],
            app: row["app"],
            user: row["user"],
            detail: row["detail"]
        )
        return Line(sequence: sequence, entry: entry, account: subject.map { username ?? "account #\($0)" })
    }
}

extension AuditEntry {
    /// The journal's form of the entry, without names.
    var metadata: Logger.Metadata {
        var metadata: Logger.Metadata = [:]
        metadata["session"] = session.map { "\($0)" }
        metadata["app"] = app.map { "\($0)" }
        metadata["user"] = user.map { "\($0)" }
        metadata["detail"] = detail.map { "\($0)" }
        return metadata
    }
}
