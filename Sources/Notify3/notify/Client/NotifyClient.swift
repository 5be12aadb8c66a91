import Basics
import CNotify
import DBus
import NotifyCenter
import Synchronization

/// The registrations of this process. A ``RegistrationTable`` decides. This class holds the lock of the table, and acts
/// after it has released the lock.
///
/// Posts arrive on the reading thread, which notifies the registrations in the bus's order. A post of a `self.` name
/// notifies on the poster's thread.
final class NotifyClient: Sendable {
    typealias Table = RegistrationTable<any NoticeSink, NameResource>

    /// The resource of a name while it has registrations.
    struct NameResource: Sendable {
        let counter: PostCounter
        /// While it exists, the bus sends the name's posts; `nil` for `self.` names.
        let lease: NameLease?
    }

    /// The source of a name's posts.
    enum NameLease: Sendable {
        /// Any process.
        case open(PostLease)
        /// Only notifyd. Its broadcasts pass the proxy of a sandbox that may talk to it.
        case reserved(MatchRuleLease)
    }

    private struct State {
        var table = Table()
        var numbers = TokenNumbers(tokensPerPage: TokenTable.tokensPerPage)
        var counters = PostCounterPool()
        /// By the number of the caller's end of the pipe.
        var channels: [CInt: DescriptorChannel] = [:]
    }

    private let machineRules = MachineRules()
    private let hasReportedConfiguration = Atomic(false)
    private let hasReportedSandbox = Atomic(false)
    private let state = PosixLocked(State())
    /// Watches the paths of registrations; `nil` before the first path.
    let paths = Locked<PathWatcher?>(nil)
    let link = NotifydLink()
    /// How many posts this process has sent, and how many of them have certainly come back to it.
    let postsSent = Atomic<UInt64>(0)
    let postsSeen = Atomic<UInt64>(0)

    static var center: BusCenter { DarwinNotifyCenter.default.center }

    /// The one connection for posts, registrations and notifyd, even if the environment changes later.
    static func connection() throws(DBusError) -> DBusConnection { try center.connection() }

    // MARK: Registering

    /// Registers a name.
    ///
    /// - Parameter sink: Makes the sink of the notices, after everything else is checked. `check` and `plain` have no
    ///   sink.
    func register(
        _ name: UnsafePointer<CChar>?,
        _ kind: RegistrationKind,
        sink: () throws(NotifyStatus) -> (any NoticeSink)? = { nil }
    ) throws(NotifyStatus) -> CInt {
        let name = try Self.name(name)
        // One deadline for everything that this call waits for.
        let deadline = ContinuousClock.now + Self.patience
        let token = try register(name, kind, by: deadline, sink: sink)
        do throws(NotifyStatus) {
            if kind == .check || kind == .plain { try fence(by: deadline) }
            if let watched = PathName(name) {
                try monitor(token, watched.path, watched.flags, by: deadline + Self.patienceWithPath)
            }
            return token
        } catch {
            // The caller does not get the token, so only this function can cancel it.
            try cancel(token)
            throw error
        }
    }

    private func register(
        _ name: NotificationName,
        _ kind: RegistrationKind,
        by deadline: ContinuousClock.Instant,
        sink: () throws(NotifyStatus) -> (any NoticeSink)?
    ) throws(NotifyStatus) -> CInt {
        guard NameScope(name.rawValue) != .process else { return try add(name, kind, try sink(), lease: nil) }
        guard !ProcessState.isDisabled else { throw .disabled }
        let rules = try authorize(.read, name)
        let isOpen = rules.isOpen(.write, name.rawValue)
        let sink = try sink()
        if let token = try addToKnown(name, kind, sink) { return token }
        let connection = try NotifyStatus.onBus { () throws(DBusError) in try self.listen(by: deadline) }
        return try link.entering(name, for: self) { () throws(NotifyStatus) in
            let lease = try NotifyStatus.onBus { () throws(DBusError) in
                try self.lease(name, isOpen: isOpen, connection, by: deadline)
            }
            return try add(name, kind, sink, lease: lease)
        }
    }

    /// How long a function waits for the bus.
    static let patience: Duration = .seconds(25)
    /// How much longer a registration waits for the path that it watches. Altogether it ends within 30 seconds.
    private static let patienceWithPath: Duration = .seconds(4)

