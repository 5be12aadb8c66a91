import Glibc

/// Keeps a state directory to one broker. It ends with this object, or with the process, however that ends.
final class ServiceLock: Sendable {
    private let descriptor: CInt

    /// - Throws: ``StoreError``; `busy` where another broker has it.
    init(directory: String) throws(StoreError) {
        let path = "\(directory)/shared-device-broker.lock"
        let attempted = "keep \(directory) to this broker"
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else {
            throw PrivateFiles.failure(errno, attempted: attempted, otherwise: .failed)
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let code = errno
            close(descriptor)
            guard code == EWOULDBLOCK else {
                throw PrivateFiles.failure(code, attempted: attempted, otherwise: .failed)
            }
            throw StoreError(
                .busy,
                attempted: attempted,
                message: "another broker uses it",
                remedy: "end that one, or give this one a state directory of its own"
            )
        }
        self.descriptor = descriptor
    }

    deinit { close(descriptor) }
}
