import DBusTransport
import Synchronization

/// An observer in place. Its end of life, or ``cancel()``, removes it: keep it as long as notifications are wanted.
public final class NotificationObservation: Sendable {
    private struct State {
        var isCancelled = false
        var remove: (@Sendable () -> Void)?
        var rule: MatchRuleLease?
    }

    private let state = Locked(State())
    private let count: @Sendable () -> DeliveryCounts

    /// One that observes nothing until ``begin(_:)``: so whoever may cancel it can have it before its first notification arrives.
    init(counts: @escaping @Sendable () -> DeliveryCounts) { count = counts }

    deinit { cancel() }

    /// Takes what removes the observer. Where this was cancelled before, the observer is removed at once.
    func begin(remove: @escaping @Sendable () -> Void) {
        let isCancelled = state.withLock { state in
            if !state.isCancelled { state.remove = remove }
            return state.isCancelled
        }
        if isCancelled { remove() }
    }

    /// Keeps the observer's match rule for as long as this lasts.
    func keep(_ rule: MatchRuleLease) {
        state.withLock { if !$0.isCancelled { $0.rule = rule } }
    }

    /// Removes the observer, from any thread, its own handler included. No call begins afterwards, and what waited for it is
    /// dropped; a call under way on another thread is not waited for (CF-R7). Doing it twice is harmless (CF-R5).
    public func cancel() {
        let before = state.withLock { state in
            defer { state = State(isCancelled: true) }
            return state
        }
        before.remove?()
        // The rule goes after the observer, so that the observer's counts tell of all that arrives.
        withExtendedLifetime(before.rule) {}
    }

    /// How many notifications this observer got, and how many it did not.
    public var counts: DeliveryCounts { count() }
}
