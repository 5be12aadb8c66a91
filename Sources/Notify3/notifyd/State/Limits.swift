import Basics
import DBusService
import NotifyCenter

/// The limits of notifyd's memory for its callers: far above the needs of programs, and too low to harm other users.
struct Limits: Sendable, Hashable {
    /// The limit for one connection, and for one report.
    var connection = Amount(names: 100_000, bytes: 8 << 20, registrations: 1_000_000)
    /// The limit for all connections of a user together.
    var user = Amount(names: 400_000, bytes: 32 << 20, registrations: 4_000_000)
    /// The longest name, in bytes, that notifyd posts for a user. dbus-daemon stops reading from notifyd while a
    /// receiver leaves 127 MB of its posts unread.
    var postedName = 1 << 20
    /// The number of lists that a user's connections may wait for at once.
    var lists = 32
    /// The calls of a user that may wait for their turn, or until all processes have reported. Their bodies are not
    /// read while they wait.
    var waiting = CallAmount(calls: 65_536, bytes: 24 << 20)
    /// How fast the calls of a user are carried out; `nil` for no limit.
    var pace: CallPace?
    /// The bytes that a connection and its user may leave unread.
    var unread = UnreadAnswers.Room(connection: 16 << 20, user: 64 << 20)
    /// The highest suspension count of a process, as on Darwin. A suspension is one message to each connection of the
    /// process.
    var suspensions: UInt32 = 255

    init() {}

    /// The approximate size of a list page in bytes, without its last row.
    static let pageBytes = 256 << 10

    /// The limits for the waiting calls of all users together. ``waiting`` limits the calls of one user.
    static var calls: CallLimits {
        var calls = CallLimits()
        // One body may hold all names of a process and its registrations.
        (calls.bodyBytes, calls.bytesOfSender, calls.bytes) = (24 << 20, 24 << 20, 64 << 20)
        (calls.callsOfSender, calls.calls) = (65_536, 131_072)
        return calls
    }

    /// The limits for users other than notifyd's own and root.
    static var others: Limits {
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
