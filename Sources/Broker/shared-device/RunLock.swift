import Dispatch
import FoundationEssentials
import Glibc
import SharedDevice

/// Keeps a second adapter of the same app away, and hands its wish to start the program to the first.
final class RunLock {
    enum Taken {
        case taken(RunLock)
        /// Another process has it, and was asked to start the program; `nil` where it is not known which.
        case other(pid_t?)
    }

    private let descriptor: CInt

    private init(_ descriptor: CInt) { self.descriptor = descriptor }

    /// - Parameter directory: that of the app's record.
    static func take(in directory: String) throws(CommandFailure) -> Taken {
        try? FileManager.default.createDirectory(
            atPath: directory,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
        let path = "\(directory)/run.lock"
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else {
            throw CommandFailure(
                status: EX_CANTCREAT,
                description: "cannot open \(path): \(String(cString: strerror(errno))); give the directory to this user"
            )
        }
        // Before the lock: the signal would end a process that has the lock and does not handle it yet.
        signal(SIGUSR1, SIG_IGN)
        var lock = flock(l_type: Int16(F_WRLCK), l_whence: Int16(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0)
        guard fcntl(descriptor, F_SETLK, &lock) != 0 else { return .taken(RunLock(descriptor)) }
        let code = errno
        defer { close(descriptor) }
        guard code == EAGAIN || code == EACCES else {
            let reason = String(cString: strerror(code))
            throw CommandFailure(status: EX_OSERR, description: "cannot lock \(path): \(reason)")
        }
        // The kernel names no process of another namespace.
        guard fcntl(descriptor, F_GETLK, &lock) == 0, lock.l_pid > 0, kill(lock.l_pid, SIGUSR1) == 0 else {
            return .other(nil)
        }
        return .other(lock.l_pid)
    }

    deinit { close(descriptor) }

    /// Calls `body` when another process wants the program to start.
    func onRequest(_ body: @escaping @Sendable () -> Void) -> any DispatchSourceSignal {
        let source = DispatchSource.makeSignalSource(signal: SIGUSR1, queue: .global())
        source.setEventHandler(handler: body)
        source.activate()
        return source
    }
}

/// The directories that `run` has been given for an app: what is in them is the app's. Kept beside the app's record, which no deletion reaches.
struct RunDirectories {
    private let file: AtomicFile

    /// - Parameter state: the directory of the app's record.
    init(state: String) { file = AtomicFile(path: "\(state)/run-directories.json") }

    /// A file that cannot be read names none: then the person is asked, and nothing is deleted.
    private var known: [String] {
        guard let content = FileManager.default.contents(atPath: file.path) else { return [] }
        return (try? JSONDecoder().decode([String].self, from: content)) ?? []
    }

    /// - Parameter path: without symbolic links.
    func contains(_ path: String) -> Bool { known.contains(path) }

    /// From here on the directory is the app's. On return that is on the disk.
    func add(_ path: String) throws(CommandFailure) {
        let known = known
        guard !known.contains(path) else { return }
        do {
            try file.write(JSONEncoder().encode(known + [path]))
        } catch {
            throw CommandFailure(
                status: EX_CANTCREAT,
                description:
                    "cannot note in \(file.path) that \(path) is the app's: \(error); give the directory to this user"
            )
        }
    }
}
