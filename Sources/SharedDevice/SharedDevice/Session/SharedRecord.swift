import FoundationEssentials
import Glibc

/// The app's record, which all processes of the app share: what one of them writes the others see at their next question.
///
/// Its bytes are read anew each time, and made a record of where they are others: no stamp of a file tells all changes of its content, because
/// file systems use inodes again and count time in steps.
///
/// For one caller at a time within a process; ``SessionKeeper`` sees to that. Between processes a lock on a file beside the record does.
struct SharedRecord: Sendable {
    private let store: SessionStore
    private var latest: (bytes: [UInt8]?, record: SessionRecord)?

    init(store: SessionStore) { self.store = store }

    /// Changes the record; it is on the disk on return. `body` may run twice.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``; nothing has changed then.
    mutating func update<Value>(_ body: (inout SessionRecord) -> Value) throws(SharedDeviceError) -> Value {
        let before = try load()
        var record = before
        let value = body(&record)
        if record == before { return value }
        let lock = try FileLock(path: store.path + ".lock")
        defer { withExtendedLifetime(lock) {} }
        // Another process may have been quicker.
        let latest = try load()
        record = latest
        let result = body(&record)
        if record != latest { try store.save(record) }
        return result
    }

    private mutating func load() throws(SharedDeviceError) -> SessionRecord {
        let bytes = try store.read()
        if let latest, latest.bytes == bytes { return latest.record }
        let record = try store.decode(bytes)
        latest = (bytes, record)
        return record
    }
}

/// Held until its end of life, or the process's.
final class FileLock {
    private let descriptor: CInt

    /// Waits for the lock; the file and its directory are made where they are missing.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``.
    init(path: String) throws(SharedDeviceError) {
        let directory = URL(filePath: path).deletingLastPathComponent().path
        try? FileManager.default.createDirectory(
            atPath: directory,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700]
        )
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw Self.failure(path) }
        while flock(descriptor, LOCK_EX) != 0 {
            guard errno == EINTR else {
                let error = Self.failure(path)
                close(descriptor)
                throw error
            }
        }
    }

    deinit { close(descriptor) }

    private static func failure(_ path: String) -> SharedDeviceError {
        SharedDeviceError(
            .recordUnusable,
            attempted: "lock the record of whose data this app holds, \(path)",
            message: "\(String(cString: strerror(errno))). Make its directory writable"
        )
    }
}
