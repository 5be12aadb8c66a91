package import SharedDevice

/// A screen as text. Pure; ``Console`` shows it.
package struct Screen: Sendable {
    /// How far the app is with the question who is signed in.
    package enum State: Sendable, Equatable {
        /// It has not been answered yet.
        case checking
        /// The broker does not answer, for this reason.
        case unknown(String)
        /// The user changed, and the previous one's data is being deleted.
        case changing
        /// Nobody is signed in.
        case nobody
        /// This account's data is loaded.
        case open(Account)
        /// The previous user's data could not be deleted, or the current one's not be loaded, for this reason.
        case failed(String)
        /// The app has ended.
        case closed
    }

    /// The app's name.
    package var title: String
    /// What kind of device this is.
    package var device: DeviceInformation?
    /// Whether anybody's data may be shown.
    package var state: State
    /// The rendered data of the account in `state`; shown in no other state.
    package var display: Display?
    /// Something to tell the person.
    package var notice: String?

    package init(title: String, state: State = .checking) {
        self.title = title
        self.state = state
    }

    /// What the event of this screen says.
    package var summary: String {
        switch state {
        case .checking: "checking"
        case .unknown: "unknown"
        case .changing: "changing"
        case .nobody: "nobody"
        case .open: "open"
        case .failed: "failed"
        case .closed: "closed"
        }
    }

    /// Plain lines: the header begins with `== `, the others with two spaces, a notice with `- `.
    package var plainText: String { ([header] + body.map { "  \($0)" }).map { Self.printable($0) + "\n" }.joined() }

    /// For a terminal: clears it with what was scrolled away, because that too is somebody's data.
    package var terminalText: String {
        let style =
            switch state {
            case .failed, .unknown: "\u{1B}[1;31m"
            default: "\u{1B}[1m"
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
        case .checking: parts.append("checking who is signed in…")
        case .unknown: parts.append("signed in: unknown")
        case .changing: parts.append("the user changes…")
        case .nobody: parts += ["signed in: nobody", "0 items", "cached display: empty"]
        case .open(let account):
            let name = account.displayName.map { "\($0) (\(account.username))" } ?? account.username
            parts += ["signed in: \(name)", Self.count(display?.items ?? 0, "item")]
            parts.append("cached display: \(display.map { Self.count($0.lines.count, "line") } ?? "empty")")
        case .failed: parts.append("locked")
        case .closed: parts.append("closed")
        }
        return parts.joined(separator: " | ")
    }

    private var body: [String] {
        switch state {
        case .checking: ["nothing is shown before that is known"]
        case .unknown(let reason): ["nothing is shown until the broker answers", reason]
        case .changing: ["the previous user's data is deleted before anything is shown"]
        case .nobody: ["sign in with: signin NAME"]
        case .open: display?.lines ?? []
        case .failed(let reason): ["nothing is shown before this is done; it is tried again", reason]
        case .closed: []
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

    /// Without characters that would steer the terminal: names come from elsewhere.
    private static func printable(_ text: String) -> String {
        let scalars = text.unicodeScalars.map { $0.properties.generalCategory == .control ? "?" : $0 }
        return String(String.UnicodeScalarView(scalars))
    }
}
