import Basics
import DBusService
import NotifyCenter

/// The connections that receive posts through notifyd, because their sandbox's proxy lets no broadcasts through. Pure.
///
/// A connection without room for a post is paused on the post's interface. During the pause, the bus sends notifyd no
/// posts for the connection. So a flood costs notifyd no more memory than the limits of the connection's user.
///
/// - Parameter Rule: The lease of a match rule. While it exists, the bus sends notifyd the posts on an interface.
struct RelayTable<Rule, Post> {
    /// The highest number of interfaces of a connection, and of all connections of a user together.
    static var limits: (connection: Int, user: Int) { (4096, 16_384) }
    /// The longest interface that D-Bus allows, in bytes.
    private static var longestInterface: Int { 255 }
    /// The bytes of the owed posts that all connections of a user may have together.
    static var mostOwedBytes: Int { 1 << 20 }
    /// The approximate overhead of a message in memory, in bytes.
    static var bytesOfMessage: Int { 1024 }

    private enum Standing {
        case active(Rule)
        /// The post is sent at the end of the pause.
        case paused(Post?, bytes: Int)
    }

    private struct Receiver {
        let user: UInt32
        var interfaces: [String: Standing] = [:]
    }

    struct Pause: Hashable {
        let connection: String
        let interface: String
    }

    private var receivers: [String: Receiver] = [:]
    /// The connections that are not paused, by interface.
    private var connections: [String: Set<String>] = [:]
    private var counts: [UInt32: Int] = [:]
    private var owedBytes: [UInt32: Int] = [:]
    private(set) var pauses: Set<Pause> = []

    /// Whether no connection receives posts at the moment.
    var isIdle: Bool { connections.isEmpty }

    /// Checks a connection's request, before match rules are added for it. Throws `invalidRequest` and
    /// `limitsExceeded`.
    func check(_ interfaces: [String], for connection: String, of user: UInt32) throws(Refusal) {
        for interface in interfaces
        where WireKind(interface: interface) == nil || interface.utf8.count > Self.longestInterface {
            let shown = String(interface.prefix(Self.longestInterface)).quotedOnOneLine
            throw Refusal(.invalidRequest, "\(shown) is not an interface of notifications")
        }
        let present = receivers[connection]?.interfaces ?? [:]
        let new = Set(interfaces).count { present[$0] == nil }
        guard present.count + new <= Self.limits.connection, (counts[user] ?? 0) + new <= Self.limits.user else {
            throw Refusal(
                .limitsExceeded,
                "a process in a sandbox may have \(Self.limits.connection) names, and all processes of a user "
                    + "\(Self.limits.user); cancel some"
            )
        }
    }

    /// Returns whether a connection receives the posts on this interface, or is paused on it.
    func has(_ interface: String, for connection: String) -> Bool {
        receivers[connection]?.interfaces[interface] != nil
    }

    /// Starts or resumes the posts on this interface for a connection.
    mutating func begin(_ interface: String, _ rule: Rule, for connection: String, of user: UInt32) {
        forgetOwed(interface, connection)
        let before = receivers[connection, default: Receiver(user: user)].interfaces
            .updateValue(.active(rule), forKey: interface)
        pauses.remove(Pause(connection: connection, interface: interface))
        connections[interface, default: []].insert(connection)
        if before == nil { counts[user, default: 0] += 1 }
    }

    mutating func end(_ interface: String, for connection: String) {
        forgetOwed(interface, connection)
        guard let user = receivers[connection]?.user,
            receivers[connection]?.interfaces.removeValue(forKey: interface) != nil
        else { return }
        if receivers[connection]?.interfaces.isEmpty == true { receivers[connection] = nil }
        pauses.remove(Pause(connection: connection, interface: interface))
        withdraw(connection, from: interface)
        let count = (counts[user] ?? 1) - 1
        counts[user] = count > 0 ? count : nil
    }

    mutating func gone(_ connection: String) {
        for interface in receivers[connection]?.interfaces.keys.sorted() ?? [] { end(interface, for: connection) }
    }

    private mutating func withdraw(_ connection: String, from interface: String) {
        connections[interface]?.remove(connection)
        if connections[interface]?.isEmpty == true { connections[interface] = nil }
    }

    // MARK: Pauses

    /// Drops the rule until ``begin(_:_:for:of:)``.
    ///
    /// - Parameter post: The post to send at the end of the pause. It is kept only if the owed posts of the user stay
    ///   within ``mostOwedBytes``.
    mutating func pause(_ interface: String, for connection: String, owing post: Post?, bytes: Int) {
        guard let receiver = receivers[connection], case .active = receiver.interfaces[interface] else { return }
        let (bytes, owed) = (bytes + Self.bytesOfMessage, owedBytes[receiver.user] ?? 0)
        let isOwed = post != nil && owed + bytes <= Self.mostOwedBytes
        if isOwed { owedBytes[receiver.user] = owed + bytes }
        receivers[connection]?.interfaces[interface] = .paused(isOwed ? post : nil, bytes: isOwed ? bytes : 0)
        pauses.insert(Pause(connection: connection, interface: interface))
        withdraw(connection, from: interface)
    }

    func owed(_ pause: Pause) -> Post? {
        guard case .paused(let post, _) = receivers[pause.connection]?.interfaces[pause.interface] else { return nil }
        return post
    }

    private mutating func forgetOwed(_ interface: String, _ connection: String) {
        guard let receiver = receivers[connection], case .paused(_, let bytes) = receiver.interfaces[interface] else {
            return
        }
        let rest = (owedBytes[receiver.user] ?? 0) - bytes
        owedBytes[receiver.user] = rest > 0 ? rest : nil
    }

    // MARK: Posts

    /// Returns the receivers of a post on this interface, in no order, and the interface that each has requested. The
    /// poster is not among them: the bus delivers the post to it.
    func receivers(of interface: String, postedBy poster: String) -> [(connection: String, interface: String)] {
        guard let center = WireKind(interface: interface) else { return [] }
        let (named, all) = (connections[interface] ?? [], connections[center.rawValue] ?? [])
        let receivers = named.map { ($0, interface) } + all.subtracting(named).map { ($0, center.rawValue) }
        return receivers.filter { $0.0 != poster }
    }
}

/// Relayed posts that wait for their turn. They use neither the room nor the turns of their receiver's calls, because
/// other processes decide how many posts there are. Pure.
struct WaitingPosts<Post> {
    private struct Waiting {
        let post: Post
        let bytes: Int
        let receiver: String
        let user: UInt32
    }

    private var desk = ServiceFrontDesk<Waiting>(lap: 8)

    func hasRoom(for bytes: Int, of user: UInt32, within limit: CallAmount) -> Bool {
        desk.users[user].hasRoom(for: bytes, within: limit)
    }

    mutating func append(_ post: Post, bytes: Int, to receiver: String, of user: UInt32, pace: CallPace?) {
        desk.users.begin(bytes, of: user)
        desk.queue.append(Waiting(post: post, bytes: bytes, receiver: receiver, user: user), of: user, pace: pace)
    }

    /// The time of the next turn, at the earliest `now`; `nil` if no post waits.
    func timeOfNext(now: ContinuousClock.Instant) -> ContinuousClock.Instant? { desk.queue.timeOfNext(now: now) }

    /// Removes and returns the next post whose turn has come, and its receiver.
    mutating func next(now: ContinuousClock.Instant, pace: (UInt32) -> CallPace?) -> (Post, to: String)? {
        guard let next = desk.queue.next(now: now, pace: pace) else { return nil }
        desk.users.end(next.bytes, of: next.user)
        return (next.post, to: next.receiver)
    }
}
