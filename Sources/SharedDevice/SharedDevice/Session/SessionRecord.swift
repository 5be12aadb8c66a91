import Basics
import DBus
import Dispatch
import FoundationEssentials
import Glibc

/// The sessions whose data this app may hold. A pure value; ``SessionStore`` keeps it on disk.
///
/// A session enters the record before the app learns of it, and leaves when the app reports that its data is deleted. A
/// crash at any time therefore leaves a pending cleanup, never a leak: the next start cleans up the recorded sessions
/// (architecture, D10).
@_spi(Extensions) public struct SessionRecord: Codable, Equatable, Sendable {
    /// A period in which one account is signed in. The same account after a sign-out is a new session, because another
    /// person may have used the device in between (edge cases E1, E2).
    @_spi(Extensions) public struct Session: Codable, Equatable, Sendable {
        @_spi(Extensions) public let account: Account
        @_spi(Extensions) public let epoch: UInt64

        @_spi(Extensions) public init(account: Account, epoch: UInt64) { (self.account, self.epoch) = (account, epoch) }
    }

    /// A finished cleanup that the broker has not confirmed yet.
    @_spi(Extensions) public struct Receipt: Codable, Equatable, Sendable {
        @_spi(Extensions) public let epoch: UInt64
        @_spi(Extensions) public let detail: String?
        /// The broker's mark (``OwedSession/mark``) when the cleanup began; `nil` if there was none.
        @_spi(Extensions) public let mark: UInt64?

        @_spi(Extensions) public init(epoch: UInt64, detail: String?, mark: UInt64) {
            (self.epoch, self.detail, self.mark) = (epoch, detail, mark == 0 ? nil : mark)
        }
    }

    /// The account that ``SharedDeviceApplication/getCurrentAccount()`` reported last: MSAL's previous account.
    @_spi(Extensions) public private(set) var lastReported: Account?
    /// Sessions whose data may be on disk, oldest first.
    @_spi(Extensions) public private(set) var mayHoldData: [Session] = []
    /// Receipts that the broker may still need.
    @_spi(Extensions) public private(set) var receiptsDue: [Receipt] = []
    /// The epochs of sessions that more than one process of this app handles. While one process cleans up, another may
    /// store data: a finished step may have to run again.
    @_spi(Extensions) public private(set) var shared: Set<UInt64> = []

    @_spi(Extensions) public init() {}

