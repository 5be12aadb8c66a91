package import DeviceStorage
package import FoundationEssentials
import Logging
import SQLite

/// One line of the audit log: what happened, when, in which session, by which app. On the disk it names no person: the account has a number
/// there, which leads to a name only as long as the account is on the device.
package struct AuditEntry: Sendable, Equatable {
    /// What happened. The raw values are in databases and in scripts: none of them changes its meaning.
    package enum Event: String, Sendable, CaseIterable {
        case signedIn = "signed-in"
        case signedOut = "signed-out"
        case modeChanged = "mode-changed"
        /// All apps were told to ask.
        case announced
        /// An app was given the account of the session, and may hold its data from here on.
        case held
        /// An app has asked, and was told that it owes the cleanup.
        case told
        case begun
        case finished
        case failed
        case waived
        /// An app was late with its cleanup: it was stopped, and its data deleted.
        case enforced
        /// The same could not be done.
        case notEnforced = "not-enforced"
        /// An app ended before it had reported the end of a cleanup, or a receipt does not count because of such an end.
        case interrupted
        /// The bus was asked to start an app.
        case woken
        /// Nobody owes anything of the session any more.
        case completed
        /// The policy waits no longer for the session's cleanup.
        case expired
        /// An app has reported on its cleanup more often than the log takes.
        case reported
        /// A request was refused.
        case refused
        /// A sign-out has the login session at the seat ended, or cannot.
        case loginEnded = "login-ended"
        /// The device joined its organisation.
        case joined
        /// The device left its organisation.
        case left
    }

    package var event: Event
    package var at: Date
    /// The session's epoch.
    package var session: UInt64?
    /// The app's identifier.
    package var app: String?
    /// The user that runs the app.
    package var user: UInt32?
    /// The account's identifier, in small letters. The log keeps a number in its place.
    package var account: String?
    /// The account's name, which leads the number back to the person as long as the account is on the device.
    package var accountName: String?
    /// What else there is to say, for people; for `refused`, it begins with the error's code.
    package var detail: String?
}

/// Reads the audit log, also while the broker writes it: each call sees one state of the file.
package final class AuditLog: Sendable {
    /// Criteria for entries. `nil` means any.
    package struct Filter: Sendable {
        /// Only entries after the one of this number.
        package var after: Int64?
        /// Only entries at this time or later.
        package var since: Date?
        package var session: UInt64?
        package var app: String?
        package var event: AuditEntry.Event?
        /// Only the last entries that the other criteria admit, this many.
        package var last: Int?
        /// Only the first entries that the other criteria admit, this many; not together with `last`.
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

    /// An entry as it is read.
    package struct Line: Sendable {
        /// The entry's number: later ones have larger ones.
        package let sequence: Int64
        package let entry: AuditEntry
        /// Whose session it is: the name, or “account #3” where the account is no longer on the device; `nil` where the entry names none.
        package let account: String?
    }

    private let database: DeviceDatabase

    package init(database: DeviceDatabase) { self.database = database }

    /// The entries that the filter admits, oldest first.
    ///
    /// - Throws: `StoreError`; `damaged` where a row makes no sense.
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

    /// Begins with the newest entry, because `last` counts from there. SQLite takes a negative limit as no limit.
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
    /// As the journal has it: without names.
    var metadata: Logger.Metadata {
        var metadata: Logger.Metadata = [:]
        metadata["session"] = session.map { "\($0)" }
        metadata["app"] = app.map { "\($0)" }
        metadata["user"] = user.map { "\($0)" }
        metadata["detail"] = detail.map { "\($0)" }
        return metadata
    }
}
