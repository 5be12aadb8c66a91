import DBus
import NotifyCenter
import Synchronization

// Posts, and the services of notifyd for this process: reserved names, state, suspension of processes.
extension NotifyClient {
    // MARK: Posting

    func post(_ name: UnsafePointer<CChar>?) throws(NotifyStatus) {
        let name = try Self.name(name)
        guard NameScope(name.rawValue) != .process else { return deliver(name) }
        guard !ProcessState.isSwitchedOff else { throw .disabled }
        guard try authorize(.write, name).isOpen(.write, name.rawValue) else {
            // Receivers take a reserved name only from notifyd. The post is back before the reply.
            return try NotifyStatus.onBus { () throws(DBusError) in try Self.center.postByNotifyd(name) }
        }
        try NotifyStatus.onBus { () throws(DBusError) in try Self.center.postUnchecked(name) }
        // A forked child does not receive its own posts.
        if ForkedChild.isCurrent { return }
        // Counted after sending, so that the counted posts reach the bus before any later message of the thread that
        // reads this number.
        postsSent.wrappingAdd(1, ordering: .releasing)
    }

    /// Waits until this process has received its own posts. So `notify_check` is true if a call that waits for a reply
    /// follows a post (Rules, a.8). Costs nothing while no post is on its way. Does not wait for posts that were lost
    /// in an outage.
    func fence(by deadline: ContinuousClock.Instant) throws(NotifyStatus) {
        let sent = postsSent.load(ordering: .acquiring)
        guard postsSeen.load(ordering: .acquiring) < sent else { return }
        do throws(DBusError) {
            try Self.connection().flush(timeout: deadline - .now)
        } catch {
            // A handler on the reading thread receives the posts after it has returned.
            if error.code == .wouldDeadlock { return }
            guard error.code == .disconnected else { throw NotifyStatus(error) }
        }
        sawPosts(until: sent)
    }

    /// Notes that a reply of the bus came after these posts.
    func sawPosts(until sent: UInt64) { postsSeen.max(sent, ordering: .releasing) }

    // MARK: State

    private static let setState = NotifydProtocol.template(.setState)
    private static let getState = NotifydProtocol.template(.getState)

    func setState(_ token: CInt, _ value: UInt64) throws(NotifyStatus) {
        let name = try registration(token).name
        let state = StateReport(value: value, time: BootClock.now)
        guard NameScope(name.rawValue) != .process else { return withTable { $0.setState(state, of: name) } }
        guard !ProcessState.isDisabled else { throw .disabled }
        try authorize(.write, name)
        // Remembered before the call, because notifyd may end right after its reply.
        let before = withTable { $0.exchangeState(state, of: name) }
        do throws(NotifyStatus) {
            _ = try call(Self.setState, [.string(name.rawValue), .uint64(state.value), .uint64(state.time)])
        } catch {
            withTable { $0.restoreState(before, of: name, from: state) }
            throw error
        }
        link.leaveIfUnregistered(name, in: self)
    }

    func state(_ token: CInt) throws(NotifyStatus) -> UInt64 {
        let name = try registration(token).name
        guard NameScope(name.rawValue) != .process else { return withTable { $0.state(of: name) } }
        guard !ProcessState.isDisabled else { throw .disabled }
        let sent = postsSent.load(ordering: .acquiring)
        let answer = try call(Self.getState, [.string(name.rawValue)])
        sawPosts(until: sent)
        guard let value = answer.first?.unsignedValue else { throw .failed }
        return value
    }

    // MARK: Calling notifyd

    /// Calls notifyd and waits for the reply. The bus starts notifyd if it does not run.
    func call(_ method: NotifydProtocol.Method, _ arguments: [DBusValue] = []) throws(NotifyStatus) -> [DBusValue] {
        try NotifyStatus.onBus { () throws(DBusError) in try Self.send(try NotifydProtocol.call(method, arguments)) }
    }

    /// Returns notifyd's status, and all names that this process may know.
    func status(by deadline: ContinuousClock.Instant) throws(NotifyStatus) -> String {
        try NotifyStatus.onBus { () throws(DBusError) in
            try NotifydProtocol.status { call throws(DBusError) in try Self.send(call, timeout: deadline - .now) }
        }
    }

    private func call(
        _ template: Result<MessageTemplate, DBusError>,
        _ arguments: [DBusValue]
    ) throws(NotifyStatus) -> [DBusValue] {
        try NotifyStatus.onBus { () throws(DBusError) in try Self.send(try template.get().filled(arguments)) }
    }

    private static func send(
        _ call: consuming DBusMessage,
        timeout: Duration = NotifyClient.patience
    ) throws(DBusError) -> [DBusValue] {
        try connection().callAndWait(taking: call, timeout: timeout)
    }
}
