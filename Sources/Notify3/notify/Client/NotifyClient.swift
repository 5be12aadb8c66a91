import CNotify
import DBusTransport
import Glibc
import NotifyCenter
import NotifydProtocol
import Synchronization

/// The process's registrations on the bus: a ``RegistrationTable`` decides, this holds it and acts, outside of its lock.
///
/// Notices of posts go out from the thread that reads the bus, in the order of arrival, but for names whose sender must be asked
/// about first; those of `self.` names from the poster's.
final class NotifyClient: Sendable {
    typealias Table = RegistrationTable<any NoticeSink, NameResource>

    /// What a name holds while it has registrations.
    struct NameResource: Sendable {
        let counter: PostCounter
        /// Keeps the bus sending; none for `self.` names.
        let observation: NotificationObservation?
    }

    private struct State {
        var table = Table()
        var numbers = TokenNumbers(tokensPerPage: TokenTable.tokensPerPage)
        var counters = PostCounterPool()
        /// By the caller's end.
        var channels: [CInt: Channel] = [:]
    }

    private struct Channel {
        let pipe: DescriptorChannel
        var tokens: Set<CInt>
    }

    let rules = NotifyConfiguration.ofMachine().rules
    private let state = Locked(State())
    /// The way to notifyd.
    let link = NotifydLink()
    /// Who may have posted.
    let authority = PostAuthority()
    /// Own posts that were sent, and those of them that this process has seen for sure.
    let postsSent = Atomic<UInt64>(0)
    let postsSeen = Atomic<UInt64>(0)

    static var center: DarwinNotifyCenter { .default }

    /// The one connection for posts, notifyd and questions to the bus, whatever becomes of the environment meanwhile.
    static func connection() throws(DBusError) -> DBusConnection { try center.connection() }

    // MARK: Registering

    /// Registers a name.
    ///
    /// - Parameter sink: makes the place where notices go; called once all else is checked. None for `check` and `plain`.
    func register(
        _ name: UnsafePointer<CChar>?,
        _ kind: RegistrationKind,
        sink: () throws(NotifyStatus) -> (any NoticeSink)? = { nil }
    ) throws(NotifyStatus) -> CInt {
        let name = try Self.name(name)
        let token = try register(name, kind, sink: sink)
        guard let watch = PathName(name) else { return token }
        do throws(NotifyStatus) {
            try monitor(token, watch.path, watch.flags)
        } catch {
            try cancel(token)
            throw error
        }
        return token
    }

    private func register(
        _ name: NotificationName,
        _ kind: RegistrationKind,
        sink: () throws(NotifyStatus) -> (any NoticeSink)?
    ) throws(NotifyStatus) -> CInt {
        guard NameScope(name.rawValue) != .process else {
            return try add(name, kind, try sink(), observation: nil, announced: 0)
        }
        guard !ProcessState.isDisabled else { throw .disabled }
        try authorize(.read, name)
        let sink = try sink()
        if let token = try addToKnown(name, kind, sink) { return try fenced(token, kind) }
        ProcessState.isOnBus()
        link.begin(self)
        let announced = link.announce(name)
        let token: CInt
        do throws(NotifyStatus) {
            let observation = try NotifyStatus.onBus { () throws(DBusError) in
                try Self.center.observe(name, delivery: .immediate) { [weak self] in self?.receive($0) }
            }
            token = try add(name, kind, sink, observation: observation, announced: announced)
        } catch {
            leaveIfUnregistered(name)
            throw error
        }
        link.settleRegistration()
        // The bus need not have been asked: another part of the process may observe the name, or all names.
        return try fenced(token, kind)
    }

    /// A new token, once the process has seen its own posts, where the kind is one that is asked.
    private func fenced(_ token: CInt, _ kind: RegistrationKind) throws(NotifyStatus) -> CInt {
        guard kind == .check || kind == .plain else { return token }
        do throws(NotifyStatus) {
            try fence()
        } catch {
            // Nobody else would: the caller does not get it.
            try cancel(token)
            throw error
        }
        return token
    }

    /// A name as C says it.
    static func name(_ name: UnsafePointer<CChar>?) throws(NotifyStatus) -> NotificationName {
        guard let name, let text = String(validatingCString: name) else { throw .invalidName }
        return NotificationName(text)
    }

    /// Whether this process may.
    func authorize(_ access: AccessRules.Access, _ name: NotificationName) throws(NotifyStatus) {
        guard rules.isOpen(access, name.rawValue) || rules.allows(access, name.rawValue, by: .ofThisProcess) else {
            throw .notAuthorized
        }
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
        observation: NotificationObservation?,
        announced: UInt64
    ) throws(NotifyStatus) -> CInt {
        // What another thread has entered meanwhile serves this one as well; `observation` then ends with this function.
        try state.withLock { state throws(NotifyStatus) in
            if let resource = state.table.resource(of: name) {
                return try Self.add(name, kind, sink, resource, to: &state)
            }
            let resource = NameResource(counter: state.counters.take(), observation: observation)
            let token: CInt
            do throws(NotifyStatus) {
                token = try Self.add(name, kind, sink, resource, to: &state)
            } catch {
                state.counters.giveBack(resource.counter)
                throw error
            }
            if observation != nil { link.confirm(name, since: announced) }
            return token
        }
    }

