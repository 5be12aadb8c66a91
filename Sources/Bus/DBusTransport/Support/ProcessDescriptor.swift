import CLinux
import Glibc

/// A process by a descriptor of the kernel's (pidfd): it means this process also when its number has passed to another.
package final class ProcessDescriptor: Sendable {
    package let identifier: Int32
    /// Readable from the end of the process on.
    package let descriptor: CInt

    /// The process that has this number now; `nil`, with `errno` set, where there is none (`ESRCH`) or no descriptor is free.
    package init?(_ identifier: Int32) {
        self.identifier = identifier
        descriptor = CLinux_openProcess(identifier)
        guard descriptor >= 0 else { return nil }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Whether it has ended, collected or not.
    package var hasEnded: Bool { hasEnded(by: .now) }

    /// Sends a signal; nothing happens where the process has ended.
    package func send(_ signal: Int32) { _ = CLinux_signalProcess(descriptor, signal) }

    /// Waits for its end on this thread.
    ///
    /// - Returns: whether it has ended by then.
    package func hasEnded(by deadline: ContinuousClock.Instant) -> Bool {
        var look = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while true {
            let count = poll(&look, 1, milliseconds(until: deadline))
            if count > 0 { return true }
            if count == 0, ContinuousClock.now >= deadline { return false }
        }
    }
}