    /// Returns the connection, once it has reached the bus and listens to posts and to notifyd.
    private func listen(by deadline: ContinuousClock.Instant) throws(DBusError) -> DBusConnection {
        if let connection = link.connection { return connection }
        let connection = try Self.connection()
        // A bus that was never reached fails the registration. An outage does not: see `lease`. The reading thread does
        // not wait here, because it maintains the connection itself.
        if connection.uniqueName == nil, !connection.isOnReadingThread {
            do throws(DBusError) {
                try connection.flush(timeout: deadline - .now)
            } catch  where error.code == .disconnected {
                // This thread has waited for the bus already, so it leaves the next attempt to the reading thread.
                try connection.reconnectOnReadingThread()
            }
        }
        try link.listen(connection, for: self)
        return connection
    }

    /// Makes the bus send the posts of a name. During an outage the connection keeps the rule, which is in force when
    /// the bus is back (Rules, a.12). A handler on the reading thread does not wait for the bus.
    private func lease(
        _ name: NotificationName,
        isOpen: Bool,
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) -> NameLease {
        let rule = MatchRule.darwinPosts(of: name, from: NotifydProtocol.busName)
        // After `disconnected`, the restoration of the connection requests the rule again and reports a refusal.
        // Another error comes from a bus that is back already, so this closure reports it.
        let report = { @Sendable (error: DBusError?) in
            guard let error, error.code != .disconnected else { return }
            UnthrownFailures.report(error, in: "a registration in a handler, or during an outage of the bus")
        }
        // Before the rule, so that the response arrives before the posts.
        if !isOpen { try link.findOwner(connection, self) }
        do throws(DBusError) {
            if isOpen { return .open(try Self.center.lease(name, by: deadline)) }
            if connection.isOnReadingThread {
                return .reserved(try connection.addMatchInOrder(rule, fallback: .allPosts, failed: report))
            }
            try Self.center.checkNotifyd(by: deadline)
            return .reserved(try connection.addMatch(rule, fallback: .allPosts, timeout: deadline - .now))
        } catch {
            guard error.code == .disconnected else {
                // The status does not contain the remedy.
                if Self.center.isOutOfReach, !hasReportedSandbox.exchange(true, ordering: .relaxed) {
                    UnthrownFailures.report(error, in: "a registration with notify(3)")
                }
                throw error
            }
            if isOpen { return .open(try Self.center.keepLease(name, settled: report)) }
            return .reserved(connection.keepMatch(rule, fallback: .allPosts, settled: report))
        }
    }

    static func name(_ name: UnsafePointer<CChar>?) throws(NotifyStatus) -> NotificationName {
        guard let name, let text = String(validatingCString: name) else { throw .invalidName }
        return NotificationName(text)
    }

    /// Returns the access rules.
    ///
    /// - Throws: If this process may not use the name in this way, or if the rules cannot be read.
    @discardableResult
    func authorize(_ access: AccessRules.Access, _ name: NotificationName) throws(NotifyStatus) -> AccessRules {
        let rules: AccessRules
        do throws(ConfigurationFileError) {
            rules = try machineRules.read()
        } catch {
            // Reported once, because a program may try again and again.
            if !hasReportedConfiguration.exchange(true, ordering: .relaxed) {
                UnthrownFailures.report(error, in: "the access rules of notify(3)")
            }
            throw .failed
        }
        guard rules.isOpen(access, name.rawValue) || rules.allows(access, name.rawValue, by: .ofThisProcess) else {
            throw .notAuthorized
        }
        return rules
    }

    private func addToKnown(
        _ name: NotificationName,
        _ kind: RegistrationKind,
        _ sink: (any NoticeSink)?
    ) throws(NotifyStatus) -> CInt? {
        try state.withLock { state throws(NotifyStatus) in
            guard let resource = state.table.resource(of: name) else { return nil }
            return try Self.add(name, kind, sink, resource, to: &state)
        }
    }

    private func add(
        _ name: NotificationName,
        _ kind: RegistrationKind,
        _ sink: (any NoticeSink)?,
        lease: NameLease?
    ) throws(NotifyStatus) -> CInt {
        try state.withLock { state throws(NotifyStatus) in
            // Another thread may have registered the name since. Its lease serves this registration too.
            if let resource = state.table.resource(of: name) {
                return try Self.add(name, kind, sink, resource, to: &state)
            }
            let resource = NameResource(counter: state.counters.take(), lease: lease)
            do throws(NotifyStatus) {
                return try Self.add(name, kind, sink, resource, to: &state)
            } catch {
                state.counters.giveBack(resource.counter)
                throw error
            }
        }
    }

