import Basics
import DBus
import Dispatch
import Synchronization

/// The index that finds the receivers of a post (rules CF-A4, CF-M1, CF-M2, CF-D3). Pure: no locks, threads or D-Bus
/// (architecture, D5).
///
/// A name or object of `nil` at registration means any. Receivers come in the order of their registration, whether or
/// not they gave a name and an object.
struct ObserverRegistry<Object: Hashable, Observer> {
    struct Key: Hashable {
        let number: UInt64
        let name: NotificationName?
        let object: Object?
    }

    private struct ObjectIndex {
        var anyObject = RegistrationList<Observer>()
        var byObject: [Object: RegistrationList<Observer>] = [:]
        var isEmpty: Bool { anyObject.isEmpty && byObject.isEmpty }
    }

    private var byName: [NotificationName: ObjectIndex] = [:]
    private var anyName = ObjectIndex()
    private var nextNumber: UInt64 = 0
    private(set) var count = 0

    mutating func add(_ observer: Observer, name: NotificationName?, object: Object?) -> Key {
        let key = Key(number: nextNumber, name: name, object: object)
        nextNumber += 1
        count += 1
        if let name {
            Self.add(observer, key, to: &byName[name, default: ObjectIndex()])
        } else {
            Self.add(observer, key, to: &anyName)
        }
        return key
    }

    /// Removes a registration. An unknown key is ignored (CF-R5).
    @discardableResult
    mutating func remove(_ key: Key) -> Observer? {
        let removed: Observer?
        if let name = key.name {
            guard let index = byName.index(forKey: name) else { return nil }
            removed = Self.remove(key, from: &byName.values[index])
            if byName.values[index].isEmpty { byName.remove(at: index) }
        } else {
            removed = Self.remove(key, from: &anyName)
        }
        if removed != nil { count -= 1 }
        return removed
    }

    /// Returns the receivers of a post of `name` about `object`. A post without an object reaches only observers of any
    /// object (CF-P2).
    ///
    /// - Returns: the receivers in order, with `nil` for some that were removed. Almost every post matches one stored
    ///   list, which is returned without a copy.
    func receivers(name: NotificationName, object: Object?) -> [Observer?] {
        let named = byName[name]
        if anyName.isEmpty, named?.byObject.isEmpty ?? true { return named?.anyObject.observers ?? [] }
        let lists = [named, anyName].flatMap { index in
            [index?.anyObject, object.flatMap { index?.byObject[$0] }].compactMap(\.self).filter { !$0.isEmpty }
        }
        return lists.count <= 1 ? lists.first?.observers ?? [] : Self.merged(lists)
    }

    /// Every observer, in no order.
    var all: [Observer] {
        (Array(byName.values) + [anyName]).flatMap { index in
            ([index.anyObject] + index.byObject.values).flatMap { $0.observers.compactMap(\.self) }
        }
    }

    private static func add(_ observer: Observer, _ key: Key, to index: inout ObjectIndex) {
        if let object = key.object {
            index.byObject[object, default: RegistrationList()].append(observer, number: key.number)
        } else {
            index.anyObject.append(observer, number: key.number)
        }
    }

    private static func remove(_ key: Key, from index: inout ObjectIndex) -> Observer? {
        guard let object = key.object else { return index.anyObject.remove(number: key.number) }
        let removed = index.byObject[object]?.remove(number: key.number)
        if index.byObject[object]?.isEmpty == true { index.byObject[object] = nil }
        return removed
    }

    /// Merges up to four ordered lists into one.
    private static func merged(_ lists: [RegistrationList<Observer>]) -> [Observer?] {
        var positions = lists.map { _ in 0 }
        var result: [Observer?] = []
        while true {
            var first: Int?
            for index in lists.indices where positions[index] < lists[index].numbers.count {
                let number = lists[index].numbers[positions[index]]
                if first.map({ number < lists[$0].numbers[positions[$0]] }) ?? true { first = index }
            }
            guard let first else { return result }
            result.append(lists[first].observers[positions[first]])
            positions[first] += 1
        }
    }
}

