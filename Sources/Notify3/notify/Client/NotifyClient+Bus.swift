import DBusTransport
import NotifyCenter
import NotifydProtocol
import Synchronization

// Posts, and what notifyd does for this process: state, paths, suspension of processes.
extension NotifyClient {
    // MARK: Posting

    /// Posts a name.
    func post(_ name: UnsafePointer<CChar>?) throws(NotifyStatus) {
        let name = try Self.name(name)
        guard NameScope(name.rawValue) != .process else { return deliver(name) }
        guard !ProcessState.isDisabled else { throw .disabled }
        try authorize(.write, name)
        ProcessState.isOnBus()
        if try postThroughNotifyd(name) { return }
        try NotifyStatus.onBus { () throws(DBusError) in try Self.center.post(name) }
        // Counted after it was sent: whoever reads this number has its posts before it on the way to the bus.
        postsSent.wrappingAdd(1, ordering: .releasing)
    }

    /// Has notifyd post a reserved name. Receivers ask the bus who the sender is: notifyd still runs when they ask, while a process that
    /// posts and ends does not. Without notifyd, or where notifyd may not post the name either, this process posts it itself.
    private func postThroughNotifyd(_ name: NotificationName) throws(NotifyStatus) -> Bool {
        guard !rules.isOpen(.write, name.rawValue) else { return false }
        do throws(DBusError) {
            guard
                let owner = try Self.send(
                    try NotifydProtocol.call(.post, [.string(name.rawValue)])
                ).first?.stringValue, !owner.isEmpty
            else {
                return false
            }
            // The post is back before the answer. What may be left is to ask the bus about notifyd, the first time.
            try authority.settle(owner, Self.connection())
            return true
        } catch {
            if NotifydProtocol.isAbsent(error) { return false }
            throw NotifyStatus(error)
        }
    }

    /// Waits until this process has seen its own posts: after a post, a call that waits for an answer finds `notify_check` true
    /// (Rules, a.8). Costs nothing while no post is on its way. Posts that an outage swallowed are waited for no longer.
    func fence() throws(NotifyStatus) {
        let sent = postsSent.load(ordering: .acquiring)
        guard postsSeen.load(ordering: .acquiring) < sent else { return }
        do throws(DBusError) {
            try Self.connection().flush()
        } catch {
            guard error.code == .disconnected else { throw NotifyStatus(error) }
        }
        sawPosts(until: sent)
    }

    /// Notes that an answer of the bus came after these posts.
    func sawPosts(until sent: UInt64) { postsSeen.max(sent, ordering: .releasing) }

    // MARK: State

    private static let setState = NotifydProtocol.template(.setState)
    private static let getState = NotifydProtocol.template(.getState)

    /// Sets the state of the token's name.
    func setState(_ token: CInt, _ value: UInt64) throws(NotifyStatus) {
        let name = try registration(token).name
        let state = StateReport(value: value, time: BootClock.now)
        guard NameScope(name.rawValue) != .process else { return withTable { $0.setState(state, of: name) } }
        guard !ProcessState.isDisabled else { throw .disabled }
        try authorize(.write, name)
        // Remembered before notifyd is asked, which may end right after its answer.
        let before = withTable { $0.exchangeState(state, of: name) }
        do throws(NotifyStatus) {
            _ = try call(Self.setState, [.string(name.rawValue), .uint64(state.value), .uint64(state.time)])
        } catch {
            withTable { $0.restoreState(before, of: name, from: state) }
            throw error
        }
        link.leaveIfUnregistered(name, in: self)
    }

    /// Reads the state of the token's name.
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

    // MARK: Paths

    /// Has notifyd tell when the path of a token changes.
    func monitor(_ token: CInt, _ path: String, _ flags: UInt32) throws(NotifyStatus) {
        let name = try registration(token).name
        guard NameScope(name.rawValue) != .process, path.utf8.first == UInt8(ascii: "/") else { throw .invalidRequest }
        guard !ProcessState.isDisabled else { throw .disabled }
        let monitor = MonitorReport(token: token, path: path, flags: flags)
        // Before notifyd is asked, so that the first change finds its registration.
        guard withTable({ $0.addMonitor(monitor) }) else { throw .invalidRequest }
        do throws(NotifyStatus) {
            let arguments: [DBusValue] = [.int32(token), .string(name.rawValue), .string(path), .uint32(flags)]
            link.answered(by: try call(.monitor, arguments).first?.stringValue)
            // A thread that cancelled the token meanwhile has told notifyd too early.
            if withTable({ $0[token] == nil }) { link.unmonitor(token) }
            link.leaveIfUnregistered(name, in: self)
        } catch {
            withTable { $0.removeMonitor(of: token) }
            // Where no answer came, notifyd may have begun.
            link.unmonitor(token)
            throw error
        }
    }

    // MARK: Calling notifyd

    /// Calls notifyd, which the bus starts if it does not run, and waits for the answer.
    func call(_ method: NotifydProtocol.Method, _ arguments: [DBusValue] = []) throws(NotifyStatus) -> [DBusValue] {
        try NotifyStatus.onBus { () throws(DBusError) in try Self.send(try NotifydProtocol.call(method, arguments)) }
    }

    private func call(
        _ template: Result<MessageTemplate, DBusError>,
        _ arguments: [DBusValue]
    ) throws(NotifyStatus) -> [DBusValue] {
        try NotifyStatus.onBus { () throws(DBusError) in try Self.send(try template.get().filled(arguments)) }
    }

    private static func send(_ call: consuming DBusMessage) throws(DBusError) -> [DBusValue] {
        ProcessState.isOnBus()
        return try connection().callAndWait(taking: call)
    }
}

/// A name that says which path its registration monitors: `com.apple.system.notify.service.path:[FLAGS:]PATH` (Rules, a.4).
struct PathName: Equatable {
    private static let prefix = "com.apple.system.notify.service.path:"

    let path: String
    /// As in `notify_private.h`, written as a decimal number or, after `0x`, as a hexadecimal one; 0 means all.
    let flags: UInt32

    /// `nil` for any other name.
    init?(_ name: NotificationName) {
        guard name.rawValue.hasPrefix(Self.prefix) else { return nil }
        let rest = name.rawValue.dropFirst(Self.prefix.count)
        guard let colon = rest.firstIndex(of: ":"), let flags = Self.number(rest[..<colon]) else {
            (path, flags) = (String(rest), 0)
            return
        }
        (path, self.flags) = (String(rest[rest.index(after: colon)...]), flags)
    }

    private static func number(_ text: Substring) -> UInt32? {
        text.hasPrefix("0x") ? UInt32(text.dropFirst(2), radix: 16) : UInt32(text)
    }
}
