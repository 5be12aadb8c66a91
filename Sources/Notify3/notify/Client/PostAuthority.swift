import DBusTransport
import NotifyCenter
import NotifydProtocol
import Synchronization

/// Decides whether a post of a reserved name comes from a user who may post it. The bus carries posts from anybody, and tells who
/// the sender is. ``KnownSenders`` remembers what it told; this asks it.
final class PostAuthority: Sendable {
    private let senders = Locked(KnownSenders<@Sendable () -> Void>())

    /// Calls `deliver` if `sender` may post `name`: at once where the sender is known, otherwise when the bus has answered. Called on
    /// the reading thread, which calls `deliver` too.
    func check(
        _ sender: String,
        _ name: NotificationName,
        _ rules: AccessRules,
        _ connection: DBusConnection,
        deliver: @escaping @Sendable () -> Void
    ) {
        // notify_post has checked this process's own posts.
        if sender == connection.uniqueName { return deliver() }
        switch senders.withLock({ $0.posted(name, by: sender, deliver) }) {
        case .decide(let identity):
            if identity.map({ rules.allows(.write, name.rawValue, by: $0) }) == true { deliver() }
        case .wait: break
        case .ask(let busGeneration):
            connection.askCredentials(of: sender) { answer in
                self.answered(sender, answer.map { Identity($0) }, rules, busGeneration)
            }
        }
    }

    private func answered(
        _ sender: String,
        _ answer: Result<Identity, DBusError>,
        _ rules: AccessRules,
        _ busGeneration: UInt64
    ) {
        let waiting = senders.withLock { $0.answered(sender, KnownSenders.Answer(answer), in: busGeneration) }
        if case .success(let identity) = answer {
            for (name, deliver) in waiting where rules.allows(.write, name.rawValue, by: identity) { deliver() }
        }
        senders.withLock { $0.settled(sender, in: busGeneration) }
    }

    /// Waits until the posts of this sender that have arrived are delivered or refused. Costs nothing unless the bus is being asked
    /// about the sender; then its answer comes before that to the flush.
    func settle(_ sender: String, _ connection: DBusConnection) throws(DBusError) {
        if senders.withLock({ $0.isAsked(sender) }) { try connection.flush() }
    }

    /// Another bus gives the same unique names to others.
    func forget() { senders.withLock { $0.forget() } }
}

/// The bus's answers about the senders of posts, and the posts that wait for an answer. Pure.
///
/// The bus generation rises with each outage: the next bus gives the same unique names to others, so an answer or a post of one
/// generation says nothing in another.
struct KnownSenders<Post> {
    enum Step {
        /// The sender is known; `nil` for one that was gone before the bus was asked.
        case decide(Identity?)
        /// Ask the bus, and hand the answer to ``answered(_:_:in:)`` with this generation.
        case ask(busGeneration: UInt64)
        /// The bus is being asked already.
        case wait
    }

    enum Answer {
        case identity(Identity)
        /// There is no such connection, and no later one gets its name.
        case gone
        /// The bus did not say: the sender's next post asks again.
        case unknown

        init(_ answer: Result<Identity, DBusError>) {
            switch answer {
            case .success(let identity): self = .identity(identity)
            case .failure(let error):
                // A bus that is lost, or slow, has not said that nobody is there.
                self = error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" ? .gone : .unknown
            }
        }
    }

    /// How many senders are remembered. Beyond that the bus is asked again.
    private static var capacity: Int { 1024 }

    /// By unique bus name, which a bus gives out once.
    private var known: [String: Identity?] = [:]
    /// One post of a name stands for all of that name, in the place of the first.
    private var waiting: [String: (posts: [(name: NotificationName, post: Post)], names: Set<NotificationName>)] = [:]
    /// Senders whose posts are waiting or being delivered.
    private var asked: Set<String> = []
    private var busGeneration: UInt64 = 0

    /// A post has arrived.
    mutating func posted(_ name: NotificationName, by sender: String, _ post: Post) -> Step {
        if let identity = known[sender] { return .decide(identity) }
        if waiting[sender, default: ([], [])].names.insert(name).inserted {
            waiting[sender]?.posts.append((name, post))
        }
        return asked.insert(sender).inserted ? .ask(busGeneration: busGeneration) : .wait
    }

    /// The bus has answered. ``settled(_:in:)`` follows.
    ///
    /// - Returns: the posts that waited, in the order of their arrival; none if they were another generation's.
    mutating func answered(
        _ sender: String,
        _ answer: Answer,
        in busGeneration: UInt64
    ) -> [(name: NotificationName, post: Post)] {
        guard busGeneration == self.busGeneration else { return [] }
        if known.count >= Self.capacity { known = [:] }
        switch answer {
        case .identity(let identity): known.updateValue(identity, forKey: sender)
        case .gone: known.updateValue(nil, forKey: sender)
        case .unknown: break
        }
        return waiting.removeValue(forKey: sender)?.posts ?? []
    }

    /// The posts that waited are delivered.
    mutating func settled(_ sender: String, in busGeneration: UInt64) {
        if busGeneration == self.busGeneration { asked.remove(sender) }
    }

    func isAsked(_ sender: String) -> Bool { asked.contains(sender) }

    /// The bus is lost.
    mutating func forget() {
        busGeneration += 1
        (known, waiting, asked) = ([:], [:], [])
    }
}

extension KnownSenders: Sendable where Post: Sendable {}
