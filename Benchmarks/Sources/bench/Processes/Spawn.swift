import Glibc

/// A program with its arguments and its whole environment.
struct Command {
    var program: String
    var arguments: [String] = []
    var environment: [String: String] = [:]

    /// The same command, killed by the kernel when this process ends in any way: nothing is left behind by a driver that
    /// was itself killed. As it is where the system has no `setpriv`.
    var dyingWithParent: Command {
        guard let setpriv = Self.setpriv else { return self }
        var command = self
        command.program = setpriv
        command.arguments = ["--pdeathsig", "KILL", "--", program] + arguments
        return command
    }

    private static let setpriv = bench.program("setpriv")
}

/// Where a spawned program's standard streams go.
struct Streams {
    /// A descriptor of this process, or `nil` for /dev/null.
    var input: Int32?
    /// A descriptor of this process, or `nil` for /dev/null.
    var output: Int32?
    /// As `output`; `inherited` by default, so that a peer's complaint is seen.
    var error: Int32? = STDERR_FILENO
}

/// Starts a program. Throws `.systemCall` where that fails.
func spawn(_ command: Command, _ streams: Streams) throws(BenchmarkError) -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    if let input = streams.input {
        posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO)
    } else {
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
    }
    for (descriptor, source) in [(STDOUT_FILENO, streams.output), (STDERR_FILENO, streams.error)] {
        if let source {
            posix_spawn_file_actions_adddup2(&actions, source, descriptor)
        } else {
            posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_WRONLY, 0)
        }
    }

    // Handlers do not survive an exec, but an ignored signal would.
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var defaults = sigset_t()
    sigemptyset(&defaults)
    for number in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] { sigaddset(&defaults, number) }
    posix_spawnattr_setsigdefault(&attributes, &defaults)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF))

    let arguments = cStrings([command.program] + command.arguments)
    let environment = cStrings(command.environment.map { "\($0)=\($1)" }.sorted())
    defer { for pointer in arguments + environment { free(pointer) } }
    var process: pid_t = 0
    let failure = posix_spawn(&process, command.program, &actions, &attributes, arguments, environment)
    guard failure == 0 else { throw systemError("starting \(command.program)", failure) }
    return process
}

/// Waits for a process to end and returns its wait status.
@discardableResult
func reap(_ process: pid_t) -> Int32 {
    var status: Int32 = 0
    while waitpid(process, &status, 0) < 0, errno == EINTR {}
    return status
}

/// A NULL-terminated array of C strings, which the caller frees.
private func cStrings(_ strings: [String]) -> [UnsafeMutablePointer<CChar>?] {
    strings.map { strdup($0) } + [nil]
}