    @_spi(Extensions) public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        lastReported = try container.decodeIfPresent(Account.self, forKey: .lastReported)
        mayHoldData = try container.decode([Session].self, forKey: .mayHoldData)
        // Older records have no receipts.
        receiptsDue = try container.decodeIfPresent([Receipt].self, forKey: .receiptsDue) ?? []
        shared = try container.decodeIfPresent(Set<UInt64>.self, forKey: .shared) ?? []
    }

    /// Returns the session that the app takes for the account's current one, or `nil` if it knows of none.
    @_spi(Extensions) public func session(of account: Account) -> UInt64? {
        mayHoldData.last { $0.account == account }?.epoch
    }

    /// Whether another process of the app may have stored data of these sessions after this process has deleted it.
    @_spi(Extensions) public func isShared(_ sessions: [Session]) -> Bool {
        sessions.contains { shared.contains($0.epoch) }
    }

    /// Records that the app is told of `session`; returns the previously reported account.
    @_spi(Extensions) public mutating func report(_ session: DeviceSession) -> Account? {
        defer { lastReported = session.account }
        return lastReported
    }

    /// Records the session that the app is about to be told of; returns the sessions whose data it has to delete.
    ///
    /// - Parameters:
    ///   - held: the sessions that this process was told of and has not cleaned up. Another process of the app may have
    ///     removed them from the record, and this process may have stored data since.
    ///   - known: the sessions in the record before the broker was asked. They have ended if the response does not name
    ///     them, even if their epochs are later: the broker may have been restored from a backup.
    @_spi(Extensions) public mutating func enter(
        _ session: DeviceSession,
        held: [Session] = [],
        known: [Session] = []
    ) -> [Session] {
        let current = session.account.map { Session(account: $0, epoch: session.epoch) }
        let forgotten = held.filter { $0 != current && !mayHoldData.contains($0) }
        if !forgotten.isEmpty { mayHoldData = (mayHoldData + forgotten).sorted { $0.epoch < $1.epoch } }
        shared.formUnion(forgotten.map(\.epoch))
        // A session with a later epoch that entered the record during the request may be the current one: another
        // process of the app has learned of it.
        let stale = mayHoldData.filter { $0 != current && ($0.epoch <= session.epoch || known.contains($0)) }
        guard let current else { return stale }
        if !mayHoldData.contains(current) {
            mayHoldData.append(current)
        } else if !held.contains(current) {
            shared.insert(current.epoch)
        }
        return stale
    }

    /// Merges the record and the broker's ledger: a cleanup is due if either contains it. A receipt is dropped when the
    /// broker no longer asks for it, and when a process of the app has ended since the cleanup began.
    @_spi(Extensions) public mutating func reconcile(owed: [OwedSession]) {
        receiptsDue.removeAll { receipt in
            !owed.contains { $0.epoch == receipt.epoch && $0.mark == receipt.mark ?? 0 }
                || mayHoldData.contains { $0.epoch == receipt.epoch }
        }
        for session in owed
        where !mayHoldData.contains(where: { $0.epoch == session.epoch })
            && !receiptsDue.contains(where: { $0.epoch == session.epoch })
        {
            if let account = session.account {
                mayHoldData.append(Session(account: account, epoch: session.epoch))
                shared.insert(session.epoch)
            } else {
                // Neither the broker nor this app knows the account of this session any more.
                receiptsDue.append(Receipt(epoch: session.epoch, detail: "no data of this session", mark: session.mark))
            }
        }
        mayHoldData.sort { $0.epoch < $1.epoch }
        shared.formUnion(owed.lazy.filter(\.isShared).map(\.epoch))
        shared.formIntersection(mayHoldData.map(\.epoch))
    }

    /// The receipts that this process may send. For a session that it holds itself, another process's cleanup does not
    /// count.
    @_spi(Extensions) public func receipts(held: [Session]) -> [Receipt] {
        receiptsDue.filter { receipt in !held.contains { $0.epoch == receipt.epoch } }
    }

    /// Records that the data of these sessions is deleted, and removes their accounts from this record.
    ///
    /// - Parameter marks: the broker's marks when the cleanup began.
    /// - Returns: the receipts for all of them. Another process of the app may have removed a session from the record,
    ///   and the broker waits for each process that it told of the cleanup.
    @discardableResult
    @_spi(Extensions) public mutating func cleaned(
        _ sessions: [Session],
        detail: String? = nil,
        marks: [UInt64: UInt64] = [:]
    ) -> [Receipt] {
        let receipts = sessions.map { Receipt(epoch: $0.epoch, detail: detail, mark: marks[$0.epoch] ?? 0) }
        mayHoldData.removeAll(where: sessions.contains)
        shared.formIntersection(mayHoldData.map(\.epoch))
        receiptsDue.removeAll { due in sessions.contains { $0.epoch == due.epoch } }
        receiptsDue += receipts
        if let reported = lastReported, sessions.contains(where: { $0.account == reported }),
            !mayHoldData.contains(where: { $0.account == reported })
        {
            lastReported = nil
        }
        return receipts
    }

    /// Makes the cleanup of these sessions due again, so that every step runs again. The broker does not count their
    /// receipts, because another process may have stored data.
    @_spi(Extensions) public mutating func reopen(_ sessions: [Session]) {
        shared.formUnion(sessions.map(\.epoch))
        mayHoldData = (mayHoldData + sessions.filter { !mayHoldData.contains($0) }).sorted { $0.epoch < $1.epoch }
        receiptsDue.removeAll { due in sessions.contains { $0.epoch == due.epoch } }
    }

    /// Whether this record contains information that must survive a crash and that `other` lacks. A receipt that the
    /// broker has taken may stay on disk: the broker no longer asks for it, or says that the cleanup is due again.
    @_spi(Extensions) public func hasNews(since other: SessionRecord) -> Bool {
        lastReported != other.lastReported || mayHoldData != other.mayHoldData || shared != other.shared
            || !receiptsDue.allSatisfy(other.receiptsDue.contains)
    }
}

