package import BrokerCore
import CLinux
import Dispatch
import FoundationEssentials
import Glibc
import Synchronization

/// Notices through the kernel that the wall clock has jumped: it was set, or the machine slept. The readings of the
/// clocks tell the two apart.
///
/// Unchecked: a libdispatch source is safe on any thread, which its type does not say.
final class ClockWatch: @unchecked Sendable {
    private let source: any DispatchSourceRead

    /// - Parameter jumped: Called on the watch's own queue.
    /// - Returns: `nil` if the kernel provides no descriptor that reports clock jumps.
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
