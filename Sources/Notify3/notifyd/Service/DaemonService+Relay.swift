import Basics
import DBus
import NotifyCenter
import Synchronization

/// A post for connections in sandboxes.
final class RelayedPost: Sendable {
    private let message: DBusMessage
    private let path: String
    let bytes: Int

    init(_ message: borrowing DBusMessage, by poster: String, bytes: Int) throws(DBusError) {
        self.message = try message.copy()
        self.bytes = bytes
        path = NotifydProtocol.relayPath(ofPostsBy: poster)
    }

    func message(to connection: String) throws(DBusError) -> DBusMessage {
        try message.readdressed(from: path, to: connection)
    }
}

// Posts that notifyd sends on to processes in sandboxes. Each waits for the turn of its receiver's user. The posts of a
// user have as much room as its calls, and the same pace.
extension DaemonService {
    /// The largest post that is relayed, in bytes. Receivers take no larger one.
    private static let largestPost = 2 << 20
    /// The largest post of the Darwin center, in bytes, that is kept for a receiver without room.
    private static let largestOwedPost = 4 << 10

    /// Starts to relay the posts on these interfaces to the caller. Replies when the rules are in force.
    func relay(_ interfaces: [String], _ work: IncomingWork, _ identity: Identity) throws(Refusal) {
        let sender = work.sender
        try relays.check(interfaces, for: sender, of: identity.user)
        for name in interfaces.lazy.compactMap({ DarwinSignal.name(of: $0) }) {
            guard state.rules.allows(.read, name.rawValue, by: identity) else {
                let name = name.rawValue.prefix(200)
                throw Refusal(.notAuthorized, "user \(identity.user) may not register for \(name)")
            }
        }
        let pending = Locked((count: interfaces.count, error: DBusError?.none))
        guard !interfaces.isEmpty else { return work.succeed() }
        let new = interfaces.filter { !relays.has($0, for: sender) }
        for interface in interfaces {
            let lease = connection.keepMatch(.posts(on: interface), fallback: .allPosts) { error in
                let last = pending.withLock { pending in
                    pending.count -= 1
                    pending.error = pending.error ?? error
                    return pending.count == 0 ? pending : nil
                }
                guard let last else { return }
                guard let error = last.error else { return work.succeed() }
                work.refuse(Refusal(.limitsExceeded, "\(error)"))
                self.connection.perform {
                    self.assumeIsolated { service in
                        for interface in new { service.relays.end(interface, for: sender) }
                    }
                }
            }
            relays.begin(interface, lease, for: sender, of: identity.user)
        }
    }

    /// Relays a post that has arrived.
    func relay(_ message: borrowing DBusMessage) {
        // A post with descriptors is not relayed: the descriptors of other processes would use up notifyd's.
        guard !relays.isIdle, !message.isDirected, !message.hasDescriptors, let poster = message.sender,
            poster != connection.uniqueName,
            message.has(path: "/org/notifycenter", member: "Posted"), let interface = message.interface
        else { return }
        let receivers = relays.receivers(of: interface, postedBy: poster)
        guard !receivers.isEmpty else { return }
        let bytes = message.size
        guard bytes <= Self.largestPost else { return }
        var name: String?
        if RelayedCenter(interface: interface) == .darwin {
            // Other processes may not post a reserved name. notifyd's own posts pass the proxy.
            guard let post = DarwinSignal(message), state.rules.isOpen(.write, post.name.rawValue) else { return }
            name = post.name.rawValue
        }
        guard let post = try? RelayedPost(message, by: poster, bytes: bytes) else { return }
        for (receiver, asked) in receivers {
            guard let identity = state.clients[receiver]?.identity,
                name.map({ state.rules.allows(.read, $0, by: identity) }) ?? true
            else { continue }
            offer(post, on: asked, to: receiver, of: identity.user)
        }
    }

    /// Queues a post for its turn. A receiver without room for it is paused. If the post is one of the Darwin center,
    /// the receiver gets it after the pause: its observers must receive a post after the last one was sent.
    private func offer(_ post: RelayedPost, on interface: String, to receiver: String, of user: UInt32) {
        guard state.clients[receiver] != nil else { return }
        let limits = state.limits(ofUser: user)
        if reads(receiver), posts.hasRoom(for: post.bytes, of: user, within: limits.waiting) {
            return posts.append(post, bytes: post.bytes, to: receiver, of: user, pace: limits.pace)
        }
        figures.dropped += 1
        let isOwed = RelayedCenter(interface: interface) == .darwin && post.bytes <= Self.largestOwedPost
        endPausesLater()
        relays.pause(interface, for: receiver, owing: isOwed ? post : nil, bytes: post.bytes)
    }

    private func endPausesLater() {
        guard !willEndPauses else { return }
        willEndPauses = true
        after(.seconds(1)) { service in
            service.willEndPauses = false
            service.endPauses()
            if !service.relays.pauses.isEmpty { service.endPausesLater() }
        }
    }

    /// Ends the pauses of receivers that read, and whose user has at least half of its room free.
    private func endPauses() {
        for pause in relays.pauses {
            guard let user = user(of: pause.connection), reads(pause.connection) else { continue }
            let limit = state.limits(ofUser: user).waiting
            let half = CallAmount(calls: limit.calls / 2, bytes: limit.bytes / 2)
            guard posts.hasRoom(for: 0, of: user, within: half) else { continue }
            let owed = relays.owed(pause)
            let lease = connection.keepMatch(.posts(on: pause.interface), fallback: .allPosts) { _ in
                guard let owed else { return }
                // Sent when the rule is in force, so that it comes after the posts of the pause.
                self.connection.perform {
                    self.assumeIsolated { $0.offer(owed, on: pause.interface, to: pause.connection, of: user) }
                }
            }
            relays.begin(pause.interface, lease, for: pause.connection, of: user)
        }
    }

    func send(_ post: RelayedPost, to connection: String) {
        // The receiver may have disconnected since.
        guard state.clients[connection] != nil else { return }
        do throws(DBusError) {
            try self.connection.send(try post.message(to: connection))
            sent(post.bytes, to: connection)
        } catch {
            Diagnostics.write("\(error)")
        }
    }
}