/// Keeps a ``SessionRecord`` in a file of the app. When a write returns, the record is on disk.
struct SessionStore: Sendable {
    let path: String

    /// Reads the record. An unreadable record does not count as empty: the app would forget whose data it holds.
    func load() throws(SharedDeviceError) -> SessionRecord { try decode(try read().bytes) }

    /// Returns the file and its content; `nil` if there is none.
    func read() throws(SharedDeviceError) -> (bytes: [UInt8]?, file: HeldFile?) {
        do throws(FileReadError) {
            let file = try HeldFile(path)
            return (try file.content(), file)
        } catch {
            guard error == .system(ENOENT) else { throw unusable("read", error.reason) }
            return (nil, nil)
        }
    }

    func decode(_ bytes: [UInt8]?) throws(SharedDeviceError) -> SessionRecord {
        guard let bytes else { return SessionRecord() }
        do {
            return try JSONDecoder().decode(SessionRecord.self, from: Data(bytes))
        } catch {
            throw unusable("read", "\(error)")
        }
    }

    /// Replaces the record. Returns the new file, or `nil` if another program has changed it since.
    @discardableResult
    func save(_ record: SessionRecord) throws(SharedDeviceError) -> HeldFile? {
        do {
            let file = AtomicFile(path: path)
            try makePrivateDirectory(file.directory)
            let content = try [UInt8](JSONEncoder().encode(record))
            try file.write(content)
            // Open first and compare then, so that a later change is detected. The rename has already changed the
            // file's time.
            guard let held = try? HeldFile(path), (try? held.content()) == content else { return nil }
            return held
        } catch {
            throw unusable("write", "\(error)")
        }
    }

    private func unusable(_ deed: String, _ reason: String) -> SharedDeviceError {
        SharedDeviceError(
            .recordUnusable,
            attempted: "\(deed) the record of the sessions whose data this app holds, \(path)",
            message:
                "\(reason). Make it readable and writable; or, to start over, remove all user data of the app, then the file"
        )
    }
}

/// The app's record, shared by all processes of the app. A change by one process is visible to the others at their next
/// request, because the file is read again after a change. It is kept open until then: a file system may give the inode
/// of a closed file to its successor.
///
/// ``SessionKeeper`` ensures one caller at a time within a process; a lock file next to the record does so between
/// processes.
struct SharedRecord: Sendable {
    private let store: SessionStore
    private var latest: (file: HeldFile?, record: SessionRecord)?

    init(store: SessionStore) { self.store = store }

    /// The sessions in the record when this process last read it. Reads the record if it has not been read yet.
    mutating func sessions() throws(SharedDeviceError) -> [SessionRecord.Session] {
        if latest == nil { _ = try load() }
        return latest?.record.mayHoldData ?? []
    }

    /// Changes the record. On return the change is on disk; after an error it is unchanged. `body` may run twice.
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

    private let file: ReadableFile
    private let identity: Identity

    init(_ path: String) throws(FileReadError) {
        file = try ReadableFile(path)
        // Before the content is read, so that a later change is detected.
        identity = Identity(try file.status())
    }

    /// Reads the content. Call it once.
    func content() throws(FileReadError) -> [UInt8] { try file.prefix(.max) }

    /// Whether the path still leads to this file; for `nil`, whether the path leads to no file.
    static func isUnchanged(_ file: HeldFile?, at path: String) -> Bool {
        var status = stat()
        guard stat(path, &status) == 0 else { return file == nil && errno == ENOENT }
        return file?.identity == Identity(status)
    }
}

/// Runs `body`, which may wait for the disk or for another process, on a separate thread: Dispatch's global queues
/// share their few threads with Swift's tasks, and are only the fallback.
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
@_spi(Extensions) public func makePrivateDirectory(_ path: String) throws {
    var status = stat()
    // A shortcut for the usual case: FileManager looks at every part of the path.
    if stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR { return }
    try FileManager.default.createDirectory(
        atPath: path,
        withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700]
    )
}
