import NotifyCenter

@testable import notifyd

extension DaemonState {
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
}

extension Identity {
    static let root = Identity(user: 0)
}
