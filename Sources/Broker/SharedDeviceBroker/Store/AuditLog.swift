package import BrokerCore
package import DeviceStorage
import FoundationEssentials
import Logging

extension DeviceDatabase {
    /// Returns the entries of the audit log that match the filter, oldest first, also while the broker writes it.
    ///
    /// - Throws: `StoreError`; `damaged` if a row is invalid.
    package func auditLog(_ filter: AuditFilter = AuditFilter()) throws(StoreError) -> [AuditLine] {
        let lines = try read("read the audit log") { db in
            try db.rows(
                filter.first == nil ? Self.selection : Self.selectionFromFirst,
                filter.after,
                filter.since,
                filter.session,
                filter.app,
                filter.event?.rawValue,
                (filter.first ?? filter.last).map { max(0, $0) }
            ) { try Self.line($0) }
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

    private static func line(_ row: borrowing SQLiteRow) throws -> AuditLine {
        guard let sequence: Int64 = row["sequence"], let at: Date = row["at"],
            let event: AuditEntry.Event = row["event"]
        else { throw SQLiteError.damaged("a row makes no sense") }
        let subject: Int64? = row["subject"]
        let username: String? = row["username"]
        var entry = AuditEntry(event, at: at)
        (entry.session, entry.app, entry.user, entry.detail) = (row["session"], row["app"], row["user"], row["detail"])
        return AuditLine(sequence: sequence, entry: entry, account: subject.map { username ?? "account #\($0)" })
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
