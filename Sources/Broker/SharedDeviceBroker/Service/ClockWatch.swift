import CLinux
import DBusTransport
import Dispatch
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

    /// From what on the time without the processor counts as sleep. Both clocks are read one after the other.
    private static let leastSleep = Duration.seconds(1)

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
        now - asleepBefore >= leastSleep ? .slept : .set
    }

    /// How long the machine has slept since its start.
    private static func timeAsleep() -> Duration {
        func time(_ clock: clockid_t) -> Duration {
            var time = timespec()
            clock_gettime(clock, &time)
            return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
        }
        return time(CLOCK_BOOTTIME) - time(CLOCK_MONOTONIC)
    }
}
