import DBusTransport
import FoundationEssentials
import Glibc
import Synchronization

/// What the app has of its users: files of data, a screen, and a journal of what it did. All of it is in its directory, and is there when
/// a call returns.
///
/// Each file of data bears its session in its name, `<user>.<epoch>.<number>`; the screen is a file that says `<user>.<epoch>` or nothing.
final class Desk: Sendable {
    struct Session: Sendable {
        let user: String
        let epoch: UInt64
    }

    /// The files of data that a session has, each part of them with a cleanup step of its own.
    enum Part: String, CaseIterable {
        case drafts, orders

        var files: Range<Int> {
            switch self {
            case .drafts: 0..<2
            case .orders: 2..<5
            }
        }
    }

    private let directory: String
    private let data: String
    private let journal: CInt
    /// The session that is on the screen and that work is done for.
    private let current = Locked<Session?>(nil)

    init(directory: String) throws {
        self.directory = directory
        data = directory + "/data"
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
        journal = open(directory + "/journal", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard journal >= 0 else { throw Failure(what: "open the journal", errno) }
    }

    struct Failure: Error {
        let what: String
        let reason: String

        init(what: String, _ code: CInt) {
            self.what = what
            reason = String(cString: strerror(code))
        }
    }

    func note(_ line: String) {
        let line = line + "\n"
        _ = write(journal, line, line.utf8.count)
    }

    // MARK: The screen

    func show(_ session: Session) {
        current.withLock { current in
            note("show \(session.epoch) \(session.user)")
            draw("\(session.user).\(session.epoch)")
            current = session
        }
        work()
    }

    /// Ends the work, and clears the screen.
    func hide() {
        current.withLock { current in
            current = nil
            draw("")
        }
    }

    /// Ends the work, and leaves the screen.
    func stopWork() { current.withLock { $0 = nil } }

    /// Clears the screen, and goes on working.
    func clearScreen() { draw("") }

    /// Beside, and then in its place, as no screen is ever half of one user's and half of another's.
    private func draw(_ text: String) {
        let path = directory + "/screen"
        let file = open(path + ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { return note("the screen cannot be drawn: \(String(cString: strerror(errno)))") }
        _ = write(file, text, text.utf8.count)
        close(file)
        rename(path + ".new", path)
    }

    // MARK: Data

    /// Writes into all files of the session on the screen; does nothing where there is none. It does not return before a change of the
    /// session that came first.
    func work() {
        current.withLock { current in
            guard let session = current else { return }
            for number in Part.allCases.flatMap(\.files) {
                let path = "\(data)/\(session.user).\(session.epoch).\(number)"
                let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
                guard file >= 0 else { continue }
                _ = write(file, ".", 1)
                close(file)
            }
        }
    }

    /// Deletes a part of the user's files, one after the other, with a little time between them in which the app may be killed.
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
