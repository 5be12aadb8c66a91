import NotifydProtocol

/// Which connections get which posts from notifyd, because a sandbox's proxy keeps broadcasts from them. Pure.
///
/// A connection without room for a post is paused on the post's interface: the bus sends notifyd nothing more for it, so
/// that a flood costs notifyd no more than what there is room for.
///
/// - Parameter Rule: what keeps the posts of an interface coming to notifyd.
struct RelayTable<Rule, Post> {
    /// How many interfaces a connection may have, and all connections of a user. An interface has 255 bytes at most.
    static var limits: (connection: Int, user: Int) { (4096, 16_384) }
    /// The longest interface that D-Bus has, in bytes.
    private static var longestInterface: Int { 255 }
    /// The bytes of the posts that all connections of a user may be owed.
    static var mostOwedBytes: Int { 1 << 20 }
    /// About what a message takes beside its bytes.
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

    /// Whether no connection gets any posts.
    var isIdle: Bool { connections.isEmpty }

    /// Checks what a connection wants, before a rule is made for it.
    ///
    /// - Throws: `invalidRequest`, `limitsExceeded`; then nothing has changed.
    func check(_ interfaces: [String], for connection: String, of user: UInt32) throws(Refusal) {
        for interface in interfaces
        where RelayedCenter(interface: interface) == nil || interface.utf8.count > Self.longestInterface {
            throw Refusal(
                .invalidRequest,
                "\(String(interface.prefix(Self.longestInterface)).quotedOnOneLine) is no interface of notifications"
            )
        }
        let present = receivers[connection]?.interfaces ?? [:]
        let new = Set(interfaces).count { present[$0] == nil }
        guard present.count + new <= Self.limits.connection, (counts[user] ?? 0) + new <= Self.limits.user else {
            throw Refusal(
                .limitsExceeded,
                "a process in a sandbox may have \(Self.limits.connection) names, and all of a user "
                    + "\(Self.limits.user); cancel some"
            )
        }
    }

    /// Whether a connection gets the posts on this interface, or is paused on it.
    func has(_ interface: String, for connection: String) -> Bool {
        receivers[connection]?.interfaces[interface] != nil
    }

    /// From here on, the connection gets the posts on this interface.
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

    /// A connection is gone.
    mutating func gone(_ connection: String) {
        for interface in receivers[connection]?.interfaces.keys.sorted() ?? [] { end(interface, for: connection) }
    }

    private mutating func withdraw(_ connection: String, from interface: String) {
        connections[interface]?.remove(connection)
        if connections[interface]?.isEmpty == true { connections[interface] = nil }
    }

    // MARK: Pauses

    /// Ends the use of the rule until ``begin(_:_:for:of:)``.
    ///
    /// - Parameter post: what the connection gets at the end of the pause, if its user may be owed so many bytes more.
    mutating func pause(_ interface: String, for connection: String, owing post: Post?, bytes: Int) {
        guard let receiver = receivers[connection], case .active = receiver.interfaces[interface] else { return }
        let (bytes, owed) = (bytes + Self.bytesOfMessage, owedBytes[receiver.user] ?? 0)
        let isOwed = post != nil && owed + bytes <= Self.mostOwedBytes
        if isOwed { owedBytes[receiver.user] = owed + bytes }
        receivers[connection]?.interfaces[interface] = .paused(isOwed ? post : nil, bytes: isOwed ? bytes : 0)
        pauses.insert(Pause(connection: connection, interface: interface))
        withdraw(connection, from: interface)
    }

    /// What a connection gets at the end of its pause.
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

    /// Who gets a post on this interface, in no order, and the interface that each asked for. The poster does not: it
    /// has the post from the bus.
    func receivers(of interface: String, postedBy poster: String) -> [(connection: String, interface: String)] {
        guard let center = RelayedCenter(interface: interface) else { return [] }
        let (named, all) = (connections[interface] ?? [], connections[center.rawValue] ?? [])
        let receivers = named.map { ($0, interface) } + all.subtracting(named).map { ($0, center.rawValue) }
        return receivers.filter { $0.0 != poster }
    }
}
