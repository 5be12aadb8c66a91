import Dispatch
import Glibc
import Synchronization

/// A line that a person or a test types.
public enum Command: Equatable, Sendable {
    /// Signs this user in with a password that the app asks for; without a name, the device's own prompt asks for both.
    case signIn(String?)
    case signOut
    case work
    case screen
    case help
    case quit
    case nothing
    case unknown(String)

    public init(_ line: String) {
        let words = line.split(whereSeparator: \.isWhitespace).map(String.init)
        self =
            switch (words.first, words.count) {
            case (nil, _): .nothing
            case ("signin", 1): .signIn(nil)
            case ("signin", 2): .signIn(words[1])
            case ("signout", 1): .signOut
            case ("work", 1): .work
            case ("screen", 1): .screen
            case ("help", 1): .help
            case ("quit", 1): .quit
            default: .unknown(line)
            }
    }

    public static let overview = """
        signin NAME  sign a user in for the whole device; asks for the password
        signin       the same at the device's own prompt, where this app sees no password
        signout      sign out for the whole device
        work         one more unit of work; longer work goes on after it
        screen       show the screen as it is now
        help         this
        quit         end the app; the data of the user stays
        """
}

/// Standard input by lines, for one reader at a time. It blocks its own thread, because tasks share theirs.
final class LineInput: Sendable {
    let isTerminal = isatty(STDIN_FILENO) != 0
    private let queue = DispatchQueue(label: "org.notifycenter.example.input")
    private let buffer = Mutex<[UInt8]>([])

    /// The next line; `nil` at the end of the input.
    func next() async -> String? { await onQueue { self.readLine() } }

    /// Reads a password: on a terminal without echo, otherwise the next line. `nil` means that the person gave up.
    func password(_ question: String) async -> String? {
        guard isTerminal else { return await next() }
        return await onQueue { Self.readSecret(question) }
    }

    private func onQueue(_ read: @escaping @Sendable () -> String?) async -> String? {
        await withCheckedContinuation { continuation in queue.async { continuation.resume(returning: read()) } }
    }

    private func readLine() -> String? {
        while true {
            let line = buffer.withLock { buffer -> String? in
                guard let end = buffer.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
                defer { buffer.removeFirst(end + 1) }
                return String(decoding: buffer[..<end], as: UTF8.self)
            }
            if let line { return line }
            guard let more = Self.readSome() else {
                return buffer.withLock { buffer in
                    defer { buffer = [] }
                    return buffer.isEmpty ? nil : String(decoding: buffer, as: UTF8.self)
                }
            }
            buffer.withLock { $0 += more }
        }
    }

    private static func readSome() -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = read(STDIN_FILENO, &bytes, bytes.count)
            if count > 0 { return Array(bytes[..<count]) }
            if count == 0 || errno != EINTR { return nil }
        }
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
