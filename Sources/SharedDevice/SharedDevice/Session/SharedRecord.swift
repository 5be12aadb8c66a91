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

/// A small file that is replaced whole or not at all: a crash or a power cut leaves the old content or the other. For one
/// writer at a time.
struct AtomicFile: Sendable {
    let path: String

    /// What the system refused, in the words that it has for it.
    struct Failure: Error, CustomStringConvertible {
        let description: String

        /// The failure that `errno` tells of.
        init(_ what: String) { description = "\(what): \(String(cString: strerror(errno)))" }
    }

    /// Writes beside, forces to the disk, renames, and forces the directory.
    func write(_ data: Data) throws(Failure) {
        let temporary = path + ".new"
        let file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Failure("open \(temporary)") }
        defer { close(file) }
        var rest = [UInt8](data)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
            guard written > 0 else {
                if errno == EINTR { continue }
                throw Failure("write \(temporary)")
            }
            rest = rest.dropFirst(written)
        }
        guard fsync(file) == 0, rename(temporary, path) == 0 else { throw Failure("replace \(path)") }
        try syncDirectory()
    }

    /// Removes the file and what a crash left beside it; nothing where there is none. On the disk when this returns.
    func remove() throws(Failure) {
        var removed = false
        for name in [path + ".new", path] {
            if unlink(name) == 0 {
                removed = true
            } else if errno != ENOENT, errno != ENOTDIR {
                throw Failure("remove \(name)")
            }
        }
        if removed { try syncDirectory() }
    }

    /// The directory that holds the file.
    var directory: String { URL(filePath: path).deletingLastPathComponent().path }

    private func syncDirectory() throws(Failure) {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw Failure("open \(directory)") }
        defer { close(folder) }
        guard fsync(folder) == 0 else { throw Failure("sync \(directory)") }
    }
}
