import NotifydProtocol

@testable import NotifyDaemon

extension DaemonState {
    /// The refusal of a copy of this state when `body` changes it; `nil` if it does not refuse.
    func refusal(_ body: (inout DaemonState) throws -> Void) -> NotifydProtocol.ErrorName? {
        var copy = self
        do {
            try body(&copy)
            return nil
        } catch {
            return (error as? Refusal)?.name
        }
    }

    /// The state of a name, as root reads it.
    func state(of name: String) -> UInt64 { (try? state(of: name, for: .root)) ?? 0 }
}

extension Identity {
    static let root = Identity(user: 0)
}
