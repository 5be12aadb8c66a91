import Basics

// Inlinable for the same reason as the fair queue: services use it for each call.

public struct CallAmount: Sendable, Hashable {
    public var calls: Int
    public var bytes: Int

    @inlinable public init(calls: Int = 0, bytes: Int = 0) { (self.calls, self.bytes) = (calls, bytes) }

    @inlinable public func hasRoom(for bytes: Int, within limit: CallAmount) -> Bool {
        calls < limit.calls && bytes <= limit.bytes - self.bytes
    }
}

/// The calls that each of many parties has waiting or in progress. Uses memory only for parties with calls. Pure.
public struct Quotas<Party: Hashable> {
    @usableFromInline var amounts: [Party: CallAmount] = [:]
    public private(set) var total = CallAmount()

    public init() {}

    @inlinable public subscript(party: Party) -> CallAmount { amounts[party] ?? CallAmount() }

    @inlinable public var parties: Int { amounts.count }

    public mutating func begin(_ bytes: Int, of party: Party) {
        amounts[party, default: CallAmount()].calls += 1
        amounts[party]?.bytes += bytes
        total = CallAmount(calls: total.calls + 1, bytes: total.bytes + bytes)
    }

    public mutating func begin(_ bytes: Int, of party: Party, within limit: CallAmount) -> Bool {
        guard self[party].hasRoom(for: bytes, within: limit) else { return false }
        begin(bytes, of: party)
        return true
    }

    /// Stops counting a call. No effect for a party without calls.
    public mutating func end(_ bytes: Int, of party: Party) {
        guard var amount = amounts[party] else { return }
        amount = CallAmount(calls: amount.calls - 1, bytes: amount.bytes - bytes)
        amounts[party] = amount.calls > 0 ? amount : nil
        total = CallAmount(calls: total.calls - 1, bytes: total.bytes - bytes)
    }
}

/// Admission to a service that many users call: each user's quota, and whose turn is next. Pure.
///
/// A call counts for its user. Until the bus has named the user, it counts for its connection.
public struct ServiceFrontDesk<Work> {
    public var users = Quotas<UInt32>()
    public var strangers = Quotas<String>()
    public var queue: FairQueue<Work>

    /// - Parameter lap: the number of calls of one user that have their turn before other users' calls.
    @inlinable public init(lap: Int) { queue = FairQueue(lap: lap) }

    /// The first call of a connection whose user is unknown always has room up to this size. So other processes cannot
    /// make the service refuse a new process.
    public static var smallFirstCall: Int { 4 << 10 }

    /// Whether there is room for a call with this many bytes.
    ///
    /// - Parameters:
    ///   - limit: the limit of the user or of the connection.
    ///   - limitOfStrangers: the limit of all connections with unknown users together: one user may have hundreds of
    ///     them.
    public func hasRoom(
        for bytes: Int,
        of connection: String,
        _ user: UInt32?,
        within limit: CallAmount,
        limitOfStrangers: CallAmount
    ) -> Bool {
        if let user { return users[user].hasRoom(for: bytes, within: limit) }
        let own = strangers[connection]
        guard own.hasRoom(for: bytes, within: limit) else { return false }
        if own.calls == 0, bytes <= Self.smallFirstCall { return true }
        return strangers.total.hasRoom(for: bytes, within: limitOfStrangers)
    }

    /// Counts a call until ``end(_:of:_:)``.
    public mutating func begin(_ bytes: Int, of connection: String, _ user: UInt32?) {
        if let user { users.begin(bytes, of: user) } else { strangers.begin(bytes, of: connection) }
    }

    public mutating func end(_ bytes: Int, of connection: String, _ user: UInt32?) {
        if let user { users.end(bytes, of: user) } else { strangers.end(bytes, of: connection) }
    }
}

extension CallScheduler {
    /// How long a service works before it reads again. It must read faster than the bus writes, or calls wait in the
    /// bus.
    public static var shift: Duration { .milliseconds(1) }

    /// Works until the shift is over or the work is done.
    ///
    /// - Parameter step: does the next piece of work. Returns false if there is none.
    /// - Returns: the time of the end.
    public func work(
        since start: ContinuousClock.Instant = .now,
        _ step: (ContinuousClock.Instant) -> Bool
    ) -> ContinuousClock.Instant {
        var now = start
        while now - start < Self.shift, step(now) { now = .now }
        return now
    }
}
