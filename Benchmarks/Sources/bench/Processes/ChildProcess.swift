import Glibc

/// A program with its arguments and its whole environment.
struct Command {
    var program: String
    var arguments: [String] = []
    var environment: [String: String] = [:]

    /// The same command, killed by the kernel when this process ends, even if this process is killed itself. Unchanged
    /// if the system has no `setpriv`.
    var dyingWithParent: Command {
        guard let setpriv = Self.setpriv else { return self }
        return launched(by: [setpriv, "--pdeathsig", "KILL", "--"])
    }

    /// The same command run by another program. `launcher` is that program's path and arguments; empty for none.
    func launched(by launcher: [String]) -> Command {
        guard let program = launcher.first else { return self }
        var command = self
        command.program = program
        command.arguments = launcher.dropFirst() + [self.program] + arguments
        return command
    }

    private static let setpriv = bench.program("setpriv")
}

struct Streams {
    /// A descriptor of this process, or `nil` for /dev/null.
    var input: Int32?
    /// A descriptor of this process, or `nil` for /dev/null.
    var output: Int32?
    /// As `output`. By default this process's own, so that errors of a peer are visible.
    var error: Int32? = STDERR_FILENO
}

/// Starts a program. Throws `.systemCall` if that fails.
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

    // These signals get their default action: exec resets a handled signal, but keeps an ignored one.
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

/// A running program whose output is read line by line. The object's deallocation kills the program.
final class ChildProcess {
    let name: String
    let identifier: pid_t

    private let output: Int32
    private var unread: [UInt8] = []
    private var isRunning = true

    /// Starts the program with its standard output connected to this object. Throws `.systemCall`.
    init(_ command: Command, errors: Int32? = STDERR_FILENO) throws(BenchmarkError) {
        name = ([command.program.split(separator: "/").last.map(String.init) ?? ""] + command.arguments)
            .joined(separator: " ")
        let ends = try makePipe()
        defer { close(ends.write) }
        do {
            identifier = try spawn(command.dyingWithParent, Streams(output: ends.write, error: errors))
        } catch {
            close(ends.read)
            throw error
        }
        output = ends.read
    }

    deinit {
        stop()
        close(output)
    }

    /// The next line of output, without its newline. Throws `.peer` if the output ends or no line comes before
    /// `deadline` (nanoseconds of CLOCK_MONOTONIC), `.systemCall`, and `.interrupted`.
    func line(before deadline: Int) throws(BenchmarkError) -> String {
        while true {
            if let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
                defer { unread.removeSubrange(...end) }
                return String(decoding: unread[..<end], as: UTF8.self)
            }
            guard try readMore(before: deadline) else {
                throw BenchmarkError(.peer, "\"\(name)\" ended without a result")
            }
        }
    }

    /// The rest of the output, to its end. Throws as `line(before:)` does.
    func remainder(before deadline: Int) throws(BenchmarkError) -> String {
        while try readMore(before: deadline) {}
        defer { unread = [] }
        return String(decoding: unread, as: UTF8.self)
    }

    /// Kills the program and waits until it has ended.
    func stop() {
        guard isRunning else { return }
        isRunning = false
        kill(identifier, SIGKILL)
        reap(identifier)
    }

    /// Waits for output and appends it to `unread`. Returns false at the end of the output.
    private func readMore(before deadline: Int) throws(BenchmarkError) -> Bool {
        var chunk = [UInt8](repeating: 0, count: 16_384)
        while true {
            try waitForOutput(before: deadline)
            let count = read(output, &chunk, chunk.count)
            if count >= 0 {
                unread += chunk[..<count]
                return count > 0
            }
            guard errno == EINTR else { throw systemError("reading from \"\(name)\"", errno) }
        }
    }

    private func waitForOutput(before deadline: Int) throws(BenchmarkError) {
        while true {
            try Interruption.check()
            let left = deadline - monotonicNanoseconds()
            guard left > 0 else { throw BenchmarkError(.peer, "\"\(name)\" did not respond in time") }
            var descriptor = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            let ready = poll(&descriptor, 1, Int32(clamping: left / 1_000_000 + 1))
            if ready > 0 { return }
            guard ready == 0 || errno == EINTR else { throw systemError("poll", errno) }
        }
    }
}
