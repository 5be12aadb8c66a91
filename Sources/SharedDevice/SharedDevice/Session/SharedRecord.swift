import DBusTransport
import Dispatch
package import FoundationEssentials
import Glibc

/// The app's record, which all processes of the app share: each sees at its next question what another has written.
///
/// The file is read again when it was replaced. It is kept open until then, because a file system gives the inode of a closed file to the next one.
///
/// Within a process there is one caller at a time, which ``SessionKeeper`` ensures. Between processes a lock on a file beside the record does.
struct SharedRecord: Sendable {
    private let store: SessionStore
    private var latest: (file: HeldFile?, record: SessionRecord)?

    init(store: SessionStore) { self.store = store }

    /// The sessions that the record had when this process read it last. Reads it if that never happened.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``.
    mutating func sessions() throws(SharedDeviceError) -> [SessionRecord.Session] {
        if latest == nil { _ = try load() }
        return latest?.record.mayHoldData ?? []
    }

    /// Changes the record. On return the change is on the disk. `body` may run twice.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``; nothing has changed then.
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

    /// Blocks the thread until no other process writes the record, and until the disk has it.
    private mutating func replaceHere<Value>(_ body: (inout SessionRecord) -> Value) throws(SharedDeviceError) -> Value
    {
        let lock = try FileLock(path: store.path + ".lock")
        defer { withExtendedLifetime(lock) {} }
        // Another process may have changed the record meanwhile.
        let before = try load()
        var record = before
        let value = body(&record)
        if record.hasNews(since: before) {
            // Read again where what lies there is not known to be this.
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

/// A file that was read, and that stays open so that it can be known again.
final class HeldFile: Sendable {
    private struct Identity: Equatable {
        let device: dev_t
        let inode: ino_t
        // For whoever writes into the file in place of replacing it. No program can set this time.
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

    /// Takes the descriptor over, and closes it at the end. To be called before the file is read, so that a later change shows.
    ///
    /// - Returns: `nil` where the system does not say what it is.
    init?(_ descriptor: CInt) {
        self.descriptor = descriptor
        var status = stat()
        let isKnown = fstat(descriptor, &status) == 0
        identity = Identity(status)
        guard isKnown else { return nil }
    }

    deinit { close(descriptor) }

    /// Whether it has this content and no other.
    func hasContent(_ content: [UInt8]) -> Bool {
        var copy = [UInt8](repeating: 0, count: content.count + 1)
        return pread(descriptor, &copy, copy.count, 0) == content.count && copy.dropLast() == content[...]
    }

    /// Whether the path leads to this file still; without a file, whether it leads to none.
    static func isUnchanged(_ file: HeldFile?, at path: String) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0 else { return file == nil && errno == ENOENT }
        return file?.identity == Identity(status)
    }
}

/// Runs `body`, which may wait for the disk or for another process, on a thread of its own: those of Dispatch's global queues are Swift's, and few. Where
/// the system grants no thread, it is one of those.
///
/// - Throws: what `body` throws.
package func onSystemThread<Value: Sendable, Failure: Error>(
    _ body: @escaping @Sendable () throws(Failure) -> Value
) async throws(Failure) -> Value {
    let result: Result<Value, Failure> = await withCheckedContinuation { continuation in
        let work: @Sendable () -> Void = { continuation.resume(returning: Result(catching: body)) }
        if QuietThread.start("blocking", work) == nil { DispatchQueue.global().async(execute: work) }
    }
    return try result.get()
}

/// A lock that is held until this value, or the process, ends.
final class FileLock {
    private let descriptor: CInt

    /// Waits for the lock. Makes the file and its directory if they are missing.
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
            attempted: "lock the record of whose data this app holds, \(path)",
            message: "\(String(cString: strerror(errno))). Make its directory writable"
        )
    }
}

/// A small file that is replaced in one step: a crash or a power cut leaves either the old content or the new. For one writer at a time.
package struct AtomicFile: Sendable {
    package let path: String

    /// The file at this path, which need not be there. Its directory has to.
    package init(path: String) { self.path = path }

    /// What the system refused, in its own words.
    package struct Failure: Error, CustomStringConvertible {
        package let description: String

        /// A failure with the reason in `errno`.
        init(_ what: String) { description = "\(what): \(String(cString: strerror(errno)))" }
    }

    /// Writes a second file, forces it to the disk, renames it, and forces the directory to the disk.
    package func write(_ data: Data) throws(Failure) { _ = try replace([UInt8](data)) }

    /// The same.
    ///
    /// - Returns: the file, where nobody has changed it since.
    func replace(_ content: [UInt8]) throws(Failure) -> HeldFile? {
        let temporary = path + ".new"
        let file = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Failure("open \(temporary)") }
        var isHeld = false
        defer { if !isHeld { close(file) } }
        var rest = content[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
            guard written > 0 else {
                if errno == EINTR { continue }
                throw Failure("write \(temporary)")
            }
            rest = rest.dropFirst(written)
        }
        guard fsync(file) == 0, rename(temporary, path) == 0 else { throw Failure("replace \(path)") }
        // Held first and compared then, so that a later change shows; renaming has changed the file's time.
        isHeld = true
        let held = HeldFile(file)
        let isSame = held?.hasContent(content) ?? false
        try syncDirectory()
        return isSame ? held : nil
    }

    /// Removes the file and what a crash left beside it; does nothing if there is none. On return the removal is on the disk.
    package func remove() throws(Failure) {
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
    var directory: String { parentDirectory(of: path) }

    private func syncDirectory() throws(Failure) {
        let folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { throw Failure("open \(directory)") }
        defer { close(folder) }
        guard fsync(folder) == 0 else { throw Failure("sync \(directory)") }
    }
}

/// The directory that holds the file.
private func parentDirectory(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
}

/// Makes the directory, and those that hold it, for this user alone. Does nothing if it is there.
func makePrivateDirectory(_ path: String) throws {
    var status = stat()
    // The usual case: FileManager looks at every part of the path.
    if stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR { return }
    try FileManager.default.createDirectory(
        atPath: path,
        withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700]
    )
}
