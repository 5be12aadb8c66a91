import CLinux
import DBusTransport
import FoundationEssentials
import Glibc
import Synchronization

/// The end of this process by a signal, without remains: no process that it has started, itself or through others, and no
/// ``TemporaryDirectory`` of it. For programs that start a bus or a device; without ``handle(by:adoptsOrphans:)`` a signal ends the process as
/// it does any other.
///
/// One lock decides: folders are made and processes started while it is held, and the thread that ends this process takes it and never gives
/// it back. The last act is to become a shell, which ends all other threads at once: nothing can make a folder anew that is being removed.
package enum Interruption {
    /// The folders to remove.
    private static let folders = Locked<Set<String>>([])
    private static let signals = [SIGINT, SIGTERM, SIGHUP]
    private static let handled = Locked(false)

    /// Whether signals end this process without remains.
    static var isHandled: Bool { handled.withLock { $0 } }

    /// From now on SIGINT, SIGTERM and SIGHUP end this process without remains, with the status 128 and the signal; a signal that is ignored
    /// stays so. Children that are started later hear nothing of the terminal's Ctrl-C. A second call does nothing.
    ///
    /// - Parameters:
    ///   - name: who says on standard error that it was interrupted.
    ///   - adoptsOrphans: whether to end also processes whose parents have ended. They become children of this process, and each that ends
    ///     keeps its number until this process ends: not for a process that runs for hours.
    package static func handle(by name: String, adoptsOrphans: Bool = true) {
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
        // Whoever ends this process meanwhile waits here until it has become the shell.
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
            // Nothing but this is allowed in a handler.
            var byte = UInt8(truncatingIfNeeded: number)
            _ = write(signalOutput, &byte, 1)
        }
        sigaction(signal, &action, nil)
    }

    /// Does what makes something that has to be ended or removed. Once this process ends, it does not return.
    static func unlessEnding<Value: Sendable>(_ body: () throws -> Value) rethrows -> Value {
        try folders.withLock { _ in try body() }
    }

    /// Makes a folder that only this user can read, and removes it when the process is interrupted. Returns an error number if that is
    /// impossible.
    static func make(_ path: String) -> CInt? {
        folders.withLock { folders in
            guard mkdir(path, 0o700) == 0 else { return errno }
            folders.insert(path)
            return nil
        }
    }

    /// The folder has been removed.
    static func forget(_ path: String) { folders.withLock { _ = $0.remove(path) } }

    // MARK: The end

    /// Ends and removes everything.
    private static func end(by name: String, because signal: CInt) {
        let status = 128 + signal
        folders.withLock { folders in
            // The others see how their processes end, and would tell of it.
            let errors = dup(STDERR_FILENO)
            let nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)
            dup2(nowhere, STDOUT_FILENO)
            dup2(nowhere, STDERR_FILENO)
            endDescendants()
            dup2(errors, STDERR_FILENO)
            let arguments = ["sh", "-c", script, name, "\(status)"] + folders.sorted()
            let pointers = arguments.map { strdup($0) } + [nil]
            // The shell is not to be interrupted in turn.
            for signal in signals { Glibc.signal(signal, SIG_IGN) }
            var none = sigset_t()
            sigemptyset(&none)
            pthread_sigmask(SIG_SETMASK, &none, nil)
            execv("/bin/sh", pointers)
            // There is no shell.
            for folder in folders { try? FileManager.default.removeItem(atPath: folder) }
            _exit(status)
        }
    }

    /// Removes the folders, with what is mounted in them, takes away a line of progress, and says what happened. Its name is that of the program.
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

    /// Ends all processes that descend from this one, also those that it has adopted. A process of another user, or one that waits for a device, may
    /// outlive it. For a program at its own end.
    package static func endDescendants() {
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
                // The program's name comes first, in parentheses, and may itself have parentheses.
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

/// Where a handler writes its signal's number. Set once, before the first handler is.
nonisolated(unsafe) private var signalOutput: CInt = -1
