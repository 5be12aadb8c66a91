import DBusTransport
import NotifyCenter
import NotifydProtocol
import Synchronization

extension NotifyClient {
    /// Posts a name.
    func post(_ name: UnsafePointer<CChar>?) throws(NotifyStatus) {
        let name = try Self.name(name)
        guard NameScope(name.rawValue) != .process else { return deliver(name) }
        guard !ProcessState.isDisabled else { throw .disabled }
        try authorize(.write, name)
        ProcessState.isOnBus()
        if try postThroughNotifyd(name) { return }
        try NotifyStatus.onBus { () throws(DBusError) in try Self.center.post(name) }
        // After it was sent: who finds the number has a post before them on the way to the bus.
        postsSent.wrappingAdd(1, ordering: .releasing)
    }

    /// Has notifyd post a name that not everybody may post. Receivers ask the bus who the sender is: notifyd is there to be asked about,
    /// a process that posts and ends is not. Without notifyd, or where that may not post it either, it is posted as others are.
    private func postThroughNotifyd(_ name: NotificationName) throws(NotifyStatus) -> Bool {
        guard !rules.isOpen(.write, name.rawValue) else { return false }
        do throws(NotifyStatus) {
            guard let owner = try call(.post, [.string(name.rawValue)]).first?.stringValue, !owner.isEmpty else {
                return false
            }
            // The post is back before the answer; what is left is to ask about notifyd, the first time.
            authority.settle(owner)
            return true
        } catch .serverNotFound {
            return false
        }
    }

    /// Waits until this process has seen its own posts: after a post, a call that waits for an answer finds `notify_check` true
    /// (notify(3), a.8). Costs nothing where none is under way.
    func fence() throws(NotifyStatus) {
        let sent = postsSent.load(ordering: .acquiring)
        guard postsSeen.load(ordering: .acquiring) < sent else { return }
        try NotifyStatus.onBus { () throws(DBusError) in
            try Self.connection().flush()
        }
        sawPosts(until: sent)
    }

    /// Notes that a round trip has brought these posts back.
    func sawPosts(until sent: UInt64) { postsSeen.max(sent, ordering: .releasing) }
}
