import CLinux
import DBusTransport
import Dispatch
import FoundationEssentials
import Glibc
import Synchronization

/// Hears from the kernel that the wall clock has jumped: somebody has set it, or the machine has slept.
///
/// Unchecked: libdispatch's source is safe on any thread, which its type does not say.
final class ClockWatch: @unchecked Sendable {
    enum Jump: Sendable, Equatable {
        /// Somebody, or the network's time, has set the clock.
        case set
        /// The machine has slept, or stood still as a virtual machine does.
        case slept
    }

    private let source: any DispatchSourceRead

    /// - Parameter jumped: called on a queue of the watch's own.
    /// - Returns: `nil` where the kernel grants no such descriptor.
    init?(jumped: @escaping @Sendable (Jump) -> Void) {
        let descriptor = CLinux_openClockEvents()
        guard descriptor >= 0 else { return nil }
        let queue = DispatchQueue(label: "SharedDeviceBroker.clock")
        source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
        let slept = Locked(Self.timeAsleep())
        source.setEventHandler {
            guard CLinux_readClockEvents(descriptor) == 1 else { return }
            let present = Self.timeAsleep()
            let before = slept.withLock { slept in
                defer { slept = present }
                return slept
            }
            jumped(Self.jump(asleepBefore: before, now: present))
        }
        source.setCancelHandler { close(descriptor) }
        source.activate()
    }

    deinit { source.cancel() }

    /// - Parameters:
    ///   - asleepBefore: how long the machine had slept at the last jump.
    ///   - now: how long it has by now.
    static func jump(asleepBefore: Duration, now: Duration) -> Jump {
        now - asleepBefore >= BrokerState.leastSleep ? .slept : .set
    }

    /// How long the machine has slept since its start.
    private static func timeAsleep() -> Duration { Moment.now.asleep }
}

extension Moment {
    /// The present, by the system's clocks.
    package static var now: Moment {
        func time(_ clock: clockid_t) -> Duration {
            var time = timespec()
            clock_gettime(clock, &time)
            return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
        }
        let uptime = time(CLOCK_BOOTTIME)
        return Moment(wall: Date(), uptime: uptime, asleep: uptime - time(CLOCK_MONOTONIC))
    }
}
