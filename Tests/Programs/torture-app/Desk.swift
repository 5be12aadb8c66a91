import Basics
import DBus
import FoundationEssentials
import Glibc
import Synchronization

/// The app's user data: files, a screen, and a journal of its actions. All of it is in the app's directory, and is
/// written when a call returns.
///
/// The name of each file contains its session, `<user>.<epoch>.<number>`. The screen is a file with `<user>.<epoch>` or
/// nothing.
final class Desk: Sendable {
    struct Session: Sendable {
        let user: String
        let epoch: UInt64
    }

    /// The files of a session in parts, each with a separate cleanup step.
    enum Part: String, CaseIterable {
        case drafts, orders

        var files: Range<Int> { self == .drafts ? 0..<2 : 2..<5 }
    }

    private let directory: String
    private let data: String
    private let journal: CInt
    /// The session on the screen, for which work is done.
    private let current = Locked<Session?>(nil)

    init(directory: String) throws {
        self.directory = directory
        data = directory + "/data"
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
        journal = open(directory + "/journal", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard journal >= 0 else { exit(EX_CANTCREAT) }
    }

    func note(_ line: String) { _ = writeAll(line + "\n", to: journal) }

    // MARK: The screen

    func show(_ session: Session) {
        current.withLock { current in
            note("show \(session.epoch) \(session.user)")
            draw("\(session.user).\(session.epoch)")
            current = session
        }
        work()
    }

    func hide() {
        current.withLock { current in
            current = nil
            draw("")
        }
    }

    func stopWork() { current.withLock { $0 = nil } }

    func clearScreen() { draw("") }

    /// Writes a new file and renames it over the old one, so that a screen never mixes two users.
    private func draw(_ text: String) {
        let path = directory + "/screen"
        let file = open(path + ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { return note("the screen cannot be drawn: \(String(cString: strerror(errno)))") }
        _ = writeAll(text, to: file)
        close(file)
        rename(path + ".new", path)
    }

    // MARK: Data

    /// Writes to all files of the session on the screen, if there is one. Does not return before an earlier change of
    /// the session.
    func work() {
        current.withLock { current in
            guard let session = current else { return }
            for number in Part.allCases.flatMap(\.files) {
                let path = "\(data)/\(session.user).\(session.epoch).\(number)"
                let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
                guard file >= 0 else { continue }
                _ = writeAll(".", to: file)
                close(file)
            }
        }
    }

    /// Deletes a part of the user's files one by one, with short pauses in which the app may be killed.
    func delete(_ part: Part, of user: String) async {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: data)) ?? []
        for name in names.sorted() {
            let number = name.split(separator: ".").last.flatMap { Int($0) }
            guard name.hasPrefix(user + "."), let number, part.files.contains(number) else { continue }
            unlink("\(data)/\(name)")
            note("deleted \(name)")
            try? await Task.sleep(for: .milliseconds(2))
        }
    }
}
