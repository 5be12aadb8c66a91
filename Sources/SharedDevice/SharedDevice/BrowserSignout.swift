import CLinux
import DBusTransport
import FoundationEssentials
import Glibc
import Synchronization

/// What a sign-out did to the browser's session. It signs the account out of the device in any case.
public enum BrowserSignout: Sendable, Hashable {
    /// The sign-out did not ask for it.
    case notRequested
    /// The browser has the end-session page. It shows whether the identity provider ended its session there.
    case opened
    /// The device's configuration names no end-session page.
    case notConfigured
    /// The page could not be opened, for this reason; the person may still be signed in there.
    case failed(String)
    /// The page was not open by ``SignoutParameters/browserDeadline``.
    case timedOut
}

/// A way to open a page in the browser.
public struct BrowserOpener: Sendable {
    /// Opens the page at this address, and returns when that is done; throws if that fails. It is called in its own task, which is cancelled
    /// when time runs out.
    public var open: @Sendable (_ address: String) async throws -> Void

    /// The app's own way to open a page.
    public init(_ open: @escaping @Sendable (_ address: String) async throws -> Void) { self.open = open }

    /// The desktop's way: runs `xdg-open` with the address, without a shell. When time runs out, the process is killed.
    public static let desktop = BrowserOpener { address in
        try await HelperProcess.run("xdg-open", [address])
    }
}

extension SharedDeviceApplication {
    /// Opens the end-session page, and gives up when time runs out.
    func signOutFromBrowser(_ address: String?, _ parameters: SignoutParameters) async -> BrowserSignout {
        guard parameters.signoutFromBrowser else { return .notRequested }
        guard let address else { return .notConfigured }
        guard EndSessionPage.isAllowed(address) else {
            return .failed("the configured page is neither https nor at http://localhost")
        }
        let (results, continuation) = AsyncStream.makeStream(of: BrowserSignout.self)
        let opening = Task {
            do {
                try await parameters.browserOpener.open(address)
                continuation.yield(.opened)
            } catch {
                continuation.yield(.failed("\(error)"))
            }
        }
        let alarm = Task {
            guard (try? await Task.sleep(for: parameters.browserDeadline)) != nil else { return }
            continuation.yield(.timedOut)
        }
        defer {
            opening.cancel()
            alarm.cancel()
        }
        // An opener that ignores its cancellation goes on; nobody waits for it.
        for await result in results { return result }
        return .timedOut
    }
}

/// Which pages a browser is sent to.
enum EndSessionPage {
    /// Browsers open more than web pages, and the address comes from a file: only web addresses are let through.
    static func isAllowed(_ address: String) -> Bool {
        guard address.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }), let url = URL(string: address),
            let host = url.host(percentEncoded: false), !host.isEmpty
        else { return false }
        switch url.scheme?.lowercased() {
        case "https": return true
        case "http": return host.lowercased() == "localhost"
        default: return false
        }
    }
}

/// Runs a program to its end, with no input, no output and none of this process's descriptors.
enum HelperProcess {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// A child process. Until its status is collected, no other process has its id.
    private final class Child: Sendable {
        private let identifier: Locked<pid_t?>

        init(_ identifier: pid_t) { self.identifier = Locked(identifier) }

        func kill() { identifier.withLock { if let child = $0 { _ = Glibc.kill(child, SIGKILL) } } }

        /// Waits for its end on this thread, and collects its status.
        ///
        /// - Returns: its exit status, or 128 and the signal; `nil` if somebody else in this process has collected it.
        func end() -> Int32? {
            guard let child = identifier.withLock({ $0 }) else { return nil }
            // Waits first and collects under the lock, so that no signal reaches another process of the same id.
            var information = siginfo_t()
            while waitid(P_PID, id_t(child), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
            return identifier.withLock { identifier in
                identifier = nil
                var status: Int32 = 0
                while waitpid(child, &status, 0) < 0 {
                    guard errno == EINTR else { return nil }
                }
                let signal = status & 0x7F
                return signal == 0 ? (status >> 8) & 0xFF : 128 + signal
            }
        }
    }

    /// Runs the program, which is looked up in `PATH`. A task that is cancelled kills it.
    ///
    /// - Throws: ``Failure`` if it does not start, or ends with another status than 0.
    static func run(_ program: String, _ arguments: [String]) async throws {
        let child = Child(try spawn(program, arguments))
        let status = await withTaskCancellationHandler {
            await withCheckedContinuation { (continuation: CheckedContinuation<Int32?, Never>) in
                let wait: @Sendable () -> Void = { continuation.resume(returning: child.end()) }
                // If the system grants no thread, one of the shared threads waits.
                if QuietThread.start("helper", wait) == nil { Task.detached { wait() } }
            }
        } onCancel: {
            child.kill()
        }
        guard let status, status != 0 else { return }
        throw Failure(description: "\(program) ended with status \(status)")
    }

    private static func spawn(_ program: String, _ arguments: [String]) throws(Failure) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] {
            posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
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
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))
        var argv = ([program] + arguments).map { strdup($0) } + [nil]
        var envp = ProcessInfo.processInfo.environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in argv + envp { free(text) } }
        var identifier: pid_t = 0
        var code = posix_spawnp(&identifier, program, &actions, &attributes, &argv, &envp)
        // Right after its installation, a program may still be open for writing in a child of the installer.
        for _ in 0..<20 where code == ETXTBSY {
            usleep(10_000)
            code = posix_spawnp(&identifier, program, &actions, &attributes, &argv, &envp)
        }
        guard code == 0 else {
            throw Failure(description: "\(program) does not start: \(String(cString: strerror(code)))")
        }
        return identifier
    }
}
