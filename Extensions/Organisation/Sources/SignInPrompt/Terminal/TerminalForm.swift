import Basics
import CommandParts
import DBus
import Glibc
import Identity
import Synchronization

/// Asks for name and password at the controlling terminal, even if standard input and output are redirected. The caller
/// handles signals: ``stop()`` ends a prompt and restores the terminal's echo.
package final class TerminalForm: Sendable {
    private let descriptor: CInt
    private let texts: PromptTexts
    private let quiet: QuietTerminal
    /// Wakes the thread that waits for input.
    private let stopped: EventDescriptor
    private let isStopped = Locked(false)

    /// - Returns: `nil` if this process has no terminal.
    package init?(path: String = "/dev/tty", _ texts: PromptTexts = .english) {
        self.texts = texts
        descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard descriptor >= 0 else { return nil }
        do {
            quiet = try QuietTerminal(descriptor)
            stopped = try EventDescriptor("ask at the terminal")
        } catch {
            close(descriptor)
            return nil
        }
    }

    deinit { close(descriptor) }

    /// Whether this process may read from the terminal. The kernel stops a background process that tries.
    package var isInForeground: Bool { tcgetpgrp(descriptor) == getpgrp() }

    /// Whether the terminal has enough rows for a QR code.
    package var showsPictures: Bool {
        var size = winsize()
        return ioctl(descriptor, UInt(TIOCGWINSZ), &size) != 0 || size.ws_row == 0 || size.ws_row >= 20
    }

    package func say(_ line: String) { try? QuietTerminal.write(line + "\n", to: descriptor) }

    /// Asks for name and password on a separate thread, and calls `typed` there. An empty name is asked for again. The
    /// value is `nil` at the end of input, after ``stop()`` and after a failure. If no thread can be started, `typed`
    /// is called with `nil` on this thread.
    package func ask(
        username: String?,
        notice: String?,
        typed: @escaping @Sendable (SignInPrompt.Credentials?) -> Void
    ) {
        let started = QuietThread.start("sign-in") { [self] in typed(try? answer(username: username, notice: notice)) }
        if started == nil { typed(nil) }
    }

    /// Ends the current prompt and prevents further ones.
    package func stop() {
        isStopped.withLock { $0 = true }
        stopped.signal()
        quiet.restore()
    }

    private func answer(username: String?, notice: String?) throws -> SignInPrompt.Credentials? {
        if let notice { say(notice) }
        var name = ""
        while name.isEmpty {
            try QuietTerminal.write("\(texts[.userName])\(username.map { " [\($0)]" } ?? ""): ", to: descriptor)
            guard let line = try line() else { return nil }
            name = line.count > 0 ? line.text : username ?? ""
        }
        defer { quiet.restore() }
        try quiet.silence()
        try QuietTerminal.write("\(texts[.password]): ", to: descriptor)
        guard let password = try self.line() else { return nil }
        return SignInPrompt.Credentials(username: name, password: password)
    }

    private func line() throws -> Secret? {
        try SecretLine.read(from: descriptor) {
            var looks = [
                pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
                pollfd(fd: stopped.descriptor, events: Int16(POLLIN), revents: 0),
            ]
            while poll(&looks, 2, -1) < 0 {
                guard errno == EINTR else { throw TerminalFailure("wait for an answer") }
            }
            return !isStopped.withLock { $0 }
        }
    }
}
