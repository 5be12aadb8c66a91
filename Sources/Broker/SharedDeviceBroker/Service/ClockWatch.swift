import CLinux
import DBusTransport
import Dispatch
import FoundationEssentials
import Glibc
import Synchronization

/// Hears from the kernel that the wall clock has jumped: somebody has set it, or the machine has slept. The clocks say which of the two it was.
///
/// Unchecked: libdispatch's source is safe on any thread, which its type does not say.
final class ClockWatch: @unchecked Sendable {
    private let source: any DispatchSourceRead

    /// - Parameter jumped: called on a queue of the watch's own.
    /// - Returns: `nil` where the kernel grants no such descriptor.
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
    /// The present, by the system's clocks.
    package static var now: Moment {
        func time(_ clock: clockid_t) -> Duration {
            var time = timespec()
            clock_gettime(clock, &time)
            return .seconds(Int64(time.tv_sec)) + .nanoseconds(Int64(time.tv_nsec))
        }
        // A thread that is paused between the two readings would take the pause for a sleep, so it reads again.
        while true {
            let before = time(CLOCK_MONOTONIC)
            let uptime = time(CLOCK_BOOTTIME)
            guard time(CLOCK_MONOTONIC) - before < .milliseconds(100) else { continue }
            return Moment(wall: Date(), uptime: uptime, asleep: uptime - before)
        }
    }
}
