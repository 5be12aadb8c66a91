import Basics
import CommandParts
import DBus
import Glibc
import Identity
import Synchronization

/// Asks for name and password, or for a badge and its PIN, at the controlling terminal, even if standard input and
/// output are redirected. The caller handles signals: ``stop()`` ends a prompt and restores the terminal's echo.
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

    /// Asks for name and password on a separate thread, and calls `typed` there. An empty name is asked for again. A
    /// badge is asked for first, without echo: its reader types a number and Return. The value is `nil` at the end of
    /// input, after ``stop()`` and after a failure. If no thread can be started, `typed` is called with `nil` on this
    /// thread.
    package func ask(
        username: String?,
        takesBadge: Bool,
        notice: String?,
        typed: @escaping @Sendable (SignInPrompt.Credentials?) -> Void
    ) {
        let started = QuietThread.start("sign-in") { [self] in
            typed(try? answer(username: username, takesBadge: takesBadge, notice: notice))
        }
        if started == nil { typed(nil) }
    }

    /// Ends the current prompt and prevents further ones.
    package func stop() {
        isStopped.withLock { $0 = true }
        stopped.signal()
        quiet.restore()
    }

    private func answer(username: String?, takesBadge: Bool, notice: String?) throws -> SignInPrompt.Credentials? {
        if let notice { say(notice) }
        defer { quiet.restore() }
        if takesBadge {
            guard let number = try secret(texts[.terminalBadge]) else { return nil }
            if number.count > 0 { return try secret(texts[.pin]).map { .badge(number: number, pin: $0) } }
            quiet.restore()
        }
        var name = ""
        while name.isEmpty {
            try QuietTerminal.write("\(texts[.userName])\(username.map { " [\($0)]" } ?? ""): ", to: descriptor)
            guard let line = try line() else { return nil }
            name = line.count > 0 ? line.text : username ?? ""
        }
        return try secret(texts[.password]).map { .password(username: name, $0) }
    }

    /// Asks without echo.
    private func secret(_ question: String) throws -> Secret? {
        try quiet.silence()
        try QuietTerminal.write("\(question): ", to: descriptor)
        return try line()
    }

    private func line() throws -> Secret? {
        try SecretLine.read(from: descriptor) {
            var looks = [
                pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
                pollfd(fd: stopped.descriptor, events: Int16(POLLIN), revents: 0),
            ]
            while poll(&looks, 2, -1) < 0 { guard errno == EINTR else { throw TerminalFailure("wait for an answer") } }
            return !isStopped.withLock { $0 }
        }
    }
}
