import Basics
public import Glibc
import Synchronization

/// The device's SQLite file: the session, and the users of the embedded directory.
///
/// The broker keeps it open while administration commands in other processes write to it. Every call blocks its thread
/// until SQLite has finished, for a write until the data is on the disk. Calls from several threads are serialised.
public final class DeviceDatabase: Sendable {
    /// The behaviour if there is no database.
    public enum Opening: Sendable {
        case createIfMissing
        /// Fail with `notFound`.
        case existing
    }

    public static let fileName = "shared-device.sqlite"
    public let path: String

    // Unsafe on its own; safe because only `onConnection` uses it, while it holds `turn`.
    private nonisolated(unsafe) let connection: SQLiteConnection
    private let turn = Locked(())
    private let pendingErasure = Locked<StoreError?>(nil)

    /// Opens the database in `directory`, and migrates it to this version's schema.
    ///
    /// The directory is created with mode 0700 and the file with 0600, whatever the umask.
    ///
    /// - Parameters:
    ///   - busyTimeout: How long a call waits for another process before it fails with `busy`. Our own processes hold
    ///     the database for at most one commit.
    ///   - firstEpoch: The epoch of a device without any session so far. Apps remember sessions by epoch, so an epoch
    ///     must not be reused even if the database was removed in between. The default is the clock's seconds: no
    ///     device signs in and out faster than that.
    /// - Throws: `StoreError`; a file that is damaged, foreign or of a newer version is not changed.
    public init(
        directory: String,
        _ opening: Opening = .createIfMissing,
        busyTimeout: Duration = .seconds(5),
        firstEpoch: UInt64 = UInt64(clamping: time(nil))
    ) throws(StoreError) {
        let path = directory + "/" + Self.fileName
        let lockPath = directory + "/shared-device.lock"
        let create = opening == .createIfMissing
        if create {
            try PrivateFiles.prepareDirectory(directory)
        } else {
            try PrivateFiles.checkDirectory(directory)
        }
        guard try PrivateFiles.prepareFile(path, create: create) else {
            throw StoreError(
                .notFound,
                attempted: "find the device's state in \(directory)",
                message: "there is no \(Self.fileName)",
                remedy: "name the broker's state directory with --state or \(StateDirectory.environmentVariable) "
                    + "(an installed broker has \(StateDirectory.ofSystem), root's default); or start the "
                    + "broker, or add the first user"
            )
        }
        _ = try PrivateFiles.prepareFile(lockPath, create: true)
        let lock = try OpeningLock(path: lockPath, timeout: busyTimeout)
        do {
            connection = try Self.open(path, busyTimeout, firstEpoch)
        } catch {
            throw StoreError(error, attempted: "open the device's database", path: path)
        }
        self.path = path
        _ = consume lock
        // Erase what a crash may have left in the log.
        eraseRemnants()
    }

    private static func open(_ path: String, _ busyTimeout: Duration, _ firstEpoch: UInt64) throws -> SQLiteConnection {
        let connection = try SQLiteConnection(path: path, busyTimeout: busyTimeout)
        // FULL: a confirmed sign-out must not be undone by a power cut, which WAL's NORMAL allows. secure_delete:
        // deleted data is overwritten. temp_store: no row is copied to a temporary file. The last two options guard
        // against a manipulated file.
        try connection.execute(
            """
            PRAGMA synchronous = FULL;
            PRAGMA foreign_keys = ON;
            PRAGMA secure_delete = ON;
            PRAGMA temp_store = MEMORY;
            PRAGMA trusted_schema = OFF;
            PRAGMA cell_size_check = ON;
            """
        )
        // Keep the log's files: a full disk has no room for new ones, and without them even reading fails.
        try connection.keepLog()
        // Check before the first write.
        try connection.read { db in try DeviceSchema.check(db, path: path) }
        guard try connection.value("PRAGMA journal_mode = WAL") == "wal" else {
            let message = "\(path): SQLite's write-ahead log does not work here"
            let remedy = "put the state directory on a local file system"
            throw StoreError(.failed, attempted: "open the device's database", message: message, remedy: remedy)
        }
        try DeviceSchema.bringUpToDate(connection, firstEpoch: firstEpoch)
        return connection
    }

    /// Runs `body` in a read-only transaction, which sees a consistent snapshot.
    public func read<Value: Sendable>(
        _ attempted: String,
        _ body: (SQLiteConnection) throws -> Value
    ) throws(StoreError) -> Value {
        do {
            return try onConnection { try $0.read(body) }
        } catch {
            throw StoreError(error, attempted: attempted, path: path)
        }
    }

    /// Runs `body` as ``store(_:_:)`` does, but rethrows the errors of `body`, and wraps only SQLite's.
    public func write<Value: Sendable>(
        _ attempted: String,
        _ body: (SQLiteConnection) throws -> Value
    ) throws -> Value {
        do {
            return try onConnection { try $0.write(body) }
        } catch let error as SQLiteError {
            throw StoreError(error, attempted: attempted, path: path)
        }
    }

    /// Runs `body` as ``write(_:_:)`` does. Every error becomes a `StoreError`.
    public func store<Value: Sendable>(
        _ attempted: String,
        _ body: (SQLiteConnection) throws -> Value
    ) throws(StoreError) -> Value {
        do {
            return try write(attempted, body)
        } catch {
            throw StoreError(error, attempted: attempted, path: path)
        }
    }

    private func onConnection<Value: Sendable>(_ body: (SQLiteConnection) throws -> Value) throws -> Value {
        try turn.withLock { _ in try body(connection) }
    }

    /// The reason why removed data may still be in the write-ahead log; `nil` if it contains none.
    public var remnants: StoreError? { pendingErasure.withLock { $0 } }

    /// Empties the write-ahead log, which contains earlier versions of pages, also the names of removed users. Waits
    /// for readers up to the busy timeout. After a failure, the next removal or opening tries again.
    public func eraseRemnants() {
        var failure: StoreError?
        do {
            try onConnection { try $0.emptyLog() }
        } catch {
            failure = StoreError(error, attempted: "erase removed data from the write-ahead log", path: path)
        }
        pendingErasure.withLock { [failure] in $0 = failure }
    }
}