    private static func add(
        _ name: NotificationName,
        _ kind: RegistrationKind,
        _ sink: (any NoticeSink)?,
        _ resource: NameResource,
        to state: inout State
    ) throws(NotifyStatus) -> CInt {
        let pipe = sink as? DescriptorChannel
        // Another thread may have cancelled the pipe's last token since.
        guard pipe?.isRetired != true else { throw kind == .port ? .invalidPort : .invalidFile }
        guard let token = state.numbers.take(), TokenTable.insert(token, resource.counter) else { throw .failed }
        state.table.add(token, name: name, kind: kind, sink: sink, resource: resource)
        if let pipe {
            pipe.begin(token)
            // If the caller has closed its end of an earlier pipe, this pipe may have got the number.
            state.channels[pipe.descriptor] = pipe
        }
        return token
    }

    /// Returns the pipe whose read end the caller has under this number.
    func channel(_ descriptor: CInt) -> DescriptorChannel? {
        let pipe = state.withLock { $0.channels[descriptor] }
        return pipe?.isIntact == true ? pipe : nil
    }

    // MARK: Tokens

    func cancel(_ token: CInt) throws(NotifyStatus) {
        let (ended, closed) = try link.leaving { () throws(NotifyStatus) in
            let (ended, closed) = try state.withLock { state throws(NotifyStatus) in
                guard let ended = state.table.remove(token) else { throw .invalidToken }
                TokenTable.remove(token)
                if state.numbers.end(token) { TokenTable.discardPage(of: token) }
                if let resource = ended.lastOfName { state.counters.giveBack(resource.counter) }
                return (ended, Self.leaveChannel(token, ended.registration.sink, &state))
            }
            return ((ended, closed), ended.lastOfName?.lease == nil ? nil : ended.registration.name)
        }
        ended.registration.sink?.end(token)
        closed?.close()
        if ended.registration.monitor != nil { unmonitor(token) }
    }

    /// Makes the next registrations take these numbers, which no caller has seen. Does nothing if there was another
    /// registration since.
    func reuseNumbers(of tokens: [CInt]) { state.withLock { $0.numbers.takeBack(tokens) } }

    /// - Returns: The pipe, if this was its last token.
    private static func leaveChannel(
        _ token: CInt,
        _ sink: (any NoticeSink)?,
        _ state: inout State
    ) -> DescriptorChannel? {
        guard let pipe = sink as? DescriptorChannel, pipe.leave(token) else { return nil }
        if state.channels[pipe.descriptor] === pipe { state.channels[pipe.descriptor] = nil }
        return pipe
    }

    func registration(_ token: CInt) throws(NotifyStatus) -> Table.Registration {
        guard let registration = state.withLock({ $0.table[token] }) else { throw .invalidToken }
        return registration
    }

    func suspend(_ token: CInt) throws(NotifyStatus) {
        guard state.withLock({ $0.table.suspend(token) }) else { throw .invalidToken }
    }

    func resume(_ token: CInt) throws(NotifyStatus) {
        guard let notice = state.withLock({ $0.table.resume(token) }) else { throw .invalidToken }
        if let notice { notice.sink.notify(notice.token) }
    }

    // MARK: Notices

    /// Takes a signal, on the reading thread. Returns false if it is not a post.
    func receive(_ message: borrowing DBusMessage) -> Bool {
        guard let post = Self.center.post(message) else { return false }
        let name = post.name
        if NameScope(name.rawValue) == .process { return true }
        // The rules are cached since the registration, so this does not fail.
        if (try? machineRules.read())?.isOpen(.write, name.rawValue) == true {
            deliver(name)
        } else if link.isNotifyd(post.sender) {
            // A reserved name counts only from notifyd. A post of another sender can arrive too: by a rule that other
            // code has on this connection, or sent to the connection directly.
            deliver(name)
        }
        return true
    }

    /// Counts a post before it notifies, because a handler may call notify_check.
    func deliver(_ name: NotificationName) {
        let notices = state.withLock { state -> [Table.Notice] in
            guard let resource = state.table.resource(of: name) else { return [] }
            resource.counter.increment()
            return state.table.posted(name)
        }
        for notice in notices { notice.sink.notify(notice.token) }
    }

    /// Notifies a registration whose path has changed, and no other (Rules, a.13).
    func fire(_ token: CInt) {
        let notice = state.withLock { state -> Table.Notice? in
            guard state.table[token]?.monitor != nil else { return nil }
            TokenTable.forgetSeen(token)
            return state.table.fired(token)
        }
        if let notice { notice.sink.notify(notice.token) }
    }

    func suspendProcess() { state.withLock { $0.table.suspendProcess() } }

