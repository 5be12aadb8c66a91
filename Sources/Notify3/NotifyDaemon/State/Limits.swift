import DBusTransport
package import NotifydProtocol

/// The limits of what notifyd keeps: far more than programs need, and far less than would harm others.
package struct Limits: Sendable, Hashable {
    /// For one connection. What is in one report, too.
    package var connection = Amount(names: 100_000, bytes: 8 << 20, registrations: 1_000_000)
    /// For all connections of a user.
    package var user = Amount(names: 400_000, bytes: 32 << 20, registrations: 4_000_000)
    /// The longest name that is posted for a user, in bytes. dbus-daemon reads no more of notifyd while somebody leaves 127 MB of its posts unread.
    var postedName = 1 << 20
    /// Lists that a user's connections may wait for at once.
    package var lists = 32
    /// Calls of a user that wait for their turn, or until all processes have reported. Nothing of their bodies is read meanwhile.
    var waiting = CallAmount(calls: 65_536, bytes: 24 << 20)
    /// How fast a user's calls are carried out; `nil` for as fast as they come.
    var pace: CallPace?
    /// What a connection and its user may leave unread.
    var unread = UnreadAnswers.Room(connection: 16 << 20, user: 64 << 20)
    /// How often a process may be suspended; each is one message to each of its connections. As on Darwin.
    package var suspensions: UInt32 = 255

    package init() {}

    /// About how many bytes a page of a list has, beside its last row.
    static let pageBytes = 256 << 10

    /// Calls of all users that wait. Those of a user have ``waiting``.
    static var calls: CallLimits {
        var calls = CallLimits()
        // One body may hold all names of a process, and its registrations.
        (calls.bodyBytes, calls.bytesOfSender, calls.bytes) = (24 << 20, 24 << 20, 64 << 20)
        (calls.callsOfSender, calls.calls) = (65_536, 131_072)
        return calls
    }

    /// For users other than notifyd's own and root.
    package static var others: Limits {
        var limits = Limits()
        limits.connection = Amount(names: 4096, bytes: 256 << 10, registrations: 16_384)
        limits.user = Amount(names: 16_384, bytes: 1 << 20, registrations: 65_536)
        limits.lists = 8
        limits.postedName = 1024
        limits.waiting = .init(calls: 8192, bytes: 2 << 20)
        limits.pace = CallPace(atOnce: 1024, interval: .milliseconds(10))
        limits.unread = .init(connection: 1 << 20, user: 2 << 20)
        return limits
    }

    /// - Parameter connection: what the connection would have notifyd keep.
    /// - Parameter user: what all connections of its user would.
    func check(connection amount: Amount, user userAmount: Amount) throws(Refusal) {
        guard amount.isWithin(connection) else { throw Self.refusal("a process", connection) }
        guard userAmount.isWithin(user) else { throw Self.refusal("all processes of a user", user) }
    }

    var refusalOfPost: Refusal {
        Refusal(.limitsExceeded, "a name that notifyd posts may have \(postedName) bytes; post a shorter one")
    }

    static func refusal(_ who: String, _ limit: Amount) -> Refusal {
        Refusal(
            .limitsExceeded,
            "\(who) may have \(limit.names) names with \(limit.bytes) bytes and \(limit.registrations) registrations; cancel some"
        )
    }
}
