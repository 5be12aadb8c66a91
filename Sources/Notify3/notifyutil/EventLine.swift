import CommandSupport

/// How much is printed of events.
enum Verbosity: Equatable {
    /// `-q`: nothing.
    case quiet
    /// Darwin's short lines.
    case normal
    /// `-v`: with token, time, state and kind.
    case verbose
}

/// One event that a registration reports.
struct Event {
    let token: CInt
    let time: Timestamp
    let name: String
    let kind: Kind
    /// The name's state, where it was asked for.
    let state: StateReading?
}

/// What `notify_get_state` said.
enum StateReading: Equatable {
    case value(UInt64)
    case failed(UInt32)
}

extension Verbosity {
    /// An event's line; `nil` for none.
    func line(_ event: Event) -> String? {
        switch self {
        case .quiet: return nil
        case .normal: return event.name
        case .verbose:
            let line = "[\(event.token)] \(event.time.text) \(event.name)"
            return switch event.state {
            case .failed(let status): "\(line) : Failed with code \(status)"
            case .value(let state): "\(line) \(state) \(event.kind.word)"
            case nil: "\(line) \(event.kind.word)"
            }
        }
    }

    /// The line before the events of a signal; `nil` for none.
    func line(signal: CInt) -> String? { self == .quiet ? nil : "SIGNAL \(signal)" }
}

extension Failure {
    /// The line of what failed about a name; `nil` for the rest.
    var line: String? { name.map { "\($0): Failed with code \(status)" } }
}
