import BrokerCore
import DeviceStorage
import Foundation
import SharedDevice

/// The session that a file or a screen belongs to, by its text.
struct Marker: Hashable, Sendable, CustomStringConvertible {
    let user: String
    let epoch: UInt64

    /// Parses `<user>.<epoch>`, which may be followed by another dot and any text.
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
    var name: String { "\(app) of user \(user)" }
}

struct Sight: Sendable {
    let app: Participant
    var files: Set<Marker> = []
    var screen: Marker?

    init(app: Participant, files: Set<Marker> = [], screen: Marker? = nil) {
        self.app = app
        self.files = files
        self.screen = screen
    }

    init(app: Participant, directory: String) {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory + "/data")) ?? []
        let screen = FileManager.default.contents(atPath: directory + "/screen") ?? Data()
        self.init(
            app: app,
            files: Set(names.compactMap { Marker($0) }),
            screen: Marker(String(decoding: screen, as: UTF8.self))
        )
    }

    var traces: [(marker: Marker, place: String)] {
        files.sorted { $0.epoch < $1.epoch }.map { ($0, "files") } + (screen.map { [($0, "the screen")] } ?? [])
    }
}

/// A snapshot of the broker's disk.
struct Truth: Sendable, Hashable {
    struct Session: Sendable, Hashable {
        var isOpen: Bool
        var user: String?
        /// The progress of each app that was given the session's account; `nil` while the session is open.
        var apps: [Participant: CleanupReport.Progress?] = [:]

        var debtors: [Participant] { apps.filter { $0.value?.isSettled == false }.keys.sorted() }
    }

    var epoch: UInt64
    /// The sessions after the reader's base, by the epoch of their sign-in.
    var sessions: [UInt64: Session] = [:]

    var open: (epoch: UInt64, session: Session)? {
        sessions.first { $0.value.isOpen }.map { (epoch: $0.key, session: $0.value) }
    }

    var isQuiet: Bool { sessions.values.allSatisfy { !$0.isOpen && $0.debtors.isEmpty } }
}

/// Reads the broker's database while the broker uses it.
struct TruthReader {
    private let connection: SQLiteConnection
    private let path: String

    /// The epoch of the last sign-out that was noted next to the database, which cannot be written while its disk is
    /// full. The note precedes any announcement to apps.
    var notedSignOut: UInt64? {
        let note = FileManager.default.contents(atPath: path + ".signed-out") ?? Data()
        let words = String(decoding: note.prefix { $0 != 0 }, as: UTF8.self).split(separator: " ")
        return words.count > 1 ? UInt64(words[1]) : nil
    }

    /// - Parameter path: the database, which the broker has created.
    init(path: String) throws {
        self.path = path
        connection = try SQLiteConnection(path: path, .read, busyTimeout: .seconds(10))
    }

    /// The content that belongs to sessions after `base`.
    func read(after base: UInt64) throws -> Truth {
        try connection.read { db in
            var truth = Truth(epoch: try db.value("SELECT epoch FROM device") ?? 0)
            let sessions =
                "SELECT number AS epoch, ended_at IS NULL AS open, account_username AS user FROM session WHERE number > ?"
            _ = try db.rows(sessions, base) { row in
                guard let epoch: UInt64 = row["epoch"], let isOpen: Bool = row["open"] else { return }
                truth.sessions[epoch] = Truth.Session(isOpen: isOpen, user: row["user"])
            }
            let parts = "SELECT session, app, user, progress FROM part WHERE session > ?"
            _ = try db.rows(parts, base) { row in
                let progress: String? = row["progress"]
                guard let session: UInt64 = row["session"], let app: String = row["app"],
                    let user: UInt32 = row["user"]
                else { return }
                let participant = Participant(app: app, user: user)
                truth.sessions[session]?.apps[participant] = .some(progress.flatMap(CleanupReport.Progress.init))
            }
            return truth
        }
    }
}
