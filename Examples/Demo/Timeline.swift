import ExampleSupport

/// Who did what, and when, around one sign-out. Pure.
struct Timeline: Sendable {
    struct Row: Sendable {
        let nanoseconds: UInt64
        let process: String
        let event: String
        let text: String
    }

    let title: String
    /// The instant of the sign-out call: the zero of the rows' times.
    let origin: UInt64
    /// In the order of time.
    let rows: [Row]

    init(title: String, origin: UInt64, rows: [Row]) {
        self.title = title
        self.origin = origin
        self.rows = rows.sorted { $0.nanoseconds < $1.nanoseconds }
    }

    /// Milliseconds between the sign-out call and the row; negative before it.
    func milliseconds(_ row: Row) -> Double { Double(Int64(row.nanoseconds) - Int64(origin)) / 1_000_000 }

    /// An aligned table with a headline.
    var table: String {
        let cells = rows.map { (Self.decimal(milliseconds($0)), $0.process, $0.text) }
        let timeWidth = max(2, cells.map(\.0.count).max() ?? 0)
        let processWidth = cells.map(\.1.count).max() ?? 0
        let lines = ([("ms", "process", "what happened")] + cells).map { time, process, text in
            let left = Self.spaces(timeWidth - time.count) + time
            return "\(left)  \(process)\(Self.spaces(processWidth - process.count))  \(text)"
        }
        return ([title] + lines).joined(separator: "\n")
    }

    private static func spaces(_ count: Int) -> String { String(repeating: " ", count: max(0, count)) }

    private static func decimal(_ milliseconds: Double) -> String {
        let tenths = Int((milliseconds * 10).rounded())
        return "\(tenths < 0 ? "-" : "+")\(abs(tenths) / 10).\(abs(tenths) % 10)"
    }
}

extension Timeline.Row {
    /// An app's event, in words.
    init(_ event: Event) {
        self.init(
            nanoseconds: event.nanoseconds,
            process: event.app,
            event: event.event.rawValue,
            text: Self.text(event)
        )
    }

    private static func text(_ event: Event) -> String {
        let account = event.account.map(Person.name) ?? "nobody"
        let detail = event.detail ?? ""
        return switch event.event {
        case .started: "starts"
        case .waitingForBroker: "waits for the broker: \(detail)"
        case .changed: text(change: event)
        case .workStopped: "has stopped the work under way: \(detail)"
        case .dataDeleted: "has deleted \(account)'s data: \(detail)"
        case .cleaned: "has reported: cleaned up"
        case .screen: text(screen: event, account)
        case .signingIn: "signs \(account) in"
        case .signedIn: "\(account) is signed in, for the whole device"
        case .signingOut: "signs \(account) out"
        case .signedOut: "\(account) is signed out, for the whole device"
        case .worked: "\(account) \(detail)"
        case .failed: "FAILED: \(detail)"
        case .ended: "ends"
        }
    }

    private static func text(change event: Event) -> String {
        let current = event.current.map { "\(Person.name(of: $0)) is signed in" } ?? "nobody is signed in"
        let previous = (event.previous ?? []).map { "\(Person.name(of: $0))'s data must go" }
        return "learns: " + ([current] + previous).joined(separator: ", ")
    }

    private static func text(screen event: Event, _ account: String) -> String {
        switch event.detail {
        case "open": "shows \(account)'s screen, \(event.items ?? 0) \(event.items == 1 ? "item" : "items")"
        case "nobody": "shows that nobody is signed in"
        case "checking": "shows nothing: it asks who is signed in"
        case "changing": "hides its screen"
        case "unknown": "hides its screen: the broker does not answer"
        default: "shows: \(event.detail ?? "")"
        }
    }
}
