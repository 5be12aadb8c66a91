import CLinux
import Glibc

/// A process by its descriptor (pidfd), which keeps meaning this process after its ID is reused.
public final class ProcessDescriptor: Sendable {
    public let identifier: Int32
    /// Readable once the process has ended.
    public let descriptor: CInt

    /// Opens the process that has this ID now; `nil`, with `errno` set, if there is none (`ESRCH`) or no descriptor is
    /// free.
    public init?(_ identifier: Int32) {
        self.identifier = identifier
        descriptor = CLinux_openProcess(identifier)
        guard descriptor >= 0 else { return nil }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Whether the process has ended, reaped or not.
    public var hasEnded: Bool { hasEnded(by: .now) }

    /// Sends a signal. No effect if the process has ended.
    public func send(_ signal: Int32) { _ = CLinux_signalProcess(descriptor, signal) }

    /// Waits on this thread for the end of the process.
    ///
    /// - Returns: whether it ended before the deadline.
    public func hasEnded(by deadline: ContinuousClock.Instant) -> Bool {
        var look = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while true {
            let count = poll(&look, 1, milliseconds(until: deadline))
            if count > 0 { return true }
            if count == 0, ContinuousClock.now >= deadline { return false }
        }
    }
}
