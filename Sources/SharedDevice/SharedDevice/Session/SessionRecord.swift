import Basics
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

        @_spi(Extensions) public init(account: Account, epoch: UInt64) {
            self.account = account
            self.epoch = epoch
        }

        @_spi(Extensions) public static func == (left: Session, right: Session) -> Bool {
            left.account == right.account && left.epoch == right.epoch
        }
    }

    /// A finished cleanup that the broker has not confirmed yet.
    @_spi(Extensions) public struct Receipt: Codable, Equatable, Sendable {
        @_spi(Extensions) public let epoch: UInt64
        @_spi(Extensions) public let detail: String?
        /// The broker's mark when the cleanup began; `nil` if there was none.
        @_spi(Extensions) public let mark: UInt64?

        @_spi(Extensions) public init(epoch: UInt64, detail: String?, mark: UInt64) {
            self.epoch = epoch
            self.detail = detail
            self.mark = mark == 0 ? nil : mark
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
        // A later session that entered the record since may be the current one: another process of the app has learned
        // of it.
        let stale = mayHoldData.filter { $0 != current && ($0.epoch <= session.epoch || known.contains($0)) }
        guard let current else { return stale }
        if !mayHoldData.contains(current) {
            mayHoldData.append(current)
        } else if !held.contains(current) {
            shared.insert(current.epoch)
        }
        return stale
    }

    /// Merges the record and the broker's ledger: a cleanup is due if either contains it. A receipt stands for a
    /// finished cleanup. It is dropped when the broker no longer asks for it, and when a process of the app has ended
    /// since the cleanup began.
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

    /// Reads the record.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``. An unreadable record does not count as empty, because the
    ///   app would then forget whose data it holds.
    func load() throws(SharedDeviceError) -> SessionRecord { try decode(try read().bytes) }

    /// Returns the file and its content; `nil` if there is none.
    func read() throws(SharedDeviceError) -> (bytes: [UInt8]?, file: HeldFile?) {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            guard errno == ENOENT else { throw unusable("read", String(cString: strerror(errno))) }
            return (nil, nil)
        }
        guard let file = HeldFile(descriptor) else { throw unusable("read", String(cString: strerror(errno))) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count == 0 { return (bytes, file) }
            if count > 0 {
                bytes += chunk[..<count]
            } else if errno != EINTR {
                throw unusable("read", String(cString: strerror(errno)))
            }
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

    /// Replaces the record.
    ///
    /// - Returns: the new file, or `nil` if another program has changed it since.
    @discardableResult
    func save(_ record: SessionRecord) throws(SharedDeviceError) -> HeldFile? {
        do {
            let file = AtomicFile(path: path)
            try makePrivateDirectory(file.directory)
            let content = try [UInt8](JSONEncoder().encode(record))
            try file.write(content)
            // Open first and compare then, so that a later change is detected. The rename has already changed the
            // file's time.
            let descriptor = open(path, O_RDONLY | O_CLOEXEC)
            guard descriptor >= 0, let held = HeldFile(descriptor) else { return nil }
            return held.hasContent(content) ? held : nil
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
