import DBusTransport
import Dispatch
import SharedDevice
import Synchronization

/// Feeds a ``BrokerState`` with events, one after the other, and carries its effects out in their order.
///
/// Whoever brings an event while no other is under way carries it through on its own thread: a question that can be answered at once is
/// answered on the thread that read it. Effects therefore wait for nothing; what waits goes to threads of its own and comes back as an event.
/// One alone may wait for the disk, because those that follow have to come after it: with them it goes to the engine's own thread.
/// Where others bring events without end, the thread gets away after a while: it may be the one that the disk waits for.
final class BrokerEngine: Sendable {
    private struct Box {
        var state: BrokerState
        var events = Queue<Event>()
        /// Whether somebody waits until there is room.
        var isAwaited = false
        /// Whether somebody carries events through. Before ``start(_:)`` nobody may, and they wait.
        var isRunning = true
        var armed: Duration?
        /// How many events have been taken.
        var taken: UInt64 = 0
        /// The event whose turn proves that the engine goes on.
        var proof: UInt64 = 0
    }

    private let box: Locked<Box>
    /// A struct around the closure: a generic lock that hands a bare closure out wraps it once more each time.
    private struct Performer: Sendable { let perform: @Sendable (Effect) -> Void }

    private let performer: Locked<Performer?> = Locked(nil)
    private let timer = Alarm()
    private let clock = Locked<ClockWatch?>(nil)
    private let roomMade = Locked<(@Sendable () -> Void)?>(nil)

    init(_ state: BrokerState) {
        box = Locked(Box(state: state))
        timer.onFire { [weak self] in self?.submit(.time) }
        // Where there is none, what a jump makes due is seen within a minute.
        let watch = ClockWatch { [weak self] in self?.submit(.time) }
        clock.withLock { $0 = watch }
    }

    /// From here on `perform` carries effects out: first those of the events that have come before. Called once.
    func start(_ perform: @escaping @Sendable (Effect) -> Void) {
        performer.withLock { $0 = Performer(perform: perform) }
        carryThrough(atMost: Self.eventsOfThread, mayWait: false)
    }

    /// How many events may wait before callers have to wait: so many at a time are carried through within milliseconds.
    private static let room = 32

    /// Whether a caller's request has its turn soon. Where it has not, what ``onRoom(_:)`` was given is called when it has.
    func hasRoom() -> Bool {
        box.withLock { box in
            if box.events.count >= Self.room { box.isAwaited = true }
            return !box.isAwaited
        }
    }

    /// - Parameter handler: called on any thread, once after ``hasRoom()`` has returned false.
    func onRoom(_ handler: @escaping @Sendable () -> Void) { roomMade.withLock { $0 = handler } }

    /// A view of the state between two events.
    func read<Value>(_ body: (BrokerState) -> Value) -> Value { box.withLock { body($0.state) } }

    /// Takes an event, on any thread, also before ``start(_:)``.
    func submit(_ event: Event) {
        let isMine = box.withLock { box in
            box.events.append(event)
            defer { box.isRunning = true }
            return !box.isRunning
        }
        if isMine { carryThrough(atMost: Self.eventsOfThread, mayWait: false) }
    }

    /// How many events a thread that has brought one carries through at most.
    private static let eventsOfThread = 64
    /// Where the rest of them is carried through. It does nothing else, so that nobody waits for it.
    private let rest = DispatchQueue(label: "SharedDeviceBroker.events")

    /// - Parameter mayWait: whether this thread may wait. That of whoever brings an event may be one of Swift's pool, or the bus's.
    private func carryThrough(atMost count: Int, mayWait: Bool) {
        guard let performer = performer.withLock({ $0 }) else { return }
        for _ in 0..<count {
            guard let effects = step() else { return }
            let first = mayWait ? nil : effects.firstIndex(where: \.mayWait)
            for effect in effects[..<(first ?? effects.endIndex)] { performer.perform(effect) }
            guard let first else { continue }
            return rest.async {
                for effect in effects[first...] { performer.perform(effect) }
                self.carryThrough(atMost: .max, mayWait: true)
            }
        }
        rest.async { self.carryThrough(atMost: .max, mayWait: true) }
    }

    /// Whether the engine goes on: brings an event that changes nothing, and says whether that of the last call has had its turn. It has
    /// none as long as an earlier event's effect does not end.
    func hasGoneOn() -> Bool {
        let hasGoneOn = box.withLock { box in
            guard box.taken >= box.proof else { return false }
            box.proof = box.taken + UInt64(box.events.count) + 1
            return true
        }
        if hasGoneOn { submit(.time) }
        return hasGoneOn
    }

    /// - Returns: the effects of the next event; `nil` if there is none.
    private func step() -> [Effect]? {
        let now = Moment.now
        let (effects, hasRoom) = box.withLock { box -> ([Effect]?, Bool) in
            let hasRoom = box.isAwaited && box.events.count <= Self.room / 2
            if hasRoom { box.isAwaited = false }
            guard let event = box.events.popFirst() else {
                box.isRunning = false
                arm(&box, now)
                return (nil, hasRoom)
            }
            box.taken &+= 1
            // The timer has fired, or has stood still: the next deadline is set anew, also if it is the same.
            if case .time = event { box.armed = nil }
            return (box.state.reduce(event, at: now), hasRoom)
        }
        if hasRoom { roomMade.withLock { $0 }?() }
        return effects
    }

    private func arm(_ box: inout Box, _ now: Moment) {
        let deadline = box.state.nextDeadline
        guard deadline != box.armed else { return }
        box.armed = deadline
        // The timer's clock may be ahead by the fraction that it rounds away, and stands still while the device sleeps.
        timer.set(deadline.map { min(max(.zero, $0 - now.uptime) + .milliseconds(1), .seconds(60)) })
    }
}

extension Effect {
    /// Whether whoever carries it out may wait for the disk.
    fileprivate var mayWait: Bool { if case .noteState = self { true } else { false } }
}

/// A timer that is set again and again.
///
/// Unchecked: libdispatch's source is safe on any thread, which its type does not say.
private final class Alarm: @unchecked Sendable {
    private let source = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "SharedDeviceBroker.time"))

    deinit { source.cancel() }

    func onFire(_ handler: @escaping @Sendable () -> Void) {
        source.setEventHandler(handler: handler)
        source.activate()
    }

    /// - Parameter wait: `nil` means never.
    func set(_ wait: Duration?) {
        guard let wait else { return source.schedule(deadline: .distantFuture) }
        let (seconds, attoseconds) = wait.components
        source.schedule(deadline: .now() + .seconds(Int(seconds)) + .nanoseconds(Int(attoseconds / 1_000_000_000)))
    }
}
