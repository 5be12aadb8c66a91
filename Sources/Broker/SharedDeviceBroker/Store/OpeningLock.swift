import Glibc

/// Keeps two processes from making or migrating one database at once. SQLite's own locks cover neither: both the change
/// to WAL and a chain of migrations are several transactions.
///
/// The lock ends with the process that holds it, however that dies.
struct OpeningLock: ~Copyable {
    private let descriptor: CInt

    /// Waits for the lock file at `path`, which exists.
    init(path: String, timeout: Duration) throws(StoreError) {
        let attempted = "lock \(path)"
        let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            throw PrivateFiles.failure(errno, attempted: attempted, otherwise: .failed)
        }
        let deadline = ContinuousClock.now + timeout
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            if code == EINTR { continue }
            guard code == EWOULDBLOCK else {
                close(descriptor)
                throw PrivateFiles.failure(code, attempted: attempted, otherwise: .failed)
            }
            guard ContinuousClock.now < deadline else {
                close(descriptor)
                throw StoreError(
                    .busy,
                    attempted: attempted,
                    message: "another process has held it for \(timeout)",
                    remedy: "see with fuser which process it is, and try again"
                )
            }
            usleep(10_000)
        }
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }
}
