import Foundation
import GRDB
import SharedDevice
import SharedDeviceBroker

/// The session that a file or a screen belongs to, by what stands on it.
struct Marker: Hashable, Sendable, CustomStringConvertible {
    let user: String
    let epoch: UInt64

    /// `<user>.<epoch>`, and whatever follows after another dot.
    init?(_ text: some StringProtocol) {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count >= 2, let epoch = UInt64(parts[1]) else { return nil }
        self.init(user: String(parts[0]), epoch: epoch)
    }

    init(user: String, epoch: UInt64) {
        self.user = user
        self.epoch = epoch
    }

    var description: String { "\(user)'s session \(epoch)" }
}

extension Participant {
    /// Which app it is and who runs it, for people.
    var name: String { "\(app) of user \(user)" }
}

/// What somebody who looks at an app finds.
struct Sight: Sendable {
    /// The app, and the user who runs it.
    let app: Participant
    /// Whose data is in its directory.
    var files: Set<Marker> = []
    /// Whose data is on its screen.
    var screen: Marker?

    init(app: Participant, files: Set<Marker> = [], screen: Marker? = nil) {
        self.app = app
        self.files = files
        self.screen = screen
    }

    /// Looks at the app in `directory`.
    init(app: Participant, directory: String) {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory + "/data")) ?? []
        let screen = FileManager.default.contents(atPath: directory + "/screen") ?? Data()
        self.init(
            app: app,
            files: Set(names.compactMap { Marker($0) }),
            screen: Marker(String(decoding: screen, as: UTF8.self))
        )
    }

    /// All that is there of anybody.
    var traces: [(marker: Marker, place: String)] {
        files.sorted { $0.epoch < $1.epoch }.map { ($0, "files") } + (screen.map { [($0, "the screen")] } ?? [])
    }
}

/// What the broker has on its disk, in one instant.
struct Truth: Sendable, Hashable {
    struct Session: Sendable, Hashable {
        var isOpen: Bool
        var user: String?
        /// How far each app is that was given the session's account; `nil` while the session is open.
        var apps: [Participant: CleanupReport.Progress?] = [:]

        /// The apps that still owe the cleanup.
        var debtors: [Participant] { apps.filter { $0.value?.isSettled == false }.keys.sorted() }
    }

    /// The device's change counter.
    var epoch: UInt64
    /// The sessions after the reader's base, by the epoch of their sign-in.
    var sessions: [UInt64: Session] = [:]

    /// The session that is open.
    var open: (epoch: UInt64, session: Session)? {
        sessions.first { $0.value.isOpen }.map { (epoch: $0.key, session: $0.value) }
    }

    /// Whether nobody is signed in, and nobody owes anything.
    var isQuiet: Bool { sessions.values.allSatisfy { !$0.isOpen && $0.debtors.isEmpty } }
}

/// Reads the broker's database beside it.
struct TruthReader {
    private let queue: DatabaseQueue

    /// - Parameter path: the database; the broker has made it.
    init(path: String) throws {
        var configuration = Configuration()
        configuration.readonly = true
        configuration.busyMode = .timeout(10)
        queue = try DatabaseQueue(path: path, configuration: configuration)
    }

    /// What there is of the sessions that began after `base`.
    func read(after base: UInt64) throws -> Truth {
        let base = Int64(clamping: base)
        return try queue.read { db in
            var truth = Truth(epoch: try UInt64.fetchOne(db, sql: "SELECT epoch FROM device") ?? 0)
            let sessions =
                "SELECT number AS epoch, ended_at IS NULL AS open, account_username AS user FROM session WHERE number > ?"
            for row in try Row.fetchAll(db, sql: sessions, arguments: [base]) {
                truth.sessions[row["epoch"]] = Truth.Session(isOpen: row["open"], user: row["user"])
            }
            let parts = "SELECT session, app, user, progress FROM part WHERE session > ?"
            for row in try Row.fetchAll(db, sql: parts, arguments: [base]) {
                let progress: String? = row["progress"]
                let app = Participant(app: row["app"], user: row["user"])
                truth.sessions[row["session"]]?.apps[app] = .some(progress.flatMap(CleanupReport.Progress.init))
            }
            return truth
        }
    }

    /// How often each thing happened, by the broker's log.
    func events() throws -> [String: Int] {
        try queue.read { db in
            let rows = try Row.fetchAll(db, sql: "SELECT event, count(*) AS count FROM audit GROUP BY event")
            return Dictionary(uniqueKeysWithValues: rows.map { ($0["event"], $0["count"]) })
        }
    }
}