extension ObserverRegistry.Key: Sendable where Object: Sendable {}

/// Observers in the order of their registration. Finding or removing one by its number takes logarithmic time.
///
/// A removal leaves a gap. The list is compacted when more than half of it is gaps, so that removing all of 100 000 is
/// not quadratic.
package struct RegistrationList<Observer> {
    package private(set) var numbers: [UInt64] = []
    package private(set) var observers: [Observer?] = []
    private var gaps = 0

    package init() {}

    package var isEmpty: Bool { gaps == numbers.count }
    package var count: Int { numbers.count - gaps }

    /// - Parameter number: larger than all earlier numbers.
    package mutating func append(_ observer: Observer, number: UInt64) {
        numbers.append(number)
        observers.append(observer)
    }

    package mutating func remove(number: UInt64) -> Observer? {
        guard let index = index(of: number), let observer = observers[index] else { return nil }
        observers[index] = nil
        gaps += 1
        if gaps * 2 > numbers.count { compact() }
        return observer
    }

    private func index(of number: UInt64) -> Int? {
        var (low, high) = (0, numbers.count)
        while low < high {
            let middle = (low + high) / 2
            if numbers[middle] < number { low = middle + 1 } else { high = middle }
        }
        return low < numbers.count && numbers[low] == number ? low : nil
    }

    private mutating func compact() {
        let kept = zip(numbers, observers).filter { $0.1 != nil }
        numbers = kept.map(\.0)
        observers = kept.map(\.1)
        gaps = 0
    }
}

extension RegistrationList: Sendable where Observer: Sendable {}

/// An observer in the center's form: the handler, the place where it runs, and the notifications that wait for it.
final class Registration: Sendable {
    typealias Handler = @Sendable (WireNotification) -> Void

    private struct State {
        var queue: DeliveryQueue<WireNotification>
        /// `nil` once the registration has ended. This breaks a reference cycle: the observation keeps the registration
        /// for its counts, and the handler may hold the observation's owner.
        var handler: Handler?
        var drainJob: DrainJob?
    }

    /// The job of a background delivery. Made once: as a block, it goes to the queue without being copied. It is in a
    /// struct, because the runtime crashes when it makes metadata for an optional block.
    private struct DrainJob: Sendable {
        /// A queue per registration: the system starts a thread for each serial queue that has work, up to 255. The
        /// global queue, which tasks share, is limited to one thread per processor.
        let queue = DispatchQueue(label: "org.notifycenter.observer")
        let block: @convention(block) @Sendable () -> Void
    }

    let suspensionBehavior: SuspensionBehavior
    /// The rank in the order of registration, which the router assigns.
    let rank = Atomic<UInt64>(0)
    private let state: Locked<State>
    private let delivery: Delivery.Kind
    private let gate: DeliveryGate

    /// - Parameters:
    ///   - gate: the gate of the center that the registration is for.
    ///   - handler: the function to call; `nil` if the owner is woken, and calls ``takeNext()``.
    init(
        _ delivery: Delivery,
        _ buffering: Buffering,
        _ suspensionBehavior: SuspensionBehavior = .deliverImmediately,
        gate: DeliveryGate,
        _ handler: Handler? = nil
    ) {
        state = Locked(State(queue: DeliveryQueue(buffering), handler: handler))
        self.delivery = delivery.kind
        self.suspensionBehavior = suspensionBehavior
        self.gate = gate
    }

    var counts: DeliveryCounts { state.withLock { $0.queue.counts } }

    var waitingCount: Int { state.withLock { $0.queue.count } }

    // MARK: On the reading thread

    /// Takes a notification for delivery. Never blocks, unless the handler runs on this thread.
    func offer(_ notification: WireNotification, number: UInt64) {
        if case .immediate = delivery {
            // Checked right before the call: an earlier observer of the same post may have removed this one (CF-C3).
            let handler = state.withLock { state in
                state.queue.passThrough(number, below: gate.limit) ? state.handler : nil
            }
            if let handler { return handler(notification) }
        }
        deliverNext { $0.offer(notification, number: number, bytes: notification.bytes) }
    }

