import NotifydProtocol

@testable import NotifyDaemon

extension DaemonState {
    /// Why a copy of this state refuses what `body` does to it; `nil` where it does not.
    func refusal(_ body: (inout DaemonState) throws -> Void) -> NotifydProtocol.ErrorName? {
        var copy = self
        do {
            try body(&copy)
            return nil
        } catch {
            return (error as? Refusal)?.name
        }
    }
}
