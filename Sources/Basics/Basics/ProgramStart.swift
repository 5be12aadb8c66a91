import CLinux
import Glibc

/// Starts programs with only the given descriptors, no blocked signal, and default handling of every signal.
public enum ProgramStart {
    public enum Descriptor: Sendable {
        /// `/dev/null`.
        case nothing
        /// This process's descriptor with the same number.
        case inherited
        case descriptor(CInt)
    }

    /// The reason why a program did not start, as an error number.
    public struct Failure: Error, CustomStringConvertible {
        public let code: CInt
        public var description: String { String(cString: strerror(code)) }
    }

    /// Starts a program. A name without a slash is looked up in `PATH`; a process with more rights than its user looks
    /// in the system's directories instead.
    ///
    /// - Parameters:
    ///   - arguments: the arguments after the program's name.
    ///   - environment: all of its variables.
    ///   - descriptors: its descriptors from 0 on; all others are closed.
    ///   - leadsGroup: whether it gets a new process group. The group can be ended together with its children, and
    ///     signals of the terminal do not reach it.
    /// - Returns: the process ID, for ``collect(_:)``.
    public static func spawn(
        _ program: String,
        _ arguments: [String],
        environment: [String: String],
        descriptors: [Descriptor],
        leadsGroup: Bool
    ) throws(Failure) -> Int32 {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (number, source) in descriptors.enumerated() {
            switch source {
            case .nothing: posix_spawn_file_actions_addopen(&actions, CInt(number), "/dev/null", O_RDWR, 0)
            case .inherited: break
            case .descriptor(let source): posix_spawn_file_actions_adddup2(&actions, source, CInt(number))
            }
        }
        // Other libraries open descriptors that children inherit, for instance Foundation's pipes.
        _ = CLinux_closeFrom(&actions, CInt(descriptors.count))
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var all = sigset_t()
        sigfillset(&all)
        posix_spawnattr_setsigdefault(&attributes, &all)
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        let group = leadsGroup ? POSIX_SPAWN_SETPGROUP : 0
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | group))
        let file = place(of: program)
        var argv = ([program] + arguments).map { strdup($0) } + [nil]
        var envp = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in argv + envp { free(text) } }
        var identifier: Int32 = 0
        var code = posix_spawnp(&identifier, file, &actions, &attributes, &argv, &envp)
        // Right after its installation, a program may still be open for writing in a child of the installer.
        for _ in 0..<20 where code == ETXTBSY {
            usleep(10_000)
            code = posix_spawnp(&identifier, file, &actions, &attributes, &argv, &envp)
        }
        guard code == 0 else { throw Failure(code: code) }
        return identifier
    }

    private static func place(of program: String) -> String {
        guard ProcessEnvironment.isIgnored, !program.contains("/") else { return program }
        return ["/usr/local/bin/", "/usr/bin/"].map { $0 + program }.first { access($0, X_OK) == 0 } ?? "/bin/"
            + program
    }

    /// Runs a function that starts programs on this thread and does not reap them. Each is reaped when it ends, if the
    /// kernel lists a thread's children (`CONFIG_PROC_CHILDREN`).
    public static func collectingChildren<Result>(of body: () -> Result) -> Result {
        let children = { Set((ProcFile.lines("/proc/thread-self/children") ?? []).joined()) }
        let before = children()
        let result = body()
        for child in children().subtracting(before) {
            _ = QuietThread.start("child-wait") { _ = collect(Int32(truncatingIfNeeded: child)) }
        }
        return result
    }

    /// Waits on this thread for the end of a child, without reaping it: its ID is not reused before ``collect(_:)``.
    public static func waitForEnd(of identifier: Int32) {
        var information = siginfo_t()
        while waitid(P_PID, id_t(identifier), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
    }

    /// Waits on this thread for the end of a child, and reaps it.
    ///
    /// - Returns: its exit status, or 128 plus the signal; `nil` if other code in this process has reaped it.
    public static func collect(_ identifier: Int32) -> Int32? {
        var status: Int32 = 0
        while waitpid(identifier, &status, 0) < 0 {
            guard errno == EINTR else { return nil }
        }
        let signal = status & 0x7F
        return signal == 0 ? (status >> 8) & 0xFF : 128 + signal
    }
}

extension ProgramStart {
    /// Whether the file is a script. The process of a script is its interpreter.
    public static func isScript(_ path: String) -> Bool {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var beginning: [UInt8] = [0, 0]
        return read(descriptor, &beginning, 2) == 2 && beginning == Array("#!".utf8)
    }
}

/// A process by its descriptor (pidfd), which keeps meaning this process after its ID is reused.
public final class ProcessDescriptor: Sendable {
    public let identifier: Int32
    /// Readable once the process has ended.
    public let descriptor: CInt

    /// Opens the process with this ID; `nil`, with `errno` set, if there is none (`ESRCH`) or no descriptor is free.
    public init?(_ identifier: Int32) {
        self.identifier = identifier
        descriptor = CLinux_openProcess(identifier)
        guard descriptor >= 0 else { return nil }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Whether the process has ended, reaped or not.
    public var hasEnded: Bool { hasEnded(by: .now) }

    /// Sends a signal. No effect if the process has ended.
    public func send(_ signal: Int32) { _ = CLinux_signalProcess(descriptor, signal) }

    /// Waits on this thread for the end of the process.
    ///
    /// - Returns: whether it ended before the deadline.
    public func hasEnded(by deadline: ContinuousClock.Instant) -> Bool {
        var look = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while true {
            let count = poll(&look, 1, milliseconds(until: deadline))
            if count > 0 { return true }
            if count == 0, ContinuousClock.now >= deadline { return false }
        }
    }
}