    /// Takes a notification that arrived during a suspension.
    func keep(_ notification: WireNotification, number: UInt64) {
        let bytes = notification.bytes
        state.withLock { state in
            switch suspensionBehavior {
            case .drop: state.queue.suppress()
            case .coalesce:
                state.queue.coalesce(notification, number: number, bytes: bytes, source: notification.source)
            case .hold, .deliverImmediately: state.queue.offer(notification, number: number, bytes: bytes)
            }
        }
    }

    /// Releases the notifications that waited because of a suspension.
    ///
    /// - Returns: the numbers for which the caller calls ``deliverNext(_:)`` once each. Notifications that already have
    ///   a job are left out: a backlog that is flushed repeatedly must not grow.
    func release() -> ArraySlice<UInt64> {
        state.withLock { state in
            let numbers = state.queue.release()
            return switch delivery {
            case .immediate: numbers[...]
            case .scheduled: numbers.suffix(state.queue.countWithoutJob)
            case .background, .executor, .wakes: numbers.prefix(1)
            }
        }
    }

    /// Starts one more delivery.
    ///
    /// - Parameter change: a change of the queue that is made first, under the same lock.
    func deliverNext(_ change: (inout DeliveryQueue<WireNotification>) -> Void = { _ in }) {
        switch delivery {
        case .immediate:
            state.withLock { change(&$0.queue) }
            if let (notification, handler) = take({ $0.next(below: $1) }) { handler(notification) }
        case .wakes(let wake):
            state.withLock { change(&$0.queue) }
            wake()
        case .scheduled(let schedule):
            // One job per notification, so that observers on one queue alternate post by post. A job that finds the
            // gate closed does nothing; the flush sends another.
            if ask(limit: .max, after: change) { schedule { self.deliverOne() } }
        case .background:
            if let job = askForDrain(after: change) { job.queue.async(execute: job.block) }
        case .executor(let executor):
            if ask(limit: 1, after: change) { Task(executorPreference: executor) { self.drain() } }
        }
    }

    // MARK: On any thread

    /// Returns the next notification that may be delivered, for an observer that takes notifications itself.
    func takeNext() -> WireNotification? { state.withLock { $0.queue.next(below: gate.limit) } }

    /// Ends the registration. No call begins after this, except on a thread that has already taken its notification.
    /// The handler is freed here, outside the lock.
    func cancel() {
        let handler = state.withLock { state -> Handler? in
            state.queue.cancel()
            defer { state.handler = nil }
            return state.handler
        }
        withExtendedLifetime(handler) {}
    }

    private func ask(limit: Int, after change: (inout DeliveryQueue<WireNotification>) -> Void) -> Bool {
        state.withLock { state in
            change(&state.queue)
            return state.queue.ask(limit: limit)
        }
    }

    private func askForDrain(after change: (inout DeliveryQueue<WireNotification>) -> Void) -> DrainJob? {
        state.withLock { state in
            change(&state.queue)
            guard state.queue.ask(limit: 1) else { return nil }
            // Weak, because the registration holds the job. A registration that has ended has nothing to deliver.
            let job = state.drainJob ?? DrainJob { [weak self] in self?.drain() }
            state.drainJob = job
            return job
        }
    }

    private func deliverOne() {
        let due = take { queue, limit in
            queue.endJob()
            return queue.next(below: limit)
        }
        if let (notification, handler) = due { handler(notification) }
    }

    /// The single job of a background delivery: delivers until the queue is empty.
    private func drain() {
        func next() -> (WireNotification, Handler)? {
            take { queue, limit in
                let notification = queue.next(below: limit)
                if notification == nil { queue.endJob() }
                return notification
            }
        }
        while let (notification, handler) = next() { handler(notification) }
    }

