import Basics
import CommandParts
import Dispatch
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice

/// Prevents a second adapter of the same app, and forwards its request to start the program to the first.
final class RunLock {
    enum Taken {
        case taken(RunLock)
        /// Another process holds the lock and was asked to start the program; `nil` if its process id is unknown.
        case other(pid_t?)
    }

    private let descriptor: CInt

    private init(_ descriptor: CInt) { self.descriptor = descriptor }

    /// - Parameter directory: The directory of the app's record.
    static func take(in directory: String) throws(CommandFailure) -> Taken {
        try? makePrivateDirectory(directory)
        let path = "\(directory)/run.lock"
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else {
            throw CommandFailure(
                EX_CANTCREAT,
                "cannot open \(path): \(String(cString: strerror(errno))); give the directory to this user"
            )
        }
        // Before the lock is taken: the signal would end a process that holds the lock and does not handle it yet.
        signal(SIGUSR1, SIG_IGN)
        var lock = flock(l_type: Int16(F_WRLCK), l_whence: Int16(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0)
        guard fcntl(descriptor, F_SETLK, &lock) != 0 else { return .taken(RunLock(descriptor)) }
        let code = errno
        defer { close(descriptor) }
        guard code == EAGAIN || code == EACCES else {
            let reason = String(cString: strerror(code))
            throw CommandFailure(EX_OSERR, "cannot lock \(path): \(reason)")
        }
        // The kernel does not name a process of another namespace.
        guard fcntl(descriptor, F_GETLK, &lock) == 0, lock.l_pid > 0, kill(lock.l_pid, SIGUSR1) == 0 else {
            return .other(nil)
        }
        return .other(lock.l_pid)
    }

    deinit { close(descriptor) }

    /// Calls `body` when another process asks for a start of the program.
    func onRequest(_ body: @escaping @Sendable () -> Void) -> any DispatchSourceSignal {
        let source = DispatchSource.makeSignalSource(signal: SIGUSR1, queue: .global())
        source.setEventHandler(handler: body)
        source.activate()
        return source
    }
}

/// The directories whose content belongs to the app. They are stored next to its record, where no deletion reaches.
struct RunDirectories {
    private let file: AtomicFile

    /// - Parameter state: The directory of the app's record.
    init(state: String) { file = AtomicFile(path: "\(state)/run-directories.json") }

    /// The directories, without links. Empty if the file cannot be read: then `run` refuses a directory with content,
    /// and deletes nothing.
    var known: [String] {
        guard let content = FileManager.default.contents(atPath: file.path) else { return [] }
        return (try? JSONDecoder().decode([String].self, from: content)) ?? []
    }

    /// Records that the directory, a path without links, belongs to the app. On return the record is on the disk.
    func add(_ path: String) throws(CommandFailure) {
        let known = known
        guard !known.contains(path) else { return }
        do {
            try file.write(JSONEncoder().encode(known + [path]))
        } catch {
            throw CommandFailure(
                EX_CANTCREAT,
                "cannot note in \(file.path) that \(path) is the app's: \(error); give the directory to this user"
            )
        }
    }
}
