import BrokerCore
import DeviceStorage
import FoundationEssentials
import SharedDevice

enum LedgerRows {
    static func read(_ db: SQLiteConnection, at now: Moment) throws -> CleanupLedger {
        let sessions = Dictionary(try db.rows("SELECT * FROM session", as: { try session($0, at: now) })) { $1 }
        var parts: [UInt64: [Participant: CleanupLedger.Part]] = [:]
        for (number, participant, part) in try db.rows("SELECT * FROM part", as: { try part($0) }) {
            // An entry of an unknown session would never be settled, nor would an entry whose progress contradicts its
            // session. An entry has a progress exactly when its session has ended.
            guard let session = sessions[number], (part.progress == nil) == (session.outcome == nil) else {
                throw SQLiteError.damaged("an app's row makes no sense")
            }
            parts[number, default: [:]][participant] = part
        }
        return CleanupLedger(sessions: sessions, parts: parts, claims: try claims(db))
    }

    private static func session(
        _ row: borrowing SQLiteRow,
        at now: Moment
    ) throws -> (UInt64, CleanupLedger.Session) {
        let (outcome, ended): (CleanupReport.Outcome?, Date?) = (row["outcome"], row["ended_at"])
        guard let number: UInt64 = row["number"], let started: Date = row["started_at"],
            (row["outcome"] as String?) == outcome?.rawValue, (outcome == nil) == (ended == nil)
        else { throw SQLiteError.damaged("a session's row makes no sense") }
        // The clock may have been set back since: the age of a round is never negative.
        let age = ended.map { Duration.seconds(max(0, now.wall.timeIntervalSince($0))) }
        var session = CleanupLedger.Session(account: DeviceStore.account(row), startedAt: started)
        (session.endedAt, session.endedUptime) = (ended, age.map { now.uptime - $0 })
        session.outcome = outcome
        return (number, session)
    }

    private static func part(
        _ row: borrowing SQLiteRow
    ) throws -> (UInt64, Participant, CleanupLedger.Part) {
        let progress: CleanupReport.Progress? = row["progress"]
        guard let number: UInt64 = row["session"], let app: String = row["app"], let user: UInt32 = row["user"],
            (row["progress"] as String?) == progress?.rawValue,
            let connections: String = row["connections"], let again: Int64 = row["again"]
        else { throw SQLiteError.damaged("an app's row makes no sense") }
        var part = CleanupLedger.Part()
        (part.progress, part.detail) = (progress, row["detail"])
        (part.toldAt, part.begunAt, part.finishedAt) = (row["told_at"], row["begun_at"], row["finished_at"])
        part.connections = Set(connections.split(separator: " ").map(String.init))
        // A receipt from before this start does not count: its process may have asked and ended since the last write.
        part.mark = again == 0 ? 0 : CleanupLedger.newMark()
        return (number, Participant(app: app, user: user), part)
    }

    private static func claims(_ db: SQLiteConnection) throws -> [Participant: CleanupLedger.Claim] {
        let rows = try db.rows("SELECT * FROM claim") { row -> (Participant, CleanupLedger.Claim) in
            guard let app: String = row["app"], let user: UInt32 = row["user"],
                let connection: String = row["connection"], let sessions: String = row["sessions"]
            else { throw SQLiteError.damaged("a claim's row makes no sense") }
            let numbers = try sessions.split(separator: " ").map { text in
                guard let number = UInt64(text) else { throw SQLiteError.damaged("a claim's row makes no sense") }
                return number
            }
            return (
                Participant(app: app, user: user), CleanupLedger.Claim(connection: connection, sessions: Set(numbers))
            )
        }
        return Dictionary(rows) { $1 }
    }

    static func save(_ batch: Batch, to db: SQLiteConnection) throws {
        for (number, session) in batch.sessions { try save(number, session, to: db) }
        for (number, participants) in batch.parts {
            for (participant, part) in participants { try save(number, participant, part, to: db) }
        }
        for (participant, claim) in batch.claims { try save(participant, claim, to: db) }
    }

    private static func save(_ number: UInt64, _ session: CleanupLedger.Session?, to db: SQLiteConnection) throws {
        guard let session else {
            try db.run("DELETE FROM part WHERE session = ?", number)
            return try db.run("DELETE FROM session WHERE number = ?", number)
        }
        // The name is written only once: after an administrator removes the user, an update does not restore the name.
        try db.run(
            """
            INSERT INTO session (number, started_at, ended_at, outcome,
                account_identifier, account_username, account_display_name)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            ON CONFLICT (number) DO UPDATE SET started_at = ?2, ended_at = ?3, outcome = ?4,
                account_identifier = iif(?5 IS NULL, NULL, account_identifier),
                account_username = iif(?5 IS NULL, NULL, account_username),
                account_display_name = iif(?5 IS NULL, NULL, account_display_name)
            """,
            number,
            session.startedAt,
            session.endedAt,
            session.outcome?.rawValue,
            session.account?.identifier,
            session.account?.username,
            session.account?.displayName
        )
    }

    private static func save(
        _ number: UInt64,
        _ participant: Participant,
        _ part: CleanupLedger.Part?,
        to db: SQLiteConnection
    ) throws {
        guard let part else {
            let removal = "DELETE FROM part WHERE session = ? AND app = ? AND user = ?"
            return try db.run(removal, number, participant.app, participant.user)
        }
        try db.run(
            """
            INSERT OR REPLACE INTO part
                (session, app, user, progress, told_at, begun_at, finished_at, detail, connections, again)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            number,
            participant.app,
            participant.user,
            part.progress?.rawValue,
            part.toldAt,
            part.begunAt,
            part.finishedAt,
            part.detail,
            part.connections.sorted().joined(separator: " "),
            part.mark != 0
        )
    }

    private static func save(
        _ participant: Participant,
        _ claim: CleanupLedger.Claim?,
        to db: SQLiteConnection
    ) throws {
        guard let claim else {
            return try db.run("DELETE FROM claim WHERE app = ? AND user = ?", participant.app, participant.user)
        }
        try db.run(
            "INSERT OR REPLACE INTO claim (app, user, connection, sessions) VALUES (?, ?, ?, ?)",
            participant.app,
            participant.user,
            claim.connection,
            claim.sessions.sorted().map(String.init).joined(separator: " ")
        )
    }
}
