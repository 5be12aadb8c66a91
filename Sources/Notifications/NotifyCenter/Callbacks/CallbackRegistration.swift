import DBusTransport
import Synchronization

/// A registration that may be removed while it is still being made: its first notification can arrive, and its handler
/// remove it, before the function that registers has returned.
package final class CallbackRegistration: Sendable {
    private enum State {
        case beginning
        case inForce(NotificationObservation)
        case removed
    }

    private let state = Locked(State.beginning)

    package init() {}

    /// Whether it was not removed yet.
    package var isLive: Bool {
        state.withLock { if case .removed = $0 { false } else { true } }
    }

    /// Takes what ends with this registration, if there is anything. Where it has been removed meanwhile, that ends at once.
    package func begin(_ observation: NotificationObservation?) {
        guard let observation else { return }
        let isRemoved = state.withLock { state in
            if case .removed = state { return true }
            state = .inForce(observation)
            return false
        }
        if isRemoved { observation.cancel() }
    }

    /// Ends it, once or more often.
    package func remove() {
        let before = state.withLock { state in
            defer { state = .removed }
            return state
        }
        if case .inForce(let observation) = before { observation.cancel() }
    }
}
