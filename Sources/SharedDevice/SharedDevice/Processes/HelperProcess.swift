import CLinux
import DBusTransport
import FoundationEssentials
import Glibc
import Synchronization

/// A program that this process has started, with none of its descriptors. Until its end is collected, no other process has its id.
package final class HelperProcess: Sendable {
    /// A program that does not start, or that fails.
    package struct Failure: Error, CustomStringConvertible {
        package let description: String

        package init(_ description: String) { self.description = description }
    }

    /// What becomes of what the program writes.
    package enum Output: Sendable {
        case discarded
        /// It goes where this process's goes.
        case inherited
        /// Standard output and standard error go to this descriptor.
        case descriptor(Int32)
    }

    /// The process id.
    package let identifier: Int32
    private let isCollected = Locked(false)
    private static let started = Locked<Set<Int32>>([])

    /// The processes that this one has started and not yet collected; other children of it were adopted.
    package static var own: Set<Int32> { started.withLock { $0 } }

    /// Starts the program, which is looked up in `PATH`.
    ///
    /// - Parameters:
    ///   - environment: all of its variables; `nil` means those of this process.
    ///   - leadsGroup: whether it is in a process group of its own, so that it can be ended with its children, and the terminal's signals do not
    ///     reach it.
    /// - Throws: ``Failure``.
    package init(
        _ program: String,
        _ arguments: [String],
        environment: [String: String]? = nil,
        output: Output = .discarded,
        leadsGroup: Bool = false
    ) throws(Failure) {
        identifier = try Self.started.withLock { started throws(Failure) in
            // Under the lock, so that nobody takes the child for an adopted one.
            let identifier = try Self.spawn(program, arguments, environment, output, leadsGroup)
            started.insert(identifier)
            return identifier
        }
    }

    /// Sends a signal, and does nothing once its end is collected.
    package func kill(_ signal: Int32 = SIGKILL) {
        isCollected.withLock { if !$0 { _ = Glibc.kill(identifier, signal) } }
    }

    /// Sends a signal to its process group, which it has to lead.
    package func killGroup(_ signal: Int32) {
        isCollected.withLock { if !$0 { _ = Glibc.kill(-identifier, signal) } }
    }

    /// Waits for its end on this thread, and collects its status. To be called once.
    ///
    /// - Returns: its exit status, or 128 and the signal; `nil` if somebody else in this process has collected it.
    package func end() -> Int32? {
        // Waits first and collects under the lock, so that no signal reaches another process of the same id.
        var information = siginfo_t()
        while waitid(P_PID, id_t(identifier), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
        return isCollected.withLock { isCollected in
            isCollected = true
            defer { _ = Self.started.withLock { $0.remove(identifier) } }
            var status: Int32 = 0
            while waitpid(identifier, &status, 0) < 0 {
                guard errno == EINTR else { return nil }
            }
            let signal = status & 0x7F
            return signal == 0 ? (status >> 8) & 0xFF : 128 + signal
        }
    }

    /// Like ``end()``, without holding a thread of Swift's. A task that is cancelled kills the program.
    package func waitUntilEnd() async -> Int32? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Int32?, Never>) in
                let wait: @Sendable () -> Void = { continuation.resume(returning: self.end()) }
                // If the system grants no thread, one of the shared threads waits.
                if QuietThread.start("helper", wait) == nil { Task.detached { wait() } }
            }
        } onCancel: {
            kill()
        }
    }

    /// Runs a program to its end. A task that is cancelled kills it.
    ///
    /// - Throws: ``Failure`` if it does not start, or ends with another status than 0.
    package static func run(_ program: String, _ arguments: [String]) async throws {
        let status = await (try HelperProcess(program, arguments)).waitUntilEnd()
        guard let status, status != 0 else { return }
        throw Failure("\(program) ended with status \(status)")
    }

    /// Runs a program to its end, and returns its status with the beginning of what it wrote, to both of its outputs.
    ///
    /// - Parameters:
    ///   - limit: how many bytes are kept.
    ///   - patience: after that the program is killed.
    /// - Throws: ``Failure`` if it does not start.
    package static func output(
        of program: String,
        _ arguments: [String],
        limit: Int = 65_536,
        patience: Duration
    ) async throws(Failure) -> (status: Int32?, text: String) {
        var ends: [CInt] = [-1, -1]
        guard CLinux_pipe(&ends) == 0 else { throw Failure("no pipe: \(String(cString: strerror(errno)))") }
        let (reading, writing) = (ends[0], ends[1])
        let child: HelperProcess
        do throws(Failure) {
            child = try HelperProcess(program, arguments, output: .descriptor(writing))
        } catch {
            close(reading)
            close(writing)
            throw error
        }
        close(writing)
        let alarm = Task {
            guard (try? await Task.sleep(for: patience)) != nil else { return }
            child.kill()
        }
        defer { alarm.cancel() }
        async let text = onSystemThread { Self.read(reading, limit: limit) }
        let status = await child.waitUntilEnd()
        return (status, await text)
    }

    /// Reads to the end, and closes the descriptor. A child of the program may keep it open: nobody waits for that.
    private static func read(_ descriptor: CInt, limit: Int) -> String {
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count > 0 { bytes += buffer[..<count].prefix(limit - bytes.count) }
            if count == 0 || count < 0 && errno != EINTR { return String(decoding: bytes, as: UTF8.self) }
        }
    }

    private static func spawn(
        _ program: String,
        _ arguments: [String],
        _ environment: [String: String]?,
        _ output: Output,
        _ leadsGroup: Bool
    ) throws(Failure) -> Int32 {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDWR, 0)
        for descriptor in [STDOUT_FILENO, STDERR_FILENO] {
            switch output {
            case .discarded: posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
            case .inherited: break
            case .descriptor(let target): posix_spawn_file_actions_adddup2(&actions, target, descriptor)
            }
        }
        CLinux_closeFrom(&actions, STDERR_FILENO + 1)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // The child starts with default signal handling, whatever this process ignores or blocks.
        var all = sigset_t()
        sigfillset(&all)
        posix_spawnattr_setsigdefault(&attributes, &all)
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        let group = leadsGroup ? POSIX_SPAWN_SETPGROUP : 0
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | group))
        var argv = ([program] + arguments).map { strdup($0) } + [nil]
        let variables = environment ?? ProcessInfo.processInfo.environment
        var envp = variables.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in argv + envp { free(text) } }
        var identifier: Int32 = 0
        var code = posix_spawnp(&identifier, program, &actions, &attributes, &argv, &envp)
        // Right after its installation, a program may still be open for writing in a child of the installer.
        for _ in 0..<20 where code == ETXTBSY {
            usleep(10_000)
            code = posix_spawnp(&identifier, program, &actions, &attributes, &argv, &envp)
        }
        guard code == 0 else { throw Failure("\(program) does not start: \(String(cString: strerror(code)))") }
        return identifier
    }
}
