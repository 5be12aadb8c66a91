import Basics
import DBus
import Dispatch
public import FoundationEssentials
import Glibc

/// The app's record, shared by all processes of the app. A change by one process is visible to the others at their next
/// request.
///
/// The file is read again after a change. It is kept open until then, because a file system may give the inode of a
/// closed file to its successor.
///
/// ``SessionKeeper`` ensures one caller at a time within a process; a lock file next to the record does so between
/// processes.
struct SharedRecord: Sendable {
    private let store: SessionStore
    private var latest: (file: HeldFile?, record: SessionRecord)?

    init(store: SessionStore) { self.store = store }

    /// The sessions in the record when this process last read it. Reads the record if it has not been read yet.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``.
    mutating func sessions() throws(SharedDeviceError) -> [SessionRecord.Session] {
        if latest == nil { _ = try load() }
        return latest?.record.mayHoldData ?? []
    }

    /// Changes the record. On return the change is on disk. `body` may run twice.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``; the record is then unchanged.
    mutating func update<Value: Sendable>(
        _ body: @escaping @Sendable (inout SessionRecord) -> Value
    ) async throws(SharedDeviceError) -> Value {
        let before = try load()
        var record = before
        let value = body(&record)
        guard record.hasNews(since: before) else { return value }
        let (replaced, written) = try await onSystemThread { [self] () throws(SharedDeviceError) in
            var copy = self
            return (try copy.replaceHere(body), copy)
        }
        self = written
        return replaced
    }

    /// Blocks the thread until no other process writes the record, and until the change is on disk.
    private mutating func replaceHere<Value>(_ body: (inout SessionRecord) -> Value) throws(SharedDeviceError) -> Value
    {
        let lock = try FileLock(path: store.path + ".lock")
        defer { withExtendedLifetime(lock) {} }
        // Another process may have changed the record before the lock was taken.
        let before = try load()
        var record = before
        let value = body(&record)
        if record.hasNews(since: before) {
            // Without a file, the next access reads the record again.
            let file = try store.save(record)
            latest = file.map { (file: $0, record: record) }
        }
        return value
    }

    private mutating func load() throws(SharedDeviceError) -> SessionRecord {
        if let latest, HeldFile.isUnchanged(latest.file, at: store.path) { return latest.record }
        let (bytes, file) = try store.read()
        let record = try store.decode(bytes)
        latest = (file, record)
        return record
    }
}

/// An open file that can later be recognised at its path.
final class HeldFile: Sendable {
    private struct Identity: Equatable {
        let device: dev_t
        let inode: ino_t
        // These fields detect a program that writes into the file instead of replacing it. No program can set the
        // change time.
        let size: off_t
        let seconds: Int
        let nanoseconds: Int

        init(_ status: stat) {
            device = status.st_dev
            inode = status.st_ino
            size = status.st_size
            seconds = status.st_ctim.tv_sec
            nanoseconds = status.st_ctim.tv_nsec
        }
    }

    private let descriptor: CInt
    private let identity: Identity

    /// Takes ownership of the descriptor. Call it before reading the file, so that a later change is detected.
    ///
    /// - Returns: `nil` if `fstat` fails.
    init?(_ descriptor: CInt) {
        self.descriptor = descriptor
        var status = stat()
        let isKnown = fstat(descriptor, &status) == 0
        identity = Identity(status)
        guard isKnown else { return nil }
    }

    deinit { close(descriptor) }

    func hasContent(_ content: [UInt8]) -> Bool {
        var copy = [UInt8](repeating: 0, count: content.count + 1)
        return pread(descriptor, &copy, copy.count, 0) == content.count && copy.dropLast() == content[...]
    }

    /// Whether the path still leads to this file; for `nil`, whether the path leads to no file.
    static func isUnchanged(_ file: HeldFile?, at path: String) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0 else { return file == nil && errno == ENOENT }
        return file?.identity == Identity(status)
    }
}

/// Runs `body`, which may wait for the disk or for another process, on a separate thread: Dispatch's global queues
/// share their few threads with Swift's tasks. If the system grants no thread, `body` runs on such a queue.
@_spi(Extensions) public func onSystemThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let result: Result<Value, Failure> = await withCheckedContinuation { continuation in
        let work: @Sendable () -> Void = { continuation.resume(returning: Result(catching: body)) }
        if QuietThread.start("blocking", work) == nil { DispatchQueue.global().async(execute: work) }
    }
    return try result.get()
}

/// A lock that is held until this object or the process ends.
final class FileLock {
    private let descriptor: CInt

    /// Waits for the lock. Creates the file and its directory if necessary.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``.
    init(path: String) throws(SharedDeviceError) {
        let flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW
        var file = open(path, flags, 0o600)
        if file < 0, errno == ENOENT {
            try? makePrivateDirectory(parentDirectory(of: path))
            file = open(path, flags, 0o600)
        }
        descriptor = file
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
            attempted: "lock the record of the sessions whose data this app holds, \(path)",
            message: "\(String(cString: strerror(errno))). Make its directory writable"
        )
    }
}

/// Creates the directory and its parents, accessible only to this user. Does nothing if it exists.
func makePrivateDirectory(_ path: String) throws {
    var status = stat()
    // A shortcut for the usual case: FileManager looks at every part of the path.
    if stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR { return }
    try FileManager.default.createDirectory(
        atPath: path,
        withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700]
    )
}
