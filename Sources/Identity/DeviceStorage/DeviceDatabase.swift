import DBusTransport
import Glibc
package import SQLite
import Synchronization

/// The one SQLite file of this device: who is signed in, and the embedded directory's users.
///
/// The broker holds it open while the administration's commands write to it from processes of their own. Every call
/// blocks its thread until SQLite has answered, which for a write includes the disk; calls from several threads take
/// turns.
package final class DeviceDatabase: Sendable {
    /// What to do where there is no database yet.
    package enum Opening: Sendable {
        /// Make the directory and the file.
        case createIfMissing
        /// Fail with `notFound`.
        case existing
    }

    /// The file's name in the state directory.
    package static let fileName = "shared-device.sqlite"
    /// The file's path.
    package let path: String

    // Unsafe alone, and safe here: `onConnection` alone touches it, with `turn` held.
    private nonisolated(unsafe) let connection: SQLiteConnection
    private let turn = Locked(())
    private let pendingErasure = Locked<StoreError?>(nil)

    /// Opens the database in `directory`, and brings it to this version's schema.
    ///
    /// The directory is made with mode 0700 and the file with 0600, whatever the umask.
    ///
    /// - Parameters:
    ///   - busyTimeout: How long a call waits for another process before it fails with `busy`. The longest that any
    ///     of ours holds the database is one commit.
    ///   - firstEpoch: The epoch of a device that has had no session. Apps remember sessions by their epochs, so that one must not
    ///     be of two sessions, also not where the database was removed in between: by default epochs go on from the seconds of the
    ///     clock, which no device signs in and out faster than.
    /// - Throws: `StoreError`; a file that is damaged, foreign or of a newer version is left as it is.
    package init(
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
                    + "(an installed broker's is \(StateDirectory.ofSystem), which root finds without); or start the "
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
        // What a crash may have kept from being erased.
        eraseRemnants()
    }

    private static func open(
        _ path: String,
        _ busyTimeout: Duration,
        _ firstEpoch: UInt64
    ) throws -> SQLiteConnection {
        let connection = try SQLiteConnection(path: path, busyTimeout: busyTimeout)
        // FULL: a sign-out that was answered must not come back after a power cut, as it may with WAL's NORMAL.
        // secure_delete: what is deleted is overwritten. temp_store: no copy of a row in a temporary file. The last
        // two distrust a file that was tampered with.
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
        // The log's files stay: a full disk has no room for new ones, and without them nobody can even read.
        try connection.keepLog()
        // All of this before the first write.
        try connection.read { db in try DeviceSchema.check(db, path: path) }
        guard try connection.value("PRAGMA journal_mode = WAL") == "wal" else {
            throw StoreError(
                .failed,
                attempted: "open the device's database",
                message: "\(path): SQLite's write-ahead log does not work here",
                remedy: "put the state directory on a local file system"
            )
        }
        try DeviceSchema.bringUpToDate(connection, firstEpoch: firstEpoch)
        return connection
    }

    /// Runs `body` in a transaction that sees one state and changes nothing.
    package func read<Value: Sendable>(
        _ attempted: String,
        _ body: (SQLiteConnection) throws -> Value
    ) throws(StoreError) -> Value {
        do {
            return try onConnection { try $0.read(body) }
        } catch {
            throw StoreError(error, attempted: attempted, path: path)
        }
    }

    /// Runs `body` in a transaction that is on the disk when this returns, and has not happened when this throws.
    ///
    /// An error that `body` throws comes out as it is; SQLite's own come out as `StoreError`.
    package func write<Value: Sendable>(
        _ attempted: String,
        _ body: (SQLiteConnection) throws -> Value
    ) throws -> Value {
        do {
            return try onConnection { try $0.write(body) }
        } catch let error as SQLiteError {
            throw StoreError(error, attempted: attempted, path: path)
        }
    }

    private func onConnection<Value: Sendable>(_ body: (SQLiteConnection) throws -> Value) throws -> Value {
        try turn.withLock { _ in try body(connection) }
    }

    /// Why removed data may still be in the write-ahead log; `nil` where none is.
    package var remnants: StoreError? { pendingErasure.withLock { $0 } }

    /// Empties the write-ahead log, where the earlier versions of changed pages are, with the names that were removed.
    ///
    /// It waits for readers in other processes up to the busy timeout. A failure shows in `remnants`; the next removal and
    /// the next opening try again.
    package func eraseRemnants() {
        let failure: StoreError?
        do {
            try onConnection { try $0.emptyLog() }
            failure = nil
        } catch {
            failure = StoreError(error, attempted: "erase removed data from the write-ahead log", path: path)
        }
        pendingErasure.withLock { $0 = failure }
    }
}
