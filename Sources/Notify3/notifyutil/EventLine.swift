import CommandSupport

/// How much of an event is printed.
enum Verbosity: Equatable {
    /// `-q`: nothing.
    case quiet
    /// Darwin's short lines.
    case normal
    /// `-v`: with token, time, state and kind.
    case verbose
}

struct Event {
    let token: CInt
    let time: Timestamp
    let name: String
    let kind: Kind
    /// The name's state, if it was read.
    let state: StateReading?
}

/// The result of `notify_get_state`.
enum StateReading: Equatable {
    case value(UInt64)
    case failed(UInt32)
}

extension Verbosity {
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

    func line(signal: CInt) -> String? { self == .quiet ? nil : "SIGNAL \(signal)" }
}

extension Failure {
    /// Darwin's line for a failure that concerns a name; `nil` for other failures.
    var line: String? { name.map { "\($0): Failed with code \(status)" } }
}
