import Dispatch
import Glibc

/// Asks for name and password on a terminal; the password is not shown.
struct TerminalPrompt: Sendable {
    /// The terminal; by default that of the process.
    var path = "/dev/tty"

    /// What the person typed; `nil` where nothing was. Holds no thread of Swift's while it waits.
    ///
    /// - Throws: ``RequestFailure`` where there is no terminal.
    func ask(loginHint: String?) async throws -> MSALCredentials? {
        try await withCheckedThrowingContinuation { continuation in
            DispatchQueue(label: "org.notifycenter.MSAL.prompt").async {
                continuation.resume(with: Result { try self.askAndWait(loginHint: loginHint) })
            }
        }
    }

    private func askAndWait(loginHint: String?) throws(RequestFailure) -> MSALCredentials? {
        let terminal = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY)
        guard terminal >= 0 else {
            throw RequestFailure(
                .internal(.internalErrorNoViewController),
                "could not ask for name and password: there is no terminal (\(path): \(String(cString: strerror(errno)))). "
                    + "Give MSALWebviewParameters a prompt, for instance a dialog of the app"
            )
        }
        defer { close(terminal) }
        write(loginHint.map { "Name [\($0)]: " } ?? "Name: ", to: terminal)
        guard let typed = line(from: terminal) else { return nil }
        let name = typed.isEmpty ? loginHint ?? "" : typed
        guard !name.isEmpty else { return nil }
        guard let password = hidden(terminal, { asked(terminal) }) else { return nil }
        return MSALCredentials(username: name, password: password)
    }

    private func asked(_ terminal: CInt) -> String? {
        write("Password: ", to: terminal)
        defer { write("\n", to: terminal) }
        return line(from: terminal)
    }

    /// Runs `body` while the terminal does not show what is typed.
    private func hidden(_ terminal: CInt, _ body: () -> String?) -> String? {
        var before = termios()
        guard tcgetattr(terminal, &before) == 0 else { return body() }
        var silent = before
        silent.c_lflag &= ~tcflag_t(ECHO)
        tcsetattr(terminal, TCSAFLUSH, &silent)
        defer { tcsetattr(terminal, TCSAFLUSH, &before) }
        return body()
    }

    /// A line without its end; `nil` where the input is at its end.
    private func line(from terminal: CInt) -> String? {
        var bytes: [UInt8] = []
        while true {
            var byte: UInt8 = 0
            let count = read(terminal, &byte, 1)
            if count < 0, errno == EINTR { continue }
            guard count == 1 else { return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self) }
            guard byte != UInt8(ascii: "\n") else { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
    }

    private func write(_ text: String, to terminal: CInt) {
        // A prompt that cannot be shown is no reason not to read the answer.
        _ = Array(text.utf8).withUnsafeBytes { Glibc.write(terminal, $0.baseAddress, $0.count) }
    }
}
