import DBusTransport
import DeviceConfiguration
package import DeviceStorage
package import Foundation
import GRDB
import Glibc
import SharedDevice
import Synchronization

/// Keeps the device's state, the ledger and the log across restarts, crashes and power cuts. What belongs together is one transaction.
///
/// Every call blocks its thread for the disk.
package final class DeviceStore: Sendable {
    /// What the store holds.
    package struct Content: Sendable {
        package var device: DeviceState
        package var membership: Membership?
        package var ledger: CleanupLedger
        /// The managed configuration that was valid last, as JSON; `nil` if none ever was.
        package var configuration: Data?
        /// A later state without an account, if it is only noted in the space that is kept for that.
        package var noted: (state: DeviceState, date: Date)?
    }

    /// The log is cut to so many bytes, the oldest entries first. Entries of sessions whose round is open stay.
    package static let longestLog = 32 * 1024 * 1024
    /// How many entries are added between two looks at the log's length.
    private static let entriesBetweenCuts = 1000

    package let database: DeviceDatabase
    private let reserve: SignOutReserve
    private let longestLog: Int
    private let sinceCut = Locked(0)

    /// - Throws: ``StoreError`` where no space can be kept for a sign-out.
    package init(database: DeviceDatabase, longestLog: Int = DeviceStore.longestLog) throws(StoreError) {
        self.database = database
        self.longestLog = longestLog
        reserve = try SignOutReserve(beside: database.path)
    }

    /// What was committed last.
    ///
    /// - Throws: ``StoreError``; `damaged` where a row makes no sense.
    package func load(at now: Moment) throws(StoreError) -> Content {
        var content = try Self.read(database, at: now)
        if let noted = reserve.noted, noted.state.epoch > content.device.epoch { content.noted = noted }
        return content
    }

    /// What is on the disk, for programs beside the broker.
    ///
    /// - Throws: ``StoreError``; `damaged` where a row makes no sense.
    package static func read(
        _ database: DeviceDatabase,
        at now: Moment = Moment(wall: Date(), uptime: .zero)
    ) throws(StoreError) -> Content {
        let path = database.path
        return try database.read("read the device's state") { db in
            Content(
                device: try device(db, path: path),
                membership: try membership(db, path: path),
                ledger: try ledger(db, at: now, path: path),
                configuration: try Data.fetchOne(db, sql: "SELECT content FROM configuration WHERE id = 1")
            )
        }
    }

    /// Who is signed in, and the mode: also where the ledger is damaged.
    ///
    /// - Throws: ``StoreError``.
    package static func device(of database: DeviceDatabase) throws(StoreError) -> DeviceState {
        let path = database.path
        return try database.read("read the device's state") { db in try device(db, path: path) }
    }

    /// Writes the batch. When this returns it is on the disk; when it throws, nothing has changed. What was noted is on the disk then.
    ///
    /// - Throws: ``StoreError``.
    package func commit(_ batch: Batch) throws(StoreError) {
        let attempted = "write the device's state"
        let path = database.path
        do {
            let isCutDue = sinceCut.withLock { count in
                count += batch.log.count
                return count >= Self.entriesBetweenCuts
            }
            try database.write(attempted) { db in
                if let device = batch.device { try Self.save(device, to: db) }
                if let membership = batch.membership { try Self.save(membership, to: db) }
                try Self.save(batch.sessions, batch.parts, to: db)
                for entry in batch.log { try Self.append(entry, to: db) }
                if isCutDue { try Self.cutLog(to: longestLog, in: db) }
            }
            if isCutDue { sinceCut.withLock { $0 = 0 } }
        } catch {
            if batch.device != nil { reserve.sync() }
            throw StoreError(error, attempted: attempted, path: path)
        }
    }

    /// Notes a state without an account, so that a restarted broker knows of it although no transaction has it yet.
    ///
    /// - Returns: the reason if it cannot be noted, for the log; `nil` if it was.
    @discardableResult
    package func note(_ state: DeviceState, at date: Date) -> String? { reserve.note(state, at: date) }

    /// Keeps a configuration that was found valid.
    ///
    /// - Throws: ``StoreError``.
    package func keep(configuration: Data) throws(StoreError) {
        let attempted = "keep the managed configuration"
        do {
            try database.write(attempted) { db in
                try db.execute(
                    sql: "INSERT OR REPLACE INTO configuration (id, content) VALUES (1, ?)",
                    arguments: [configuration]
                )
            }
        } catch {
            throw StoreError(error, attempted: attempted, path: database.path)
        }
    }

    // MARK: Device and membership

    static func device(_ db: Database, path: String) throws -> DeviceState {
        let row = try Row.fetchOne(db, sql: "SELECT * FROM device WHERE id = 1")
        let mode: String? = row?.value("mode")
        let epoch: Int64? = row?.value("epoch")
        guard let row, let mode = mode.flatMap(ManagedMode.init(rawValue:)),
            let epoch = epoch.flatMap(UInt64.init(exactly:))
        else { throw nonsense("the device's row", path) }
        return DeviceState(mode: mode, account: account(row), epoch: epoch)
    }

    private static func save(_ device: DeviceState, to db: Database) throws {
        try db.run(
            sql: """
                UPDATE device SET mode = ?, epoch = ?,
                    account_identifier = ?, account_username = ?, account_display_name = ?
                """,
            arguments: [
                device.mode.rawValue, Int64(clamping: device.epoch),
                device.account?.identifier, device.account?.username, device.account?.displayName,
            ]
        )
    }

    private static func membership(_ db: Database, path: String) throws -> Membership? {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM membership WHERE id = 1") else { return nil }
        let tenant: String? = row.value("tenant_identifier")
        guard let tenant, let joined = time(row, "joined_at") else { throw nonsense("the membership's row", path) }
        return Membership(organization: row.value("organization"), tenantIdentifier: tenant, joinedAt: joined)
    }

    private static func save(_ membership: Membership?, to db: Database) throws {
        guard let membership else { return try db.run(sql: "DELETE FROM membership") }
        try db.run(
            sql: """
                INSERT OR REPLACE INTO membership (id, organization, tenant_identifier, joined_at) VALUES (1, ?, ?, ?)
                """,
            arguments: [
                membership.organization, membership.tenantIdentifier, membership.joinedAt.timeIntervalSince1970,
            ]
        )
    }

    // MARK: The ledger

    private static func ledger(_ db: Database, at now: Moment, path: String) throws -> CleanupLedger {
        var sessions: [UInt64: CleanupLedger.Session] = [:]
        for row in try Row.fetchAll(db, sql: "SELECT * FROM session") {
            let number: Int64? = row.value("number")
            let outcome: String? = row.value("outcome")
            let ended = time(row, "ended_at")
            guard let number = number.flatMap(UInt64.init(exactly:)), let started = time(row, "started_at"),
                outcome == nil || outcome.flatMap(CleanupReport.Outcome.init) != nil, (outcome == nil) == (ended == nil)
            else { throw nonsense("a session's row", path) }
            // The clock may have been set since: a round has waited for no less than nothing.
            let age = ended.map { Duration.seconds(max(0, now.wall.timeIntervalSince($0))) }
            sessions[number] = CleanupLedger.Session(
                account: account(row),
                startedAt: started,
                endedAt: ended,
                endedUptime: age.map { now.uptime - $0 },
                outcome: outcome.flatMap(CleanupReport.Outcome.init)
            )
        }
        var parts: [UInt64: [Participant: CleanupLedger.Part]] = [:]
        for row in try Row.fetchAll(db, sql: "SELECT * FROM part") {
            let number: Int64? = row.value("session")
            let app: String? = row.value("app")
            let user: Int64? = row.value("user")
            let progress: String? = row.value("progress")
            let again: Int64? = row.value("again")
            let connections: String? = row.value("connections")
            // A duty without a session, or a session that is over without duties, would never be settled.
            guard let number = number.flatMap(UInt64.init(exactly:)), let app,
                let user = user.flatMap(UInt32.init(exactly:)), let session = sessions[number],
                progress == nil || progress.flatMap(CleanupReport.Progress.init) != nil,
                (progress == nil) == (session.outcome == nil), let connections
            else { throw nonsense("an app's row", path) }
            parts[number, default: [:]][Participant(app: app, user: user)] = CleanupLedger.Part(
                progress: progress.flatMap(CleanupReport.Progress.init),
                toldAt: time(row, "told_at"),
                begunAt: time(row, "begun_at"),
                finishedAt: time(row, "finished_at"),
                detail: row.value("detail"),
                connections: Set(connections.split(separator: " ").map(String.init)),
                asked: again == 0 ? nil : []
            )
        }
        return CleanupLedger(sessions: sessions, parts: parts)
    }

    private static func save(
        _ sessions: [UInt64: CleanupLedger.Session?],
        _ parts: [UInt64: [Participant: CleanupLedger.Part?]],
        to db: Database
    ) throws {
        for (number, session) in sessions {
            guard let session else {
                try db.run(sql: "DELETE FROM part WHERE session = ?", arguments: [Int64(clamping: number)])
                try db.run(sql: "DELETE FROM session WHERE number = ?", arguments: [Int64(clamping: number)])
                continue
            }
            // The name is written once: a command that removes the user removes it from here, too.
            try db.run(
                sql: """
                    INSERT INTO session (number, started_at, ended_at, outcome,
                        account_identifier, account_username, account_display_name)
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                    ON CONFLICT (number) DO UPDATE SET started_at = ?2, ended_at = ?3, outcome = ?4,
                        account_identifier = iif(?5 IS NULL, NULL, account_identifier),
                        account_username = iif(?5 IS NULL, NULL, account_username),
                        account_display_name = iif(?5 IS NULL, NULL, account_display_name)
                    """,
                arguments: [
                    Int64(clamping: number), session.startedAt.timeIntervalSince1970,
                    session.endedAt?.timeIntervalSince1970, session.outcome?.rawValue,
                    session.account?.identifier, session.account?.username, session.account?.displayName,
                ]
            )
        }
        for (number, participants) in parts {
            for (participant, part) in participants {
                let key: [any DatabaseValueConvertible] = [
                    Int64(clamping: number), participant.app, Int64(participant.user),
                ]
                guard let part else {
                    try db.run(
                        sql: "DELETE FROM part WHERE session = ? AND app = ? AND user = ?",
                        arguments: StatementArguments(key)
                    )
                    continue
                }
                let values: [(any DatabaseValueConvertible)?] = [
                    part.progress?.rawValue, part.toldAt?.timeIntervalSince1970, part.begunAt?.timeIntervalSince1970,
                    part.finishedAt?.timeIntervalSince1970, part.detail,
                    part.connections.sorted().joined(separator: " "), part.asked == nil ? 0 : 1,
                ]
                try db.run(
                    sql: """
                        INSERT OR REPLACE INTO part
                            (session, app, user, progress, told_at, begun_at, finished_at, detail, connections, again)
                        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                        """,
                    arguments: StatementArguments(key + values)
                )
            }
        }
    }

    // MARK: The log

    private static func append(_ entry: AuditEntry, to db: Database) throws {
        if let account = entry.account {
            try db.run(
                sql: "INSERT OR IGNORE INTO subject (account_identifier, username) VALUES (?, ?)",
                arguments: [account, entry.accountName ?? ""]
            )
        }
        try db.run(
            sql: """
                INSERT INTO audit (at, event, session, app, user, detail, subject)
                VALUES (?, ?, ?, ?, ?, ?, (SELECT number FROM subject WHERE account_identifier = ?))
                """,
            arguments: [
                entry.at.timeIntervalSince1970, entry.event.rawValue, entry.session.map { Int64(clamping: $0) },
                entry.app, entry.user.map { Int64($0) }, entry.detail, entry.account,
            ]
        )
    }

    /// Removes the oldest entries beyond so many bytes.
    private static func cutLog(to bytes: Int, in db: Database) throws {
        let last = try Int64.fetchOne(
            db,
            sql: """
                SELECT sequence FROM (
                    SELECT sequence, sum(100 + ifnull(length(detail), 0) + ifnull(length(app), 0))
                        OVER (ORDER BY sequence DESC) AS total FROM audit
                ) WHERE total > ? ORDER BY sequence DESC LIMIT 1
                """,
            arguments: [bytes]
        )
        guard let last else { return }
        try db.run(
            sql: """
                DELETE FROM audit WHERE sequence <= ? AND ifnull(session NOT IN (
                    SELECT number FROM session WHERE outcome IS NOT 'complete'), TRUE)
                """,
            arguments: [last]
        )
    }

    // MARK: Values

    private static func account(_ row: Row) -> Account? {
        let identifier: String? = row.value("account_identifier")
        let username: String? = row.value("account_username")
        guard let identifier, let username else { return nil }
        return Account(identifier: identifier, username: username, displayName: row.value("account_display_name"))
    }

    private static func time(_ row: Row, _ column: String) -> Date? {
        let seconds: Double? = row.value(column)
        return seconds.flatMap { isTime($0) ? Date(timeIntervalSince1970: $0) : nil }
    }

    /// Whether it can be a time: what shows dates may trap on one that is far beyond any calendar.
    static func isTime(_ seconds: Double) -> Bool { abs(seconds) < 1e11 }

    private static func nonsense(_ what: String, _ path: String) -> StoreError {
        StoreError.damaged(attempted: "read the device's state", message: "\(path): \(what) makes no sense")
    }
}

extension Database {
    /// Runs one statement, which SQLite prepares once for all its runs.
    fileprivate func run(sql: String, arguments: StatementArguments = StatementArguments()) throws {
        try cachedStatement(sql: sql).execute(arguments: arguments)
    }
}