    func resumeProcess() {
        for notice in state.withLock({ $0.table.resumeProcess() }) { notice.sink.notify(notice.token) }
    }

    // MARK: Access to the table

    func isRegistered(_ name: NotificationName) -> Bool { state.withLock { $0.table.resource(of: name) != nil } }

    /// Calls `body` with the table while the lock is held.
    func withTable<Value: Sendable>(_ body: @Sendable (inout Table) -> Value) -> Value {
        state.withLock { body(&$0.table) }
    }
}

// Posts, and the services of notifyd for this process: reserved names, state, suspension of processes.
extension NotifyClient {
    // MARK: Posting

    func post(_ name: UnsafePointer<CChar>?) throws(NotifyStatus) {
        let name = try Self.name(name)
        guard NameScope(name.rawValue) != .process else { return deliver(name) }
        guard !ProcessState.isOff.load(ordering: .relaxed) else { throw .disabled }
        guard try authorize(.write, name).isOpen(.write, name.rawValue) else {
            // Receivers take a reserved name only from notifyd. The post is back before the response.
            return try NotifyStatus.onBus { () throws(DBusError) in try Self.center.postByNotifyd(name) }
        }
        try NotifyStatus.onBus { () throws(DBusError) in try Self.center.post(name) }
        // A forked child does not receive its own posts.
        if ForkedChild.isCurrent { return }
        // Counted after sending, so that the counted posts reach the bus before any later message of the thread that
        // reads this number.
        postsSent.wrappingAdd(1, ordering: .releasing)
    }

    /// Waits until this process has received its own posts. So `notify_check` is true if a call that waits for a
    /// response follows a post (Rules, a.8). Costs nothing while no post is on its way. Does not wait for posts that
    /// were lost in an outage.
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

    /// Notes that a response of the bus came after these posts.
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
        // Remembered before the call, because notifyd may end right after its response.
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

    /// Calls notifyd and waits for the response. The bus starts notifyd if it does not run.
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
        try connection().callAndWait(call, timeout: timeout)
    }
}

// Paths that registrations monitor (Rules, a.13). This process watches them itself, with its own rights.
extension NotifyClient {
    /// Notifies this registration, and no other, when something changes at a path. Changes after the return are not
    /// missed.
    func monitor(
        _ token: CInt,
        _ path: String,
        _ flags: UInt32,
        by deadline: ContinuousClock.Instant? = nil
    ) throws(NotifyStatus) {
        let name = try registration(token).name
        guard NameScope(name.rawValue) != .process, path.utf8.first == UInt8(ascii: "/") else { throw .invalidRequest }
        guard !ProcessState.isDisabled else { throw .disabled }
        // Before the path is watched, so that the first change finds its registration.
        guard withTable({ $0.addMonitor(MonitorReport(token: token, path: path, flags: flags)) }) else {
            throw .invalidRequest
        }
        do throws(NotifyStatus) {
            try watch(token, FilePath(path), .wanted(flags), by: deadline)
        } catch {
            withTable { $0.removeMonitor(of: token) }
            throw error
        }
        // If another thread has cancelled the token since, it could not end this watch.
        if withTable({ $0[token] == nil }) { unmonitor(token) }
    }

    func unmonitor(_ token: CInt) { paths.withLock { $0 }?.remove(UInt64(token)) }

    private func watch(
        _ token: CInt,
        _ path: FilePath,
        _ wanted: PathEvents,
        by deadline: ContinuousClock.Instant?
    ) throws(NotifyStatus) {
        let outcome: PathWatcher.Outcome
        do throws(Problem) {
            outcome = try watcher().addAndWait(UInt64(token), path, wanted, by: deadline)
        } catch {
            throw .failed
        }
        switch outcome {
        case .watched: break
        case .denied: throw .notAuthorized
        case .impossible: throw .failed
        }
    }

    /// Returns the watcher. It is made for the first path, because inotify instances are few.
    private func watcher() throws(Problem) -> PathWatcher {
        try paths.withLock { paths throws(Problem) in
            if let paths { return paths }
            let watcher = try PathWatcher { [weak self] tokens in
                for token in tokens { self?.fire(CInt(truncatingIfNeeded: token)) }
            }
            paths = watcher
            return watcher
        }
    }
}

/// A name that contains the path to monitor: `com.apple.system.notify.service.path:[FLAGS:]PATH` (Rules, a.4).
struct PathName: Equatable {
    private static let prefix = "com.apple.system.notify.service.path:"

    let path: String
    /// The flags of `notify_private.h`, as a decimal number or, after `0x`, as a hexadecimal one; 0 means all.
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
