import Basics
import CLinux
import DBus
import FoundationEssentials
import Glibc
import Synchronization

/// Ends this process on a signal without leaving anything behind: neither its child processes and their descendants,
/// nor a ``TemporaryDirectory``. For programs that start a bus or a device. Without ``handle(by:adoptsOrphans:)`` a
/// signal has its default effect.
///
/// A thread holds one lock while it creates a folder or starts a process. The thread that ends this process takes the
/// lock and never releases it. Finally this process executes a shell, which ends all other threads at once: nothing can
/// recreate a folder during its removal.
@_spi(Extensions) public enum Interruption {
    private static let folders = Locked<Set<String>>([])
    private static let signals = [SIGINT, SIGTERM, SIGHUP]
    private static let handled = Locked(false)

    static var isHandled: Bool { handled.withLock { $0 } }

    /// Makes SIGINT, SIGTERM and SIGHUP end this process and clean up, with the status 128 plus the signal. A signal
    /// that is ignored stays ignored. Children started later do not receive the terminal's Ctrl-C. A second call does
    /// nothing.
    ///
    /// - Parameters:
    ///   - name: the program's name in the message on standard error.
    ///   - adoptsOrphans: whether to end processes whose parents have ended, too. They become children of this process;
    ///     when they end, they stay zombies until this process ends. Do not use it in a process that runs for hours.
    @_spi(Extensions) public static func handle(by name: String, adoptsOrphans: Bool = true) {
        let isFirst = handled.withLock { handled in
            defer { handled = true }
            return !handled
        }
        var ends: [CInt] = [-1, -1]
        guard isFirst, CLinux_pipe(&ends) == 0 else { return }
        if adoptsOrphans { CLinux_adoptOrphans() }
        let input = ends[0]
        signalOutput = ends[1]
        detachThread {
            var signal: UInt8 = 0
            while read(input, &signal, 1) != 1 {}
            end(by: name, because: CInt(signal))
        }
        // A concurrent exit waits here for the lock until this process has executed the shell.
        atexit { Interruption.folders.withLock { _ in } }
        for signal in signals { handle(signal) }
    }

    private static func handle(_ signal: CInt) {
        var action = sigaction()
        guard sigaction(signal, nil, &action) == 0,
            unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) != unsafeBitCast(SIG_IGN, to: Int.self)
        else { return }
        action = sigaction()
        action.sa_flags = SA_RESTART
        action.__sigaction_handler.sa_handler = { number in
            // A signal handler may only call async-signal-safe functions such as `write`.
            var byte = UInt8(truncatingIfNeeded: number)
            _ = write(signalOutput, &byte, 1)
        }
        sigaction(signal, &action, nil)
    }

    /// Runs `body`, which creates something to end or remove later. Does not return after the end of this process has
    /// begun.
    static func unlessEnding<Value: Sendable>(_ body: () throws -> Value) rethrows -> Value {
        try folders.withLock { _ in try body() }
    }

    /// Creates a folder that only this user can read, and that is removed on interruption. Returns an error number on
    /// failure.
    static func make(_ path: String) -> CInt? {
        folders.withLock { folders in
            guard mkdir(path, 0o700) == 0 else { return errno }
            folders.insert(path)
            return nil
        }
    }

    static func forget(_ path: String) { folders.withLock { _ = $0.remove(path) } }

    // MARK: Ending

    private static func end(by name: String, because signal: CInt) {
        let status = 128 + signal
        folders.withLock { folders in
            // The other threads would report that their processes have ended.
            let errors = dup(STDERR_FILENO)
            let nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)
            dup2(nowhere, STDOUT_FILENO)
            dup2(nowhere, STDERR_FILENO)
            endDescendants()
            dup2(errors, STDERR_FILENO)
            let arguments = ["sh", "-c", script, name, "\(status)"] + folders.sorted()
            let pointers = arguments.map { strdup($0) } + [nil]
            // The shell must not be interrupted by the same signals.
            for signal in signals { Glibc.signal(signal, SIG_IGN) }
            var none = sigset_t()
            sigemptyset(&none)
            pthread_sigmask(SIG_SETMASK, &none, nil)
            execv("/bin/sh", pointers)
            // Reached only if there is no shell.
            for folder in folders { try? FileManager.default.removeItem(atPath: folder) }
            _exit(status)
        }
    }

    /// Unmounts the file systems in the folders, removes the folders, clears a progress line, and writes a message.
    /// `$0` is the program's name.
    private static let script = #"""
        status=$1
        shift
        while read -r _ place _; do
            for folder; do
                case "$place" in "$folder"/*) umount -l "$place" ;; esac
            done
        done < /proc/mounts
        rm -rf -- "$@"
        [ ! -t 2 ] || printf '\r\033[K' >&2
        printf '%s: interrupted\n' "$0" >&2
        exit "$status"
        """#

    /// Kills all descendants of this process, including adopted ones. Processes of another user, and processes that
    /// wait for a device, may survive. For a program that is about to end.
    @_spi(Extensions) public static func endDescendants() {
        for _ in 0..<2000 {
            let living = descendants()
            if living.isEmpty { return }
            for process in living { kill(process, SIGKILL) }
            usleep(1_000)
        }
    }

    private static func descendants() -> [pid_t] {
        let entries = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        var children: [pid_t: [pid_t]] = [:]
        for process in entries.compactMap({ pid_t($0) }) {
            guard let text = FileManager.default.contents(atPath: "/proc/\(process)/stat"),
                // The program's name comes first, in parentheses, and may itself contain parentheses.
                let fields = String(decoding: text, as: UTF8.self).split(separator: ")").last?.split(separator: " "),
                fields.count > 1, fields[0] != "Z", let parent = pid_t(fields[1])
            else { continue }
            children[parent, default: []].append(process)
        }
        var found: [pid_t] = []
        var next = [getpid()]
        while let process = next.popLast() {
            let more = children[process] ?? []
            found += more
            next += more
        }
        return found
    }
}

/// The pipe to which signal handlers write the signal's number. Unsafe is correct: it is set once, before the first
/// handler is installed.
nonisolated(unsafe) private var signalOutput: CInt = -1
