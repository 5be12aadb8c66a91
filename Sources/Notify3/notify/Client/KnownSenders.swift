import NotifyCenter
import NotifydProtocol

/// What the bus has told of the senders of posts, and which posts wait for its word. Pure.
///
/// All of it is of one life of the bus: the next one gives the same unique names to others, so that neither an answer nor a
/// post of the one says anything in the other.
struct KnownSenders<Post> {
    enum Step {
        /// Known; `nil` for who was gone before the bus was asked.
        case decide(AccessRules.Identity?)
        /// To be asked for; the answer goes to ``answered(_:_:in:)`` with this life.
        case ask(life: UInt64)
        /// Asked for already.
        case wait
    }

    /// What came of asking.
    enum Answer {
        case identity(AccessRules.Identity)
        /// No such connection, and there will be none.
        case gone
        /// The bus did not say: its next post asks again.
        case unknown
    }

    /// Enough for who posts names that are not everybody's; where it does not suffice, the bus is asked again.
    private static var capacity: Int { 1024 }

    /// By unique bus name, which a bus gives out once.
    private var known: [String: AccessRules.Identity?] = [:]
    /// One post stands for all of a name.
    private var waiting: [String: [NotificationName: Post]] = [:]
    private var life: UInt64 = 0

    /// A post came.
    mutating func came(_ name: NotificationName, from sender: String, _ post: Post) -> Step {
        if let identity = known[sender] { return .decide(identity) }
        let isAsked = waiting[sender] != nil
        waiting[sender, default: [:]][name] = post
        return isAsked ? .wait : .ask(life: life)
    }

    /// The bus answered.
    ///
    /// - Returns: the posts that waited, none if they were another life's.
    mutating func answered(_ sender: String, _ answer: Answer, in life: UInt64) -> [NotificationName: Post] {
        guard life == self.life else { return [:] }
        if known.count >= Self.capacity { known = [:] }
        switch answer {
        case .identity(let identity): known.updateValue(identity, forKey: sender)
        case .gone: known.updateValue(nil, forKey: sender)
        case .unknown: break
        }
        return waiting.removeValue(forKey: sender) ?? [:]
    }

    /// The bus is lost.
    mutating func forget() {
        life += 1
        known = [:]
        waiting = [:]
    }
}

extension KnownSenders: Sendable where Post: Sendable {}
