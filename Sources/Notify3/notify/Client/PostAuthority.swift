import DBusTransport
import Dispatch
import NotifyCenter
import NotifydProtocol
import Synchronization

/// Tells whether a post of a name that is not everybody's comes from one who may post it. The bus carries it from anybody; its
/// word on who the sender is decides. ``KnownSenders`` remembers it, this asks.
final class PostAuthority: Sendable {
    private let senders = Locked(KnownSenders<@Sendable () -> Void>())
    /// Senders whom the bus is asked about, until their posts are delivered, and who waits for that.
    private let asked = Locked<[String: [DispatchSemaphore]]>([:])

    /// Calls `deliver` if `sender` may post `name`: right here if the sender is known, else once the bus has told.
    func check(
        _ sender: String?,
        _ name: NotificationName,
        _ rules: AccessRules,
        deliver: @escaping @Sendable () -> Void
    ) {
        guard let sender, let connection = try? NotifyClient.connection() else { return }
        if sender == connection.uniqueName {
            // notify_post has asked before.
            return deliver()
        }
        switch senders.withLock({ $0.came(name, from: sender, deliver) }) {
        case .decide(let identity):
            if identity.map({ rules.allows(.write, name.rawValue, by: $0) }) == true { deliver() }
        case .wait: break
        case .ask(let life):
            asked.withLock { $0[sender] = $0[sender] ?? [] }
            Task { await self.ask(connection, sender, rules, life) }
        }
    }

    private func ask(_ connection: DBusConnection, _ sender: String, _ rules: AccessRules, _ life: UInt64) async {
        let (identity, answer) = await Self.identify(sender, connection)
        let waiting = senders.withLock { $0.answered(sender, answer, in: life) }
        if let identity {
            for (name, deliver) in waiting where rules.allows(.write, name.rawValue, by: identity) { deliver() }
        }
        for waiter in asked.withLock({ $0.removeValue(forKey: sender) }) ?? [] { waiter.signal() }
    }

    /// Waits until what has arrived from this sender is delivered, or refused. The bus answers, or is given up after 25 s.
    func settle(_ sender: String) {
        let answered = DispatchSemaphore(value: 0)
        let isAsked = asked.withLock { $0[sender]?.append(answered) != nil }
        if isAsked { answered.wait() }
    }

    private static func identify(
        _ sender: String,
        _ connection: DBusConnection
    ) async -> (AccessRules.Identity?, KnownSenders<@Sendable () -> Void>.Answer) {
        do throws(DBusError) {
            let credentials = try await connection.credentials(of: sender)
            let identity = AccessRules.Identity(user: credentials.userID, groups: credentials.groupIDs)
            return (identity, .identity(identity))
        } catch {
            // A bus that is lost, or slow, has not said that nobody is there.
            return (nil, error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" ? .gone : .unknown)
        }
    }

    /// Another bus gives the same names to others.
    func forget() { senders.withLock { $0.forget() } }
}
