import DBusTransport
import Synchronization

/// Holds an observer in place. ``cancel()`` removes the observer, and so does the end of this object's life: keep it for as long as the
/// observer is to be called.
public final class NotificationObservation: Sendable {
    private struct State {
        var isCancelled = false
        var remove: (@Sendable () -> Void)?
        var lease: PostLease?
    }

    private let state = Locked(State())
    /// The process that observes a bus; `nil` of the local center, which a forked child goes on using.
    private let process: ForkedChild.Process?
    private let count: @Sendable () -> DeliveryCounts

    /// Makes an observation before its observer is in place, so that whoever may cancel it has it before the first notification arrives.
    /// ``begin(remove:)`` follows.
    init(isLocal: Bool = false, counts: @escaping @Sendable () -> DeliveryCounts) {
        process = isLocal ? nil : ForkedChild.Process()
        count = counts
    }

    /// False in a forked child: another thread of the parent's may have held the lock.
    private var isUsable: Bool { process?.isCurrent ?? true }

    deinit { cancel() }

    /// Takes what removes the observer. Where this was cancelled before, the observer is removed at once.
    func begin(remove: @escaping @Sendable () -> Void) {
        let isCancelled = state.withLock { state in
            if !state.isCancelled { state.remove = remove }
            return state.isCancelled
        }
        if isCancelled { remove() }
    }

    /// Keeps the observer's notifications coming for as long as this lasts.
    func keep(_ lease: PostLease) {
        state.withLock { if !$0.isCancelled { $0.lease = lease } }
    }

    /// Removes the observer and drops the notifications that wait for it. Any thread may call this, and so may the observer's own handler.
    ///
    /// After the return no call of the handler begins, with one exception: another thread that has already taken its notification still makes
    /// that one call. This does not wait for such a call, nor for one under way (CF-R7). A second `cancel()` has no effect (CF-R5).
    public func cancel() {
        guard isUsable else { return }
        let before = state.withLock { state in
            defer { state = State(isCancelled: true) }
            return state
        }
        before.remove?()
        // The rule goes after the observer, so that the observer's counts tell of all that arrives.
        withExtendedLifetime(before.lease) {}
    }

    /// How many notifications this observer got, and how many it lost.
    public var counts: DeliveryCounts { isUsable ? count() : DeliveryCounts() }
}
