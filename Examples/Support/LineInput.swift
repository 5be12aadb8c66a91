import Dispatch
import Glibc

/// Standard input by lines, for one reader at a time. It blocks its own thread, because tasks share theirs.
final class LineInput: Sendable {
    let isTerminal = isatty(STDIN_FILENO) != 0
    private let queue = DispatchQueue(label: "org.notifycenter.example.input")

    /// The next line; `nil` at the end of the input.
    func next() async -> String? { await onQueue { readLine() } }

    /// Reads a password: on a terminal without echo, otherwise the next line. `nil` means that the person gave up.
    func password(_ question: String) async -> String? {
        guard isTerminal else { return await next() }
        return await onQueue { Self.readSecret(question) }
    }

    private func onQueue(_ read: @escaping @Sendable () -> String?) async -> String? {
        await withCheckedContinuation { continuation in queue.async { continuation.resume(returning: read()) } }
    }

    /// Reads key by key, so that Ctrl-C ends the question instead of the app, and the terminal's settings are restored.
    private static func readSecret(_ question: String) -> String? {
        var settings = termios()
        guard tcgetattr(STDIN_FILENO, &settings) == 0 else { return nil }
        var silent = settings
        silent.c_lflag &= ~tcflag_t(ECHO | ICANON | ISIG)
        // TCSAFLUSH discards text that was typed before the question.
        guard tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent) == 0 else { return nil }
        defer { tcsetattr(STDIN_FILENO, TCSADRAIN, &settings) }
        Console.write(question)
        defer { Console.write("\n") }
        var secret: [UInt8] = []
        while true {
            var key: UInt8 = 0
            switch read(STDIN_FILENO, &key, 1) {
            case 1: break
            case -1 where errno == EINTR: continue
            default: return nil
            }
            switch key {
            case UInt8(ascii: "\n"), UInt8(ascii: "\r"): return String(decoding: secret, as: UTF8.self)
            // Ctrl-C, Ctrl-D.
            case 3, 4: return nil
            // Ctrl-U.
            case 21: secret = []
            case 8, 127: _ = secret.popLast()
            default: secret.append(key)
            }
        }
    }
}
