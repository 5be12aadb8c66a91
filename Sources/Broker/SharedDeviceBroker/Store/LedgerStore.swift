import Foundation
import GRDB
package import SharedDevice

/// Keeps the cleanup ledger and the audit log across restarts, crashes and power cuts, beside the device's state: what belongs together is
/// one transaction.
package final class LedgerStore: Sendable {
    private let database: DeviceDatabase

    package init(database: DeviceDatabase) {
        self.database = database
    }

    /// The ledger that was committed last.
    ///
    /// - Throws: `StoreError`; `damaged` where a row makes no sense.
    package func ledger() throws(StoreError) -> CleanupLedger {
        let path = database.path
        return try database.read("read the cleanup ledger") { db in try Self.fetch(db, path: path) }
    }

    /// The organisation that the device has joined; `nil` means that it has joined none.
    ///
    /// - Throws: `StoreError`; `damaged` where the row makes no sense.
    package func enrolment() throws(StoreError) -> Membership? {
        let path = database.path
        return try database.read("read the device's enrolment") { db in try EnrolmentStore.fetch(db, path: path) }
    }

    /// Makes `new` the stored ledger, appends to the log, and, where there is one, makes `state` the device's state and changes its
    /// enrolment: all of it, or nothing.
    /// When this returns, it is on the disk.
    ///
    /// - Parameter old: what is stored; only what differs is written.
    /// - Throws: `StoreError`; nothing has changed then.
    package func commit(
        _ state: DeviceState?,
        enrolment change: Membership.Change? = nil,
        from old: CleanupLedger,
        to new: CleanupLedger,
        log entries: [AuditEntry]
    ) throws(StoreError) {
        let attempted = state.map { "commit the device's state of epoch \($0.epoch)" } ?? "commit the cleanup ledger"
        let path = database.path
        var hasLeft = false
        do {
            hasLeft = try database.write(attempted) { db in
                var hasLeft = false
                if let state { hasLeft = try AccountStore.replace(db, with: state, attempted: attempted, path: path) }
                if let change { try EnrolmentStore.apply(change, to: db) }
                hasLeft = try Self.save(db, from: old, to: new) || hasLeft
                for entry in entries { try Self.append(db, entry) }
                return hasLeft
            }
        } catch {
            throw StoreError(error, attempted: attempted, path: path)
        }
        if hasLeft { database.eraseRemnants() }
    }

    /// The number that stands for the account in the log; the same for the same account, until it is forgotten.
    ///
    /// - Throws: `StoreError`.
    package func subject(of account: Account) throws(StoreError) -> Int64 {
        let attempted = "number an account for the log"
        let path = database.path
        do {
            return try database.write(attempted) { db in
                let key = account.identifier.lowercased()
                let sql = "SELECT number FROM subject WHERE account_identifier = ?"
                if let number = try Int64.fetchOne(db, sql: sql, arguments: [key]) { return number }
                try db.execute(
                    sql: "INSERT INTO subject (account_identifier, username) VALUES (?, ?)",
                    arguments: [key, account.username]
                )
                return db.lastInsertedRowID
            }
        } catch {
            throw StoreError(error, attempted: attempted, path: path)
        }
    }

    // MARK: Rows

    private static func fetch(_ db: Database, path: String) throws -> CleanupLedger {
        let nonsense = StoreError.damaged(
            attempted: "read the cleanup ledger",
            message: "\(path): a row makes no sense"
        )
        var sessions: [UInt64: CleanupLedger.Session] = [:]
        for row in try Row.fetchAll(db, sql: "SELECT * FROM session") {
            let epoch: Int64? = row.value("epoch")
            let started: Double? = row.value("started_at")
            let ended: Double? = row.value("ended_at")
            let outcome: String? = row.value("outcome")
            guard let epoch = epoch.flatMap(UInt64.init(exactly:)), let started, isTime(started),
                outcome == nil || outcome.flatMap(CleanupReport.Outcome.init) != nil,
                (outcome == nil) == (ended == nil), ended.map(isTime) ?? true
            else { throw nonsense }
            sessions[epoch] = CleanupLedger.Session(
                account: account(row),
                subject: row.value("subject"),
                startedAt: Date(timeIntervalSince1970: started),
                endedAt: ended.map(Date.init(timeIntervalSince1970:)),
                outcome: outcome.flatMap(CleanupReport.Outcome.init)
            )
        }
        var participations: [UInt64: [String: CleanupLedger.Participation]] = [:]
        for row in try Row.fetchAll(db, sql: "SELECT * FROM participation") {
            let epoch: Int64? = row.value("session")
            let app: String? = row.value("app")
            let progress: String? = row.value("progress")
            // A duty without a session, or a session that is over without duties, would never be settled.
            guard let epoch = epoch.flatMap(UInt64.init(exactly:)), let app, let session = sessions[epoch],
                progress == nil || progress.flatMap(CleanupReport.Progress.init) != nil,
                (progress == nil) == (session.outcome == nil)
            else { throw nonsense }
            let date: (String) -> Date? = { column in
                let seconds: Double? = row.value(column)
                return seconds.flatMap { isTime($0) ? Date(timeIntervalSince1970: $0) : nil }
            }
            participations[epoch, default: [:]][app] = CleanupLedger.Participation(
                progress: progress.flatMap(CleanupReport.Progress.init),
                toldAt: date("told_at"),
                begunAt: date("begun_at"),
                finishedAt: date("finished_at"),
                detail: row.value("detail")
            )
        }
        return CleanupLedger(sessions: sessions, participations: participations)
    }

    /// Whether it can be a time: what shows dates may trap on one that is far beyond any calendar.
    static func isTime(_ seconds: Double) -> Bool { abs(seconds) < 1e11 }

    private static func account(_ row: Row) -> Account? {
        let identifier: String? = row.value("account_identifier")
        let username: String? = row.value("account_username")
        guard let identifier, let username else { return nil }
        return Account(identifier: identifier, username: username, displayName: row.value("account_display_name"))
    }

    /// Whether a name has left the file's rows.
    private static func save(_ db: Database, from old: CleanupLedger, to new: CleanupLedger) throws -> Bool {
        var hasLeft = false
        for (epoch, session) in old.sessions where session.account != nil && new.sessions[epoch]?.account == nil {
            hasLeft = true
        }
        for epoch in old.sessions.keys where new.sessions[epoch] == nil {
            try db.execute(sql: "DELETE FROM participation WHERE session = ?", arguments: [Int64(clamping: epoch)])
            try db.execute(sql: "DELETE FROM session WHERE epoch = ?", arguments: [Int64(clamping: epoch)])
        }
        for (epoch, session) in new.sessions where old.sessions[epoch] != session {
            try db.execute(
                sql: """
                    INSERT OR REPLACE INTO session (epoch, subject, started_at, ended_at, outcome,
                        account_identifier, account_username, account_display_name)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                    """,
                arguments: [
                    Int64(clamping: epoch), session.subject, session.startedAt.timeIntervalSince1970,
                    session.endedAt?.timeIntervalSince1970, session.outcome?.rawValue,
                    session.account?.identifier, session.account?.username, session.account?.displayName,
                ]
            )
        }
        for (epoch, apps) in new.participations where old.participations[epoch] != apps {
            let before = old.participations[epoch] ?? [:]
            for (app, part) in apps where before[app] != part {
                try db.execute(
                    sql: """
                        INSERT OR REPLACE INTO participation (session, app, progress, told_at, begun_at, finished_at, detail)
                        VALUES (?, ?, ?, ?, ?, ?, ?)
                        """,
                    arguments: [
                        Int64(clamping: epoch), app, part.progress?.rawValue, part.toldAt?.timeIntervalSince1970,
                        part.begunAt?.timeIntervalSince1970, part.finishedAt?.timeIntervalSince1970, part.detail,
                    ]
                )
            }
            for app in before.keys where apps[app] == nil {
                try db.execute(
                    sql: "DELETE FROM participation WHERE session = ? AND app = ?",
                    arguments: [Int64(clamping: epoch), app]
                )
            }
        }
        return hasLeft
    }

    private static func append(_ db: Database, _ entry: AuditEntry) throws {
        try db.execute(
            sql: "INSERT INTO audit (at, event, session, app, subject, detail) VALUES (?, ?, ?, ?, ?, ?)",
            arguments: [
                entry.at.timeIntervalSince1970, entry.event.rawValue, entry.session.map { Int64(clamping: $0) },
                entry.app, entry.subject, entry.detail,
            ]
        )
    }
}
