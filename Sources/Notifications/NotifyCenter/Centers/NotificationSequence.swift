import Basics
import DBus
import Synchronization

/// A sequence of notifications as they arrive. It is for one loop at a time: two loops on the same sequence share its
/// elements.
///
/// Notifications that the loop has not taken wait, within the limits of the sequence's ``Buffering``. They also wait
/// while the center is suspended. The observer stays when a loop ends, also if the loop's task is cancelled: another
/// loop may follow. The observer is removed with the last copy and iterator, or by ``cancel()``.
public struct NotificationSequence<Element: Sendable>: AsyncSequence, Sendable {
    let inlet: NotificationInlet
    let observation: NotificationObservation
    let convert: @Sendable (WireNotification) -> Element

    /// The numbers of notifications that were taken by the loop, dropped and merged.
    public var counts: DeliveryCounts { observation.counts }

    /// Removes the observer, and drops the notifications that wait. A loop over the sequence ends.
    public func cancel() {
        observation.cancel()
        inlet.waiters.end()
    }

    /// Creates an iterator, which keeps the observer in place.
    public func makeAsyncIterator() -> Iterator {
        Iterator(sequence: self, wakes: inlet.waiters.wakes().makeAsyncIterator())
    }

    /// An iterator that waits for one notification after the other.
    public struct Iterator: AsyncIteratorProtocol {
        fileprivate let sequence: NotificationSequence
        fileprivate var wakes: AsyncStream<Void>.Iterator

        /// Returns the next notification; `nil` after ``NotificationSequence/cancel()``, or when the task is cancelled.
        public mutating func next(isolation: isolated (any Actor)?) async -> Element? {
            while true {
                // If an element is always ready, the loop below never awaits and would not notice the cancellation.
                if Task.isCancelled { return nil }
                if let notification = sequence.inlet.registration.takeNext() { return sequence.convert(notification) }
                guard await wakes.next(isolation: isolation) != nil else { return nil }
            }
        }
    }
}

/// The source of a sequence's notifications. They wait in a registration, like those of other observers.
struct NotificationInlet: Sendable {
    let registration: Registration
    fileprivate let waiters = Waiters()

    init(_ buffering: Buffering, _ suspensionBehavior: SuspensionBehavior = .deliverImmediately, gate: DeliveryGate) {
        let delivery = Delivery(kind: .wakes { [waiters] in waiters.wake() })
        registration = Registration(delivery, buffering, suspensionBehavior, gate: gate)
    }
}

/// The iterators of a sequence. Each has a stream that holds at most one wake-up, which says that notifications are
/// ready. A stream ends with its iterator, and with the task that waits for it.
private final class Waiters: Sendable {
    private struct State {
        var continuations: [UInt64: AsyncStream<Void>.Continuation] = [:]
        var lastNumber: UInt64 = 0
        var hasEnded = false
    }

    private let state = Locked(State())
    private let process = ForkedChild.Process()

    /// Adds an iterator, and returns its wake-ups.
    func wakes() -> AsyncStream<Void> {
        let (wakes, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let (number, hasEnded) = state.withLock { state in
            state.lastNumber += 1
            if !state.hasEnded { state.continuations[state.lastNumber] = continuation }
            return (state.lastNumber, state.hasEnded)
        }
        continuation.onTermination = { [weak self] _ in self?.remove(number) }
        if hasEnded { continuation.finish() }
        return wakes
    }

    private func remove(_ number: UInt64) {
        guard process.isCurrent else { return }
        let removed = state.withLock { $0.continuations.removeValue(forKey: number) }
        withExtendedLifetime(removed) {}
    }

    /// Wakes all iterators: each takes what the others have not taken.
    func wake() {
        for continuation in state.withLock({ Array($0.continuations.values) }) { continuation.yield() }
    }

    func end() {
        guard process.isCurrent else { return }
        let ended = state.withLock { state in
            state.hasEnded = true
            defer { state.continuations = [:] }
            return Array(state.continuations.values)
        }
        for continuation in ended { continuation.finish() }
    }
}

/// Keeps an observer in place. ``cancel()`` removes the observer, and so does this object's deinit: keep the object
/// while the observer should be called. The connection to the bus stays open meanwhile, even if the program releases
/// the center.
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