    /// Takes the next notification and the handler, which exists while there are notifications. The gate is read under
    /// the lock. A flush first opens the gate and then asks for a job, so either this job continues or the new one
    /// begins.
    private func take(
        _ next: @Sendable (inout DeliveryQueue<WireNotification>, UInt64) -> WireNotification?
    ) -> (WireNotification, Handler)? {
        state.withLock { state in
            guard let notification = next(&state.queue, gate.limit), let handler = state.handler else { return nil }
            return (notification, handler)
        }
    }
}

/// How notifications for an observer are treated while its center is suspended (CF-S3…S6). While it is not suspended,
/// all four behave the same (CF-S10).
public enum SuspensionBehavior: Int, Sendable, Hashable, CaseIterable {
    /// Notifications are lost (CF-S3).
    case drop = 1
    /// The last notification of each name and object waits, within the limits of the observer's ``Buffering`` (CF-S4).
    /// The default.
    case coalesce = 2
    /// All notifications wait, within the limits of the observer's ``Buffering`` (CF-S5).
    case hold = 3
    /// Notifications are delivered anyway, after everything that waits in the center (CF-S6).
    case deliverImmediately = 4
}

/// Decides whether a center's deliveries wait, and from which notification on (CF-S1…S16). Pure.
///
/// Notifications are numbered as they arrive; those numbered below ``limit`` may be delivered. Notifications that were
/// queued before the suspension therefore wait like the rest. So do notifications that a flush has not delivered when a
/// handler suspends again (CF-S14).
struct Suspension {
    private(set) var isSuspended = false
    /// Notifications from this number on wait.
    private(set) var limit = UInt64.max
    private var next: UInt64 = 0
    /// Whether ``resume()`` asked for a flush that has not happened yet. One pending flush is enough, however often the
    /// center is suspended and resumed before it.
    private var isFlushPending = false

    enum Arrival: Equatable {
        case deliver(UInt64)
        /// First everything that waits in the center is delivered, for all observers. The reason is that this
        /// notification is immediate (CF-S6, CF-S16), or that the suspension is over and the flush has not happened yet
        /// (CF-S8).
        case flushAndDeliver(UInt64)
        /// The suspension behaviour of each observer decides.
        case wait(UInt64)
    }

    /// - Parameter isImmediate: whether the post or a matching observer asks for immediate delivery.
    mutating func arrive(isImmediate: Bool) -> Arrival {
        defer { next += 1 }
        guard isSuspended else {
            if limit == .max { return .deliver(next) }
            limit = .max
            return .flushAndDeliver(next)
        }
        guard isImmediate else { return .wait(next) }
        // As if the center were resumed, delivered this notification, and were suspended again (CF-S6).
        limit = next + 1
        return .flushAndDeliver(next)
    }

    /// Suspends. Idempotent (CF-S9).
    mutating func suspend() {
        guard !isSuspended else { return }
        isSuspended = true
        limit = 0
    }

    /// Ends the suspension. Waiting notifications become due, and wait until ``flush()``. Returns whether the caller
    /// must arrange one more call of ``flush()``, now or later.
    mutating func resume() -> Bool {
        isSuspended = false
        guard limit != .max, !isFlushPending else { return false }
        isFlushPending = true
        return true
    }

    /// Allows all deliveries again, unless the center has been suspended again. Returns whether the caller must hand
    /// over everything that waits.
    mutating func flush() -> Bool {
        isFlushPending = false
        guard !isSuspended, limit != .max else { return false }
        limit = .max
        return true
    }
}

/// A center's ``Suspension/limit``. Each registration reads it right before a delivery.
final class DeliveryGate: Sendable {
    private let atomicLimit = Atomic<UInt64>(.max)

    /// Notifications with a lower number may be delivered.
    var limit: UInt64 {
        get { atomicLimit.load(ordering: .acquiring) }
        set { atomicLimit.store(newValue, ordering: .releasing) }
    }
}