    /// notifyd may know of the name by a call that came after the last registration had gone.
    func leaveIfUnregistered(_ name: NotificationName) {
        state.withLock { state in
            if state.table.resource(of: name) == nil { link.left(name) }
        }
        link.settle()
    }

    private static func add(
        _ name: NotificationName,
        _ kind: RegistrationKind,
        _ sink: (any NoticeSink)?,
        _ resource: NameResource,
        to state: inout State
    ) throws(NotifyStatus) -> CInt {
        let pipe = sink as? DescriptorChannel
        // Another thread may have cancelled its last token meanwhile.
        guard pipe?.isRetired != true else { throw kind == .port ? .invalidPort : .invalidFile }
        guard let token = state.numbers.take(), TokenTable.insert(token, resource.counter) else { throw .failed }
        if state.table.resource(of: name) == nil { state.table.enter(name, resource) }
        state.table.add(token, name: name, kind: kind, sink: sink)
        if let pipe {
            // A caller may have closed an earlier pipe's end, and this one have got its number.
            if state.channels[pipe.descriptor]?.pipe !== pipe {
                state.channels[pipe.descriptor] = Channel(pipe: pipe, tokens: [])
            }
            state.channels[pipe.descriptor]?.tokens.insert(token)
        }
        return token
    }

    /// The pipe whose read end the caller has under this number.
    func channel(_ descriptor: CInt) -> DescriptorChannel? {
        let pipe = state.withLock { $0.channels[descriptor]?.pipe }
        return pipe?.isIntact == true ? pipe : nil
    }

    // MARK: Tokens

    /// Ends a registration.
    func cancel(_ token: CInt) throws(NotifyStatus) {
        let (ended, closed) = try state.withLock { state throws(NotifyStatus) in
            guard let ended = state.table.remove(token) else { throw .invalidToken }
            TokenTable.remove(token)
            if state.numbers.end(token) { TokenTable.discardPage(of: token) }
            if let resource = ended.lastOfName {
                state.counters.giveBack(resource.counter)
                if resource.observation != nil { link.left(ended.registration.name) }
            }
            return (ended, Self.leaveChannel(token, ended.registration.sink, &state))
        }
        ended.registration.sink?.end(token)
        closed?.close()
        if ended.registration.monitor != nil { link.unmonitor(token) }
        if let resource = ended.lastOfName, let observation = resource.observation {
            observation.cancel()
            link.settle()
        }
    }

    /// - Returns: the pipe, if this was its last token.
    private static func leaveChannel(
        _ token: CInt,
        _ sink: (any NoticeSink)?,
        _ state: inout State
    ) -> DescriptorChannel? {
        guard let pipe = sink as? DescriptorChannel, state.channels[pipe.descriptor]?.pipe === pipe else { return nil }
        state.channels[pipe.descriptor]?.tokens.remove(token)
        guard state.channels[pipe.descriptor]?.tokens.isEmpty == true else { return nil }
        state.channels[pipe.descriptor] = nil
        pipe.retire()
        return pipe
    }

    /// A live token's registration.
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

    /// On the reading thread.
    private func receive(_ notification: DarwinNotification) {
        let name = notification.name
        if rules.isOpen(.write, name.rawValue) { return deliver(name) }
        authority.check(notification.sender, name, rules) { [weak self] in self?.deliver(name) }
    }

    /// Counts a post and notifies. The counter first: a handler may ask it.
    func deliver(_ name: NotificationName) {
        let notices = state.withLock { state -> [Table.Notice] in
            guard let resource = state.table.resource(of: name) else { return [] }
            resource.counter.increment()
            return state.table.posted(name)
        }
        for notice in notices { notice.sink.notify(notice.token) }
    }

    /// The path of a registration changed: it alone is notified (notify(3), a.13).
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

    // MARK: For the link and the functions

    /// Looks at the registrations, or changes what is remembered of them, with the lock held.
    func withTable<Value: Sendable>(_ body: @Sendable (inout Table) -> Value) -> Value {
        state.withLock { body(&$0.table) }
    }
}

extension AccessRules.Identity {
    /// As whom this process acts now.
    static var ofThisProcess: AccessRules.Identity {
        let count = getgroups(0, nil)
        let groups = [gid_t](unsafeUninitializedCapacity: max(0, Int(count))) { buffer, initialized in
            initialized = max(0, Int(getgroups(CInt(buffer.count), buffer.baseAddress)))
        }
        return AccessRules.Identity(user: geteuid(), groups: [getegid()] + groups)
    }
}
