import CDBus
import Glibc

/// An eventfd: any thread signals, one polls.
package struct EventDescriptor: ~Copyable {
    package let descriptor: CInt

    /// - Parameter purpose: what it is for, as errors say it was attempted.
    package init(_ purpose: String) throws(DBusError) {
        descriptor = eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK))
        guard descriptor >= 0 else {
            throw DBusError(
                .noResources,
                message: "eventfd failed: \(String(cString: strerror(errno)))",
                attempted: purpose,
                remedy: "raise the limit of open files (ulimit -n)"
            )
        }
    }

    deinit { close(descriptor) }

    package func signal() {
        // A full counter (EAGAIN) is a descriptor that is readable already.
        _ = eventfd_write(descriptor, 1)
    }

    package func clear() {
        var count: eventfd_t = 0
        _ = eventfd_read(descriptor, &count)
    }
}
