import CLinux
import Fleet
import Glibc

/// The machine's clocks.
enum SystemClock {
    /// Names this run of the machine.
    static let boot: String = {
        let bytes = (try? FleetFiles.read("/proc/sys/kernel/random/boot_id", atMost: 100)) ?? nil
        return String(decoding: bytes ?? [], as: UTF8.self).filter { $0 != "\n" }
    }()

    static func seconds(_ clock: clockid_t) -> Double {
        var time = timespec()
        clock_gettime(clock, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    /// Whether something keeps the wall clock right, by the kernel's word.
    static var isSynchronised: Bool { CLinux_isClockSynchronised() != 0 }
}

extension Moment {
    static var now: Moment {
        Moment(
            uptime: SystemClock.seconds(CLOCK_BOOTTIME),
            wall: SystemClock.seconds(CLOCK_REALTIME),
            boot: SystemClock.boot
        )
    }
}
