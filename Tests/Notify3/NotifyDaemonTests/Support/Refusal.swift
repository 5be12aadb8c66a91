@testable import NotifyCenter
@testable import notifyd

extension DaemonState {
    /// The state of notifyd on the bus of user 501, with connections of two processes of that user.
    static func withTwoClients() -> DaemonState {
        var state = DaemonState(process: 77, user: 501)
        _ = state.arrived(":1.1", Identity(user: 501, process: 10))
        _ = state.arrived(":1.2", Identity(user: 501, process: 11))
        return state
    }

    /// Reserves prefixes for root, each with an access, and defines permanent names with their states.
    mutating func configure(reserved: [String: UInt16] = [:], permanent: [String: UInt64] = [:]) {
        var configuration = NotifyConfiguration()
        configuration.rules.reservations = reserved.map { .init(prefix: $0.key, user: 0, group: 0, access: $0.value) }
        configuration.permanentNames = permanent.map { .init(name: $0.key, state: $0.value) }
        configure(configuration)
    }

    /// Returns the refusal when `body` changes a copy of this state; `nil` if there is none.
    func refusal(_ body: (inout DaemonState) throws -> Void) -> NotifydProtocol.ErrorName? {
        var copy = self
        do {
            try body(&copy)
            return nil
        } catch {
            return (error as? Refusal)?.name
        }
    }

    func state(of name: String) -> UInt64 { (try? state(of: name, for: .root)) ?? 0 }

    /// The report of the first process, as root sees it, with its names in order.
    var firstReport: ProcessReport? {
        var report = page(0, for: .root).processes.first?.report
        report?.names.sort { $0.name < $1.name }
        return report
    }
}

extension Identity {
    static let root = Identity(user: 0)
}
