import CDBus
import Glibc

/// An eventfd: any thread signals, the I/O thread polls.
struct EventDescriptor: ~Copyable {
    let descriptor: CInt

    init() throws(DBusError) {
        descriptor = eventfd(0, CInt(EFD_CLOEXEC) | CInt(EFD_NONBLOCK))
        guard descriptor >= 0 else {
            throw DBusError(
                .noResources,
                message: "eventfd failed: \(String(cString: strerror(errno)))",
                attempted: "open a D-Bus connection",
                remedy: "raise the limit of open files (ulimit -n)"
            )
        }
    }

    deinit { close(descriptor) }

    func signal() {
        // A full counter (EAGAIN) is a descriptor that is readable already.
        _ = eventfd_write(descriptor, 1)
    }

    func clear() {
        var count: eventfd_t = 0
        _ = eventfd_read(descriptor, &count)
    }
}
