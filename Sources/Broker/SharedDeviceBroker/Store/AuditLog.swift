package import Foundation
import GRDB

/// Reads the audit log, also while the broker writes it: each call sees one state of the file.
package final class AuditLog: Sendable {
    /// Which entries. What is `nil` excludes nothing.
    package struct Filter: Sendable {
        /// Those after the entry of this number.
        package var after: Int64?
        /// Those at this time or later.
        package var since: Date?
        package var session: UInt64?
        package var app: String?
        package var event: AuditEntry.Event?
        /// Of those that the rest admits, so many at the end.
        package var last: Int?

        package init(
            after: Int64? = nil,
            since: Date? = nil,
            session: UInt64? = nil,
            app: String? = nil,
            event: AuditEntry.Event? = nil,
            last: Int? = nil
        ) {
            self.after = after
            self.since = since
            self.session = session
            self.app = app
            self.event = event
            self.last = last
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
        var conditions: [String] = []
        var arguments: [(any DatabaseValueConvertible)?] = []
        func require(_ condition: String, _ value: (any DatabaseValueConvertible)?) {
            guard let value else { return }
            conditions.append(condition)
            arguments.append(value)
        }
        require("sequence > ?", filter.after)
        require("at >= ?", filter.since?.timeIntervalSince1970)
        require("session = ?", filter.session.map { Int64(clamping: $0) })
        require("app = ?", filter.app)
        require("event = ?", filter.event?.rawValue)
        let constraint = conditions.isEmpty ? "" : "WHERE " + conditions.joined(separator: " AND ")
        let sql = """
            SELECT sequence, at, event, session, app, subject, detail,
                (SELECT username FROM subject WHERE number = audit.subject) AS username
            FROM audit \(constraint) ORDER BY sequence DESC LIMIT ?
            """
        // A negative limit is none.
        arguments.append(filter.last.map { max(0, $0) } ?? -1)
        let path = database.path
        let values = StatementArguments(arguments)
        return try database.read("read the audit log") { db in
            try Row.fetchAll(db, sql: sql, arguments: values).reversed().map { try Self.line($0, path: path) }
        }
    }

    private static func line(_ row: Row, path: String) throws -> Line {
        let sequence: Int64? = row.value("sequence")
        let at: Double? = row.value("at")
        let event: String? = row.value("event")
        guard let sequence, let at, LedgerStore.isTime(at), let event = event.flatMap(AuditEntry.Event.init) else {
            throw StoreError.damaged(attempted: "read the audit log", message: "\(path): a row makes no sense")
        }
        let session: Int64? = row.value("session")
        let subject: Int64? = row.value("subject")
        let username: String? = row.value("username")
        let entry = AuditEntry(
            event,
            at: Date(timeIntervalSince1970: at),
            session: session.flatMap(UInt64.init(exactly:)),
            app: row.value("app"),
            subject: subject,
            detail: row.value("detail")
        )
        return Line(sequence: sequence, entry: entry, account: subject.map { username ?? "account #\($0)" })
    }
}
