import Basics
package import BrokerCore
import CLinux
import DBus
import DBusService
import Dispatch
import FoundationEssentials
import Glibc
import SharedDevice
import Synchronization

/// Feeds a ``BrokerState`` with events, one at a time, and carries out its effects in order.
///
/// A thread that submits an event while the engine is idle processes the event itself, so a request that needs no wait
/// is answered on the thread that read it. Effects must therefore not block: longer work goes to other threads and
/// comes back as an event. One effect may wait for the disk (`mayWait`). It runs on the engine's own queue, with the
/// effects that follow it. A submitting thread hands all but a limited number of events to that queue.
final class BrokerEngine: Sendable {
    private struct Box {
        var state: BrokerState
        var events = Queue<Event>()
        var isAwaited = false
        /// Whether a thread is processing events. It starts as `true`, so that events queue until ``start(_:)``.
        var isRunning = true
        /// The deadline that the timer is set for, or an earlier one; `nil` if it is not set.
        var armed: Duration?
        var taken: UInt64 = 0
        /// The engine is making progress once ``taken`` has reached this number.
        var proof: UInt64 = 0
    }

    private let box: Locked<Box>
    /// Wraps the closure in a struct: a generic lock that returns a bare closure wraps it again each time.
    private struct Performer: Sendable { let perform: @Sendable (Effect) -> Void }

    private let performer: Locked<Performer?> = Locked(nil)
    private let timer = Alarm()
    private let clock = Locked<ClockWatch?>(nil)
    private let roomMade = Locked<(@Sendable () -> Void)?>(nil)

    init(_ state: BrokerState) {
        box = Locked(Box(state: state))
        timer.onFire { [weak self] in self?.submit(.time) }
        // Without a clock watch, deadlines that a clock jump makes due are noticed within a minute.
        let watch = ClockWatch { [weak self] in self?.submit(.time) }
        clock.withLock { $0 = watch }
    }

    /// Begins to carry out effects with `perform`, starting with those of queued events. Call it once.
    func start(_ perform: @escaping @Sendable (Effect) -> Void) {
        performer.withLock { $0 = Performer(perform: perform) }
        carryThrough(atMost: Self.eventsOfThread, mayWait: false)
    }

    /// How many events may be queued before callers have to wait. This many take a few milliseconds.
    private static let room = 32

    /// Whether a request would be processed soon. After a `false`, ``onRoom(_:)`` calls its handler when there is room.
    func hasRoom() -> Bool {
        box.withLock { box in
            if box.events.count >= Self.room { box.isAwaited = true }
            return !box.isAwaited
        }
    }

    /// - Parameter handler: Called on any thread, once after ``hasRoom()`` has returned `false`.
    func onRoom(_ handler: @escaping @Sendable () -> Void) { roomMade.withLock { $0 = handler } }

    func read<Value>(_ body: (BrokerState) -> Value) -> Value { box.withLock { body($0.state) } }

    /// Takes an event on any thread, also before ``start(_:)``.
    func submit(_ event: Event) {
        let isMine = box.withLock { box in
            box.events.append(event)
            defer { box.isRunning = true }
            return !box.isRunning
        }
        if isMine { carryThrough(atMost: Self.eventsOfThread, mayWait: false) }
    }

    private static let eventsOfThread = 64
    /// Processes the remaining events. It has no other work that could be held up.
    private let rest = DispatchQueue(label: "SharedDeviceBroker.events")

    /// - Parameter mayWait: Whether this thread may block: it may belong to Swift's pool, or be the bus's reading
    ///   thread.
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

    /// Whether the engine is making progress: submits an event, and returns whether that of the previous call was
    /// processed.
    func hasGoneOn() -> Bool {
        let hasGoneOn = box.withLock { box in
            guard box.taken >= box.proof else { return false }
            box.proof = box.taken + UInt64(box.events.count) + 1
            return true
        }
        if hasGoneOn { submit(.time) }
        return hasGoneOn
    }

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
            // The timer fired or was stalled: arm it again even for the same deadline.
            if case .time = event { box.armed = nil }
            return (box.state.reduce(event, at: now), hasRoom)
        }
        if hasRoom { roomMade.withLock { $0 }?() }
        return effects
    }

    private func arm(_ box: inout Box, _ now: Moment) {
        let deadline = box.state.nextDeadline
        // Setting the timer wakes a thread. For a later deadline the timer stays as it is, and fires once too early.
        guard let deadline, box.armed.map({ deadline < $0 }) ?? true else { return }
        box.armed = deadline
        // The timer rounds down to its resolution, hence the extra millisecond. It stops while the device sleeps, hence
        // the maximum of 60 seconds.
        timer.set(min(max(.zero, deadline - now.uptime) + .milliseconds(1), .seconds(60)))
    }
}

extension Effect {
    fileprivate var mayWait: Bool { if case .noteState = self { true } else { false } }
}

/// A timer that can be set repeatedly. Unchecked: a libdispatch source is safe on any thread.
private final class Alarm: @unchecked Sendable {
    private let source = DispatchSource.makeTimerSource(queue: DispatchQueue(label: "SharedDeviceBroker.time"))

    deinit { source.cancel() }

    func onFire(_ handler: @escaping @Sendable () -> Void) {
        source.setEventHandler(handler: handler)
        source.activate()
    }

    func set(_ wait: Duration) {
        // Both intervals saturate; a conversion of the whole wait to nanoseconds could overflow.
        let (seconds, attoseconds) = wait.components
        source.schedule(deadline: .now() + .seconds(Int(seconds)) + .nanoseconds(Int(attoseconds / 1_000_000_000)))
    }
}

/// Notices through the kernel that the wall clock has jumped: it was set, or the machine slept. Unchecked: a
/// libdispatch source is safe on any thread.
final class ClockWatch: @unchecked Sendable {
    private let source: any DispatchSourceRead

    /// Returns `nil` if the kernel provides no descriptor that reports clock jumps.
    init?(jumped: @escaping @Sendable () -> Void) {
        let descriptor = CLinux_openClockEvents()
        guard descriptor >= 0 else { return nil }
        let queue = DispatchQueue(label: "SharedDeviceBroker.clock")
        source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
        source.setEventHandler { if CLinux_readClockEvents(descriptor) == 1 { jumped() } }
        source.setCancelHandler { close(descriptor) }
        source.activate()
    }

    deinit { source.cancel() }
}

extension Moment {
    package static var now: Moment {
        func time(_ clock: clockid_t) -> Duration {
            var time = timespec()
            clock_gettime(clock, &time)
            return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
        }
        // If the thread is paused between the two readings, the pause would count as sleep. Read again.
        while true {
            let before = time(CLOCK_MONOTONIC)
            let uptime = time(CLOCK_BOOTTIME)
            guard time(CLOCK_MONOTONIC) - before < .milliseconds(100) else { continue }
            return Moment(wall: Date(), uptime: uptime, asleep: uptime - before)
        }
    }
}
