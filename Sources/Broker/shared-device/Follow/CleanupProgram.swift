import CLinux
import DBusTransport
import Dispatch
import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

/// The command that deletes a person's data: a line of the shell, run once for each person. It has a process group of its own, and a limit of
/// time; what it leaves running in that group ends with it.
struct CleanupProgram: Sendable {
    /// Why the data may still be there.
    struct Failure: Error, CustomStringConvertible {
        let description: String

        init(_ description: String) { self.description = description }

        /// A failure with the reason in `errno`.
        init(attempting what: String, _ code: CInt = errno) {
            description = "could not \(what): \(String(cString: strerror(code)))"
        }
    }

    /// How long it may take to end after SIGTERM.
    private static let grace = 2.0

    let command: String
    /// How long one run may take.
    let timeout: Duration
    /// A file that each run keeps locked: a run that outlives a killed `shared-device follow` must not delete what was stored since.
    let lock: String

    /// Deletes the data of these accounts, one after the other, without holding a thread of Swift's.
    ///
    /// - Returns: the last line that the command wrote for the last of them.
    /// - Throws: ``Failure`` for the first that it fails for.
    func run(for accounts: [Account]) async throws -> String? {
        try await withCheckedThrowingContinuation { continuation in
            DispatchQueue.global().async {
                continuation.resume(
                    with: Result {
                        var words: String?
                        for account in accounts { words = try runHere(for: account) }
                        return words
                    }
                )
            }
        }
    }

    private func runHere(for account: Account) throws(Failure) -> String? {
        guard let folder = account.directoryName else {
            throw Failure("the account's identifier is too long for the name of a folder")
        }
        let lock = try takeLock()
        // Unlocked, not only closed: what the command has started may keep the descriptor.
        defer {
            flock(lock, LOCK_UN)
            close(lock)
        }
        var ends: [CInt] = [-1, -1]
        guard CLinux_pipe(&ends) == 0 else { throw Failure(attempting: "make a pipe") }
        let words = LastLine(of: ends[0])
        let started = Result { () throws(Failure) in try start(account, folder, output: ends[1], lock: lock) }
        close(ends[1])
        let status = try wait(for: started.get())
        switch (status & 0x7f, (status >> 8) & 0xff) {
        case (0, 0): return words.text()
        case (0, let code): throw Failure("the cleanup command ended with status \(code)")
        case (let signal, _): throw Failure("the cleanup command was ended by signal \(signal)")
        }
    }

    private func start(_ account: Account, _ folder: String, output: CInt, lock: CInt) throws(Failure) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, output, 1)
        posix_spawn_file_actions_adddup2(&actions, lock, 3)
        _ = CLinux_closeFrom(&actions, 4)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var defaults = sigset_t()
        sigemptyset(&defaults)
        for signal in [SIGPIPE, SIGINT, SIGTERM, SIGHUP] { sigaddset(&defaults, signal) }
        posix_spawnattr_setsigdefault(&attributes, &defaults)
        var blocked = sigset_t()
        sigemptyset(&blocked)
        posix_spawnattr_setsigmask(&attributes, &blocked)
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(
            &attributes,
            Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP)
        )
        let own = [
            "SHARED_DEVICE_ACCOUNT": account.identifier, "SHARED_DEVICE_USERNAME": account.username,
            "SHARED_DEVICE_FOLDER": folder,
        ]
        let variables = ProcessInfo.processInfo.environment.merging(own) { $1 }
        let words: [String] = ["sh", "-c", command]
        var argv = words.map { strdup($0) } + [nil]
        var envp = variables.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in argv + envp { free(text) } }
        var process: pid_t = 0
        let failure = posix_spawn(&process, "/bin/sh", &actions, &attributes, &argv, &envp)
        guard failure == 0 else { throw Failure(attempting: "start the cleanup command", failure) }
        return process
    }

    /// Waits for the end, ends what takes too long, and collects the process.
    private func wait(for process: pid_t) throws(Failure) -> CInt {
        let ended = DispatchSemaphore(value: 0)
        let watch = QuietThread.start("cleanup-end") {
            // Without collecting it, so that the group's number stays its own.
            var information = siginfo_t()
            while waitid(P_PID, id_t(process), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
            ended.signal()
        }
        guard watch != nil else {
            let reason = Failure(attempting: "watch the cleanup command")
            kill(-process, SIGKILL)
            while waitpid(process, nil, 0) < 0, errno == EINTR {}
            throw reason
        }
        let isLate = ended.wait(timeout: .now() + timeout / .seconds(1)) == .timedOut
        if isLate {
            kill(-process, SIGTERM)
            if ended.wait(timeout: .now() + Self.grace) == .timedOut {
                kill(-process, SIGKILL)
                ended.wait()
            }
        }
        // What it has left behind would delete, or store, after the receipt.
        kill(-process, SIGKILL)
        var status: CInt = 0
        while waitpid(process, &status, 0) < 0, errno == EINTR {}
        guard !isLate else { throw Failure("the cleanup command did not end within \(timeout) and was stopped") }
        return status
    }

    /// Waits until no earlier run goes on, for as long as one may take.
    private func takeLock() throws(Failure) -> CInt {
        // The record's directory is there: the record names the session that is being cleaned up.
        let descriptor = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw Failure(attempting: "open \(lock)") }
        let deadline = ContinuousClock.now + timeout
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            guard code == EINTR || code == EWOULDBLOCK, ContinuousClock.now < deadline else {
                close(descriptor)
                guard code == EWOULDBLOCK else { throw Failure(attempting: "lock \(lock)", code) }
                throw Failure("an earlier run of the cleanup command still goes on; end it (fuser \(lock))")
            }
            usleep(50_000)
        }
        return descriptor
    }
}

/// Reads what a command writes, on a thread of its own, and keeps the beginning of its last line, however much there is.
private final class LastLine: Sendable {
    private struct State {
        static let longest = 200
        /// The last line that is not empty.
        var line: [UInt8] = []
        /// The line that has not ended yet.
        var next: [UInt8] = []

        mutating func take(_ bytes: ArraySlice<UInt8>) {
            for piece in bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
                if piece.offset > 0 {
                    if !next.isEmpty { line = next }
                    next = []
                }
                next += piece.element.prefix(Self.longest - next.count)
            }
        }
    }

    private let state = Locked(State())
    private let complete = DispatchSemaphore(value: 0)

    /// Reads the descriptor, and closes it at the end.
    init(of descriptor: CInt) {
        let reader = QuietThread.start("cleanup-words") { [self] in
            var buffer = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = read(descriptor, &buffer, buffer.count)
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { break }
                let bytes = buffer[..<count]
                state.withLock { $0.take(bytes) }
            }
            close(descriptor)
            complete.signal()
        }
        guard reader == nil else { return }
        // Then the command's words are lost, and a command that writes them fails.
        close(descriptor)
        complete.signal()
    }

    /// The last line, when the other side has closed, or a second later; `nil` if there is none.
    func text() -> String? {
        _ = complete.wait(timeout: .now() + 1)
        complete.signal()
        let line = state.withLock { $0.next.isEmpty ? $0.line : $0.next }
        return line.isEmpty ? nil : String(decoding: line, as: UTF8.self)
    }
}
