import DeviceConfiguration
import ExampleSupport
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit

/// The actions of all processes around one sign-out, with their times. Pure.
struct Timeline: Sendable {
    struct Row: Sendable {
        let nanoseconds: UInt64
        let process: String
        let event: String
        let text: String
    }

    let title: String
    /// The time of the sign-out call: the zero of the rows' times.
    let origin: UInt64
    /// In order of time.
    let rows: [Row]

    init(title: String, origin: UInt64, rows: [Row]) {
        self.title = title
        self.origin = origin
        self.rows = Self.explained(rows.sorted { $0.nanoseconds < $1.nanoseconds })
    }

    static let broadcast = "broadcast"

    /// The rows, with a cause for each broadcast: a sign-in, a sign-out, or a reminder to the apps of the last
    /// sign-out.
    private static func explained(_ rows: [Row]) -> [Row] {
        var cause: String?
        return rows.enumerated().map { index, row in
            switch row.event {
            case Event.Kind.signingOut.rawValue: cause = "a sign-out"
            case Event.Kind.signingIn.rawValue:
                let results = [Event.Kind.signedIn, .failed].map(\.rawValue)
                let result = rows[index...].first { $0.process == row.process && results.contains($0.event) }
                if result?.event == Event.Kind.signedIn.rawValue { cause = "a sign-in" }
            case broadcast:
                defer { cause = nil }
                return row.saying("\(row.text): \(cause ?? "a reminder, because an app has not cleaned up yet")")
            default: break
            }
            return row
        }
    }

    /// Milliseconds between the sign-out call and the row; negative before it.
    func milliseconds(_ row: Row) -> Double { Double(Int64(row.nanoseconds) - Int64(origin)) / 1_000_000 }

    var table: String {
        let times = rows.map { "\(milliseconds($0) < 0 ? "" : "+")\(Text.milliseconds(milliseconds($0)))" }
        let width = times.map(\.count).max() ?? 0
        let cells = zip(times, rows).map { time, row in
            [String(repeating: " ", count: width - time.count) + time, row.process, row.text]
        }
        return "\(title)\n" + Text.table(["time", "process", "what happened"], cells)
    }
}

extension Timeline.Row {
    init(_ event: Event) {
        self.init(
            nanoseconds: event.nanoseconds,
            process: event.app,
            event: event.event.rawValue,
            text: Self.text(event)
        )
    }

    func saying(_ text: String) -> Timeline.Row {
        Timeline.Row(nanoseconds: nanoseconds, process: process, event: event, text: text)
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
        case .failed: text(failure: detail)
        case .ended: "ends"
        }
    }

    /// The text of a failure. A refused sign-in while the last person's data exists is the intended behaviour.
    private static func text(failure detail: String) -> String {
        guard let holders = detail.firstMatch(of: /not yet gone from (.*?);.*\[cleanup_pending\]/)?.1 else {
            return "FAILED: \(detail)"
        }
        let apps = holders.split(separator: ", ").map(String.init)
        let names = AppNames(apps)
        return "is refused, as it should be: the last person's data is not yet gone from "
            + apps.map { names[$0] }.joined(separator: ", ")
    }

    private static func text(change event: Event) -> String {
        let current = event.current.map { "\(Person.name(of: $0)) is signed in" } ?? "no account is signed in"
        let previous = (event.previous ?? []).map { "\(Person.name(of: $0))'s data must go" }
        return "learns: " + ([current] + previous).joined(separator: ", ")
    }

    private static func text(screen event: Event, _ account: String) -> String {
        switch event.detail {
        case "open": "shows \(account)'s screen, \(event.items ?? 0) \(event.items == 1 ? "item" : "items")"
        case "nobody": "shows that no account is signed in"
        case "checking": "shows nothing: it asks who is signed in"
        case "changing": "hides its screen"
        case "unknown": "hides its screen: the broker does not respond"
        default: "shows: \(event.detail ?? "")"
        }
    }
}
