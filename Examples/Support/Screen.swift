import Glibc
import SharedDevice

/// A screen as text. Pure; ``Console`` shows it.
struct Screen: Sendable {
    let title: String
    var device: DeviceInformation?
    /// Decides whether data is shown.
    var state = AccountState.hidden(.starting)
    /// The rendered data of the account in `state`; shown in no other state.
    var display: Display?
    var notice: String?

    /// The state in one word, for the event of this screen.
    var summary: String {
        switch state {
        case .hidden(.starting): "checking"
        case .hidden(.unknown): "unknown"
        case .hidden(.changing): "changing"
        case .hidden(.stopped): "closed"
        case .hidden: "failed"
        case .nobody: "nobody"
        case .open: "open"
        }
    }

    /// Plain lines: the header begins with `== `, the others with two spaces.
    var plainText: String { ([header] + body.map { "  \($0)" }).map { Self.printable($0) + "\n" }.joined() }

    /// For a terminal. The text first clears the screen and the scrollback, because both contain a user's data.
    var terminalText: String {
        let style =
            switch state {
            case .hidden(.starting), .hidden(.changing), .hidden(.stopped), .nobody, .open: "\u{1B}[1m"
            case .hidden: "\u{1B}[1;31m"
            }
        let lines = body.map { "  " + Self.printable($0) }
        let notice = notice.map { $0.split(separator: "\n").map { "\u{1B}[2m\(Self.printable(String($0)))\u{1B}[0m" } }
        return "\u{1B}[H\u{1B}[2J\u{1B}[3J\(style)\(Self.printable(header))\u{1B}[0m\n"
            + (lines + [""] + (notice ?? [])).map { $0 + "\n" }.joined()
    }

    private var header: String {
        var parts = ["== \(title)"]
        if let device { parts.append(Self.text(device)) }
        switch state {
        case .hidden(.starting): parts.append("checking who is signed in…")
        case .hidden(.unknown): parts.append("signed in: unknown")
        case .hidden(.changing): parts.append("the user changes…")
        case .hidden(.stopped): parts.append("closed")
        case .hidden: parts.append("locked")
        case .nobody: parts += ["signed in: no account", "0 items", "cached display: empty"]
        case .open(let account):
            let name = account.displayName.map { "\($0) (\(account.username))" } ?? account.username
            parts += ["signed in: \(name)", Self.count(display?.items ?? 0, "item")]
            parts.append("cached display: \(display.map { Self.count($0.lines.count, "line") } ?? "empty")")
        }
        return parts.joined(separator: " | ")
    }

    private var body: [String] {
        switch state {
        case .hidden(.starting): ["nothing is shown before that is known"]
        case .hidden(.unknown(let error)): ["nothing is shown until the broker responds", "\(error)"]
        case .hidden(.changing): ["the previous user's data is deleted before anything is shown"]
        case .hidden(.stopped): []
        case .hidden(let reason): ["nothing is shown before this is done; it is tried again", reason.description]
        case .nobody: ["sign in with: signin NAME"]
        case .open: display?.lines ?? []
        }
    }

    private static func count(_ number: Int, _ thing: String) -> String {
        "\(number) \(number == 1 ? thing : "\(thing)s")"
    }

    private static func text(_ device: DeviceInformation) -> String {
        let owner = device.organization.map { " of \($0)" } ?? ""
        return switch device.deviceMode {
        case .shared: "shared device\(owner)"
        case .personal: "personal device\(owner)"
        case .unknown: "device of unknown mode"
        }
    }

    /// Replaces control characters, which could control the terminal: other programs choose the names.
    private static func printable(_ text: String) -> String {
        let scalars = text.unicodeScalars.map { $0.properties.generalCategory == .control ? "?" : $0 }
        return String(String.UnicodeScalarView(scalars))
    }
}

/// The user's data as the screen shows it: rendered once, and cached until the data or the user changes.
public struct Display: Sendable, Equatable {
    public var items: Int
    /// The lines below the header.
    public var lines: [String]

    public init(items: Int, lines: [String]) {
        self.items = items
        self.lines = lines
    }
}

/// Standard output and standard error, unbuffered, so that data appears and disappears at once.
public enum Console {
    public static let isTerminal = isatty(STDOUT_FILENO) != 0

    public static func write(_ text: String) { write(text, STDOUT_FILENO) }

    public static func warn(_ text: String) { write(text + "\n", STDERR_FILENO) }

    private static func write(_ text: String, _ descriptor: CInt) {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            guard written > 0 else {
                if errno == EINTR || errno == EAGAIN { continue }
                // The output is closed.
                return
            }
            rest = rest.dropFirst(written)
        }
    }
}
