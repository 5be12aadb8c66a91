import Basics
import DBus
import Synchronization

/// Keeps an observer in place. ``cancel()`` removes the observer, and so does this object's deinit: keep the object
/// while the observer should be called.
public final class NotificationObservation: Sendable {
    private struct State {
        var isCancelled = false
        var remove: (@Sendable () -> Void)?
        var lease: PostLease?
    }

    private let state = Locked(State())
    /// The process that observes a bus; `nil` for the local center, which a forked child continues to use.
    private let process: ForkedChild.Process?
    private let count: @Sendable () -> DeliveryCounts

    /// Makes an observation before its observer is in place: a caller that may cancel it has it before the first
    /// notification arrives. ``begin(remove:)`` follows.
    init(isLocal: Bool = false, counts: @escaping @Sendable () -> DeliveryCounts) {
        process = isLocal ? nil : ForkedChild.Process()
        count = counts
    }

    /// False in a forked child: another thread of the parent may have held the lock at the fork.
    private var isUsable: Bool { process?.isCurrent ?? true }

    deinit { cancel() }

    /// Sets the function that removes the observer. If this was already cancelled, the function is called at once.
    func begin(remove: @escaping @Sendable () -> Void) {
        let isCancelled = state.withLock { state in
            if !state.isCancelled { state.remove = remove }
            return state.isCancelled
        }
        if isCancelled { remove() }
    }

    /// Keeps the lease, and with it the posts for the observer, until this ends.
    func keep(_ lease: PostLease) {
        state.withLock { if !$0.isCancelled { $0.lease = lease } }
    }

    /// Removes the observer and drops the notifications that wait for it. Any thread may call this, and so may the
    /// observer's own handler.
    ///
    /// After the return no call of the handler begins, with one exception: another thread that has already taken its
    /// notification still makes that one call. This function does not wait for such a call, nor for a call in progress
    /// (CF-R7). A second `cancel()` has no effect (CF-R5).
    public func cancel() {
        guard isUsable else { return }
        let before = state.withLock { state in
            defer { state = State(isCancelled: true) }
            return state
        }
        before.remove?()
        // The rule is released after the observer is removed, so that the observer's counts include everything that
        // arrives.
        withExtendedLifetime(before.lease) {}
    }

    /// The numbers of notifications that this observer got and lost.
    public var counts: DeliveryCounts { isUsable ? count() : DeliveryCounts() }
}
