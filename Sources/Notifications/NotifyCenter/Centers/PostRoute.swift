import DBusTransport
import Dispatch
import Glibc
import NotifydProtocol
import Synchronization

/// How the posts of other processes reach a connection: from the bus, or from notifyd, if a sandbox's proxy filters
/// the bus (<doc:Sandboxes>).
///
/// Such a proxy lets a broadcast through if its sender owns a bus name that the sandbox may talk to. Most posters own
/// none. The first registration of a connection therefore asks the bus which process the connection belongs to. If that
/// is another process, it sends a broadcast from one new connection to another, and knows by its arrival whether the bus
/// is filtered. notifyd then relays what is registered.
final class PostRoute: Sendable {
    private struct State {
        /// `nil` before the first registration that found a bus.
        var isFiltered: Bool?
        /// How many uses each registered interface has.
        var uses: [String: Int] = [:]
        /// notifyd's connection, while it relays.
        var relay: String?
        /// How often notifyd or the bus has gone or come: what was asked before is out of date afterwards.
        var changes = 0
        /// Keeps this informed of the bus.
        var events: Observation?
        /// Whether a thread registers everything anew, and whether it has to begin again afterwards.
        var isRestoring = false
        var isRestorationWanted = false
        /// Until the next attempt, if notifyd has no room for one.
        var pause = PostRoute.shortestPause
        /// Keeps this informed of notifyd.
        var owners: (signals: Observation, lease: MatchRuleLease)?
    }

    private weak let connection: DBusConnection?
    private let bus: Bus
    private let state = Locked(State())
    /// Of the state, for the reading thread, which asks for each message.
    private let mayRelay = Atomic(false)
    /// Finds out whether the bus is filtered, once for all tasks that register at the same time.
    private let finding = Locked<Task<Result<Bool, DBusError>, Never>?>(nil)
    /// The same for threads, of which one asks and the others wait.
    private let turn = DispatchSemaphore(value: 1)

    private init(_ connection: DBusConnection) {
        self.connection = connection
        bus = connection.bus
    }

    // MARK: One for each connection

    private struct Entry {
        weak var connection: DBusConnection?
        weak var route: PostRoute?
    }

    private static let routes = Locked<[ObjectIdentifier: Entry]>([:])

    /// The route of a connection, which all its centers share.
    static func of(_ connection: DBusConnection) -> PostRoute {
        let identity = ObjectIdentifier(connection)
        return routes.withLock { routes in
            // A later connection may have the address of one that is gone.
            if let entry = routes[identity], entry.connection === connection, let route = entry.route { return route }
            routes = routes.filter { $0.value.route != nil }
            let route = PostRoute(connection)
            routes[identity] = Entry(connection: connection, route: route)
            return route
        }
    }

    // MARK: Registering

    /// Has the posts on an interface sent to the connection. They are on return; but a handler on the reading thread does not
    /// wait for bus and notifyd, and ``UnthrownFailures`` tells if they refuse.
    func lease(
        _ rule: MatchRule,
        on interface: String,
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) -> PostLease {
        guard !connection.isOnReadingThread else { return try leaseInOrder(rule, on: interface, connection) }
        let isFiltered = try isFiltered(connection, by: deadline)
        let lease = try connection.addMatch(rule, fallback: .allPosts, timeout: deadline - .now)
        guard isFiltered else { return PostLease(lease) }
        let use = use(interface)
        try relay([interface], connection, by: deadline)
        return PostLease(lease, use)
    }

    private func leaseInOrder(
        _ rule: MatchRule,
        on interface: String,
        _ connection: DBusConnection
    ) throws(DBusError) -> PostLease {
        let lease = try connection.addMatchInOrder(rule, fallback: .allPosts) { error in
            // The restoration asks for the rule again, and tells of a refusal.
            if error.code != .disconnected { UnthrownFailures.report(error, in: "observing in a handler") }
        }
        guard state.withLock({ $0.isFiltered != false }) else { return PostLease(lease) }
        watchBus(connection)
        let use = use(interface)
        restore()
        return PostLease(lease, use)
    }

    /// As the blocking form, without holding a thread.
    ///
    /// - Parameter isNamed: whether only posts count whose sender owns a bus name that a sandbox may talk to. They
    ///   pass the proxy.
    func lease(
        _ rule: MatchRule,
        on interface: String,
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant,
        isNamed: Bool = false
    ) async throws(DBusError) -> PostLease {
        let isFiltered = try await isFiltered(connection, by: deadline)
        let lease = try await connection.addMatch(rule, fallback: .allPosts, timeout: deadline - .now)
        guard isFiltered, !isNamed else { return PostLease(lease) }
        let use = use(interface)
        do throws(DBusError) {
            let changes = changes
            _ = try await connection.callUncancelled(Self.call([interface]), timeout: deadline - .now)
            let owner = try await connection.callUncancelled(Self.ownerQuestion(), timeout: deadline - .now)
            relays(owner, asOf: changes)
        } catch {
            throw explained(error)
        }
        return PostLease(lease, use)
    }

    /// Keeps a registration until its lease ends, whatever the bus and notifyd say of it now.
    func keep(
        _ rule: MatchRule,
        on interface: String,
        _ connection: DBusConnection,
        settled: @escaping @Sendable (DBusError?) -> Void = { _ in }
    ) -> PostLease {
        let lease = connection.keepMatch(rule, fallback: .allPosts, settled: settled)
        guard state.withLock({ $0.isFiltered != false }) else { return PostLease(lease) }
        watchBus(connection)
        let use = use(interface)
        restore()
        return PostLease(lease, use)
    }

    /// A registered interface; its end tells notifyd.
    final class Use: Sendable {
        private let interface: String
        private let route: PostRoute

        fileprivate init(_ interface: String, _ route: PostRoute) { (self.interface, self.route) = (interface, route) }

        deinit { route.end(interface) }
    }

    private func use(_ interface: String) -> Use {
        state.withLock { $0.uses[interface, default: 0] += 1 }
        return Use(interface, self)
    }

    private func end(_ interface: String) {
        // In a forked child another thread of the parent's may have held the lock.
        if ForkedChild.isCurrent { return }
        // Taken before the lock: this may be its last owner, and its end calls handlers.
        let connection = connection
        defer { withExtendedLifetime(connection) {} }
        state.withLock { state in
            guard let uses = state.uses[interface] else { return }
            state.uses[interface] = uses > 1 ? uses - 1 : nil
            guard uses == 1, state.isFiltered == true, let connection,
                let call = try? NotifydProtocol.call(
                    .endRelay,
                    [.array([.string(interface)], of: "s")],
                    options: [.noAutoStart, .noReply]
                )
            else { return }
            // With the lock held, so that a new use of the interface comes after it.
            try? connection.queue(call)
        }
    }

    // MARK: Whether the bus is filtered

    /// Whether it is, and notifyd does not relay.
    var isFilteredInVain: Bool { state.withLock { $0.isFiltered == true && $0.relay == nil } }

    /// Throws the remedy if a proxy filters the bus and lets nothing through to notifyd: its own posts do not arrive either.
    func checkNotifyd(_ connection: DBusConnection, by deadline: ContinuousClock.Instant) throws(DBusError) {
        guard try isFiltered(connection, by: deadline) else { return }
        do throws(DBusError) {
            let changes = changes
            relays(try connection.callAndWait(taking: Self.ownerQuestion(), timeout: deadline - .now), asOf: changes)
        } catch {
            throw explained(error)
        }
    }

    private func isFiltered(
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) -> Bool {
        if let known = state.withLock({ $0.isFiltered }) { return known }
        guard turn.wait(timeout: .now() + Self.interval(deadline - .now)) == .success else {
            throw DBusError(
                .timedOut,
                message: "another thread asks the bus already, and has no answer",
                attempted: "find out whether a proxy filters the bus"
            )
        }
        defer { turn.signal() }
        if let known = state.withLock({ $0.isFiltered }) { return known }
        let isOwn = try isOwn(connection, by: deadline)
        let isFiltered = isOwn ? false : try dropsBroadcasts(by: deadline)
        if isFiltered {
            watchBus(connection)
            watchNotifyd(connection)
        }
        state.withLock { $0.isFiltered = isFiltered }
        mayRelay.store(isFiltered, ordering: .releasing)
        return isFiltered
    }

    private func isFiltered(
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant
    ) async throws(DBusError) -> Bool {
        if let known = state.withLock({ $0.isFiltered }) { return known }
        let task = finding.withLock { finding in
            if let finding { return finding }
            let task = Task {
                await withCheckedContinuation { continuation in
                    // Not a thread that tasks share: it waits for the bus.
                    DispatchQueue(label: "org.notifycenter.route").async {
                        continuation.resume(
                            returning: Result { () throws(DBusError) in
                                try self.isFiltered(connection, by: deadline)
                            }
                        )
                        self.finding.withLock { $0 = nil }
                    }
                }
            }
            finding = task
            return task
        }
        return try await task.value.get()
    }

    /// Whether the bus says that the connection is this process's, with no other process in between.
    private func isOwn(_ connection: DBusConnection, by deadline: ContinuousClock.Instant) throws(DBusError) -> Bool {
        if connection.uniqueName == nil { try connection.flush(timeout: deadline - .now) }
        guard access("/.flatpak-info", F_OK) != 0, let name = connection.uniqueName else { return false }
        let question = try NotifydProtocol.busCall("GetConnectionUnixProcessID", [.string(name)])
        do throws(DBusError) {
            let process = try connection.callAndWait(taking: question, timeout: deadline - .now).first?.unsignedValue
            return process == UInt64(getpid())
        } catch {
            // A bus by way of a network knows no processes.
            guard error.code == .refused else { throw error }
            return false
        }
    }

    /// Whether a broadcast of one new connection does not arrive at another that asks for it.
    private func dropsBroadcasts(by deadline: ContinuousClock.Instant) throws(DBusError) -> Bool {
        let interface = "org.notifycenter.Probe1"
        let (sender, receiver): (DBusConnection, DBusConnection)
        do throws(DBusError) {
            (sender, receiver) = (try DBusConnection.open(bus), try DBusConnection.open(bus))
        } catch  where error.code == .noBus {
            // It was there a moment ago: a registration is kept in an outage.
            throw DBusError(
                .disconnected,
                message: error.message,
                attempted: "find out whether a proxy filters the bus"
            )
        }
        let name = sender.uniqueName
        let hasArrived = Locked(false)
        let token = receiver.onSignal { message in
            if message.interface == interface, message.sender == name { hasArrived.withLock { $0 = true } }
        }
        let lease: MatchRuleLease = try receiver.addMatch(
            MatchRule(signalFrom: name, interface: interface),
            timeout: deadline - .now
        )
        try sender.send(.signal(path: "\(WireNotification.path)", interface: interface, member: "Probe"))
        // The bus has it, and then the receiver has all that the bus has sent before its answer.
        try sender.flush(timeout: deadline - .now)
        try receiver.flush(timeout: deadline - .now)
        withExtendedLifetime((token, lease)) {}
        return !hasArrived.withLock { $0 }
    }

    // MARK: notifyd

    private func relay(
        _ interfaces: [String],
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) {
        do throws(DBusError) {
            let changes = changes
            _ = try connection.callAndWait(taking: Self.call(interfaces), timeout: deadline - .now)
            relays(try connection.callAndWait(taking: Self.ownerQuestion(), timeout: deadline - .now), asOf: changes)
        } catch {
            throw explained(error)
        }
    }

    private static func call(_ interfaces: [String]) throws(DBusError) -> DBusMessage {
        try NotifydProtocol.call(.relay, [.array(interfaces.map { .string($0) }, of: "s")])
    }

    private static func ownerQuestion() throws(DBusError) -> DBusMessage {
        try NotifydProtocol.busCall("GetNameOwner", [.string(NotifydProtocol.busName)])
    }

    private var changes: Int { state.withLock { $0.changes } }

    /// Not if another notifyd has come since the question: its restoration asks again.
    private func relays(_ owner: [DBusValue], asOf changes: Int) {
        if let relay = owner.first?.stringValue { connection?.expectSignals(from: relay) }
        state.withLock { if $0.changes == changes { $0.relay = owner.first?.stringValue } }
    }

    /// notifyd, or the bus, has gone or come.
    private func noteChange() {
        state.withLock { state in
            state.relay = nil
            state.changes += 1
        }
    }

    /// The error of a call to notifyd, with the remedy if the bus, or the proxy in its place, says that there is none.
    private func explained(_ error: DBusError) -> DBusError {
        guard NotifydProtocol.isAbsent(error) else { return error }
        let name = NotifydProtocol.busName
        let option = bus == .system ? "--system-talk-name" : "--talk-name"
        return DBusError(
            .refused,
            name: error.name,
            message: "the proxy of this sandbox keeps them away, and notifyd, which would relay them, does not answer",
            attempted: "observe posts of other processes",
            remedy:
                "allow the sandbox to talk to \(name) (Flatpak: \(option)=\(name)), and install notifyd outside of it"
        )
    }

    /// Notices when the bus comes back.
    private func watchBus(_ connection: DBusConnection) {
        guard state.withLock({ $0.events == nil }) else { return }
        let events = try? connection.onEvent { [weak self] event in
            switch event {
            case .lost: self?.noteChange()
            case .restored: self?.restore()
            }
        }
        state.withLock { $0.events = events }
    }

    /// Notices when notifyd comes and goes.
    private func watchNotifyd(_ connection: DBusConnection) {
        guard state.withLock({ $0.owners == nil }) else { return }
        let signals = connection.onSignal { [weak self] in self?.receive($0) }
        let lease = connection.keepMatch(NotifydProtocol.ownerRule) { _ in }
        state.withLock { $0.owners = (signals, lease) }
    }

    private func receive(_ message: borrowing DBusMessage) {
        guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
            arguments.count == 3, arguments[0].stringValue == NotifydProtocol.busName
        else { return }
        noteChange()
        // Also when it goes: the call starts it again.
        restore()
    }

    /// Has notifyd relay everything that is registered, on a thread of its own: one at a time, however often this is called.
    private func restore() {
        let isBeginning = state.withLock { state in
            defer { state.isRestoring = true }
            state.isRestorationWanted = true
            return !state.isRestoring
        }
        guard isBeginning else { return }
        DispatchQueue(label: "org.notifycenter.route").async { [weak self] in
            while let self,
                state.withLock({ state in
                    defer { state.isRestorationWanted = false }
                    state.isRestoring = state.isRestorationWanted
                    return state.isRestoring
                })
            {
                restoreOnce()
            }
        }
    }

    /// How many interfaces are registered with one call: notifyd takes 256 KiB of a call.
    private static let interfacesOfCall = 500

    private func restoreOnce() {
        guard let connection else { return }
        var rest = state.withLock { Array($0.uses.keys)[...] }
        guard !rest.isEmpty else { return }
        do throws(DBusError) {
            guard try isFiltered(connection, by: .now + Self.patience) else { return }
            while !rest.isEmpty {
                let some = Array(rest.prefix(Self.interfacesOfCall))
                rest = rest.dropFirst(some.count)
                do throws(DBusError) {
                    try relay(some, connection, by: .now + Self.patience)
                } catch  where error.code == .refused && !NotifydProtocol.isAbsent(error) {
                    // One that notifyd refuses does not keep the others away.
                    for interface in some { try relayAlone(interface, connection) }
                }
            }
            state.withLock { $0.pause = Self.shortestPause }
        } catch {
            // The next restoration, or the next notifyd, is asked again.
            guard error.code != .disconnected, error.code != .closed, error.code != .noBus else { return }
            let isFirst = state.withLock { $0.pause == Self.shortestPause }
            if isFirst { UnthrownFailures.report(error, in: "registering anew with notifyd") }
            if Self.mayPass(error) { restoreLater() }
        }
    }

    /// Whether the same request may succeed a moment later: other processes of the user take notifyd's time and room, too.
    private static func mayPass(_ error: DBusError) -> Bool {
        error.code == .timedOut || NotifydProtocol.refusal(error) == .limitsExceeded
    }

    private func restoreLater() {
        let pause = state.withLock { state in
            defer { state.pause = min(state.pause * 2, Self.longestPause) }
            return state.pause
        }
        DispatchQueue.global().asyncAfter(deadline: .now() + Self.interval(pause)) { [weak self] in self?.restore() }
    }

    private static let (shortestPause, longestPause): (Duration, Duration) = (.milliseconds(250), .seconds(32))

    private static func interval(_ duration: Duration) -> DispatchTimeInterval {
        .milliseconds(max(0, Int(duration / .milliseconds(1))))
    }

    private func relayAlone(_ interface: String, _ connection: DBusConnection) throws(DBusError) {
        do throws(DBusError) {
            try relay([interface], connection, by: .now + Self.patience)
        } catch  where error.code == .refused && !NotifydProtocol.isAbsent(error) && !Self.mayPass(error) {
            UnthrownFailures.report(error, in: "registering \(interface) anew with notifyd")
        }
    }

    private static let patience = Duration.seconds(25)

    // MARK: Receiving, on the reading thread

    /// Whether a post from the bus counts. If notifyd relays the name, it counts only from notifyd and from this
    /// connection: a poster whose bus name passes the proxy would otherwise be heard twice.
    func takes(_ message: borrowing DBusMessage) -> Bool {
        guard mayRelay.load(ordering: .acquiring), let interface = message.interface else { return true }
        let (relay, isRegistered) = state.withLock { state in
            let center = RelayedCenter(interface: interface)
            return (state.relay, state.uses[interface] != nil || center.map { state.uses[$0.rawValue] != nil } == true)
        }
        guard let relay, isRegistered, let sender = message.sender else { return true }
        return sender == relay || sender == connection?.uniqueName
    }

    /// The poster of a relayed post; `nil` for any other message.
    func poster(ofRelayed message: borrowing DBusMessage) -> String? {
        guard mayRelay.load(ordering: .acquiring), let relay = state.withLock({ $0.relay }),
            message.sender == relay, let path = message.path
        else { return nil }
        return NotifydProtocol.poster(ofRelayPath: path)
    }
}

/// Keeps the posts of a name, or of all names, coming.
package final class PostLease: Sendable {
    private let rule: MatchRuleLease
    private let use: PostRoute.Use?

    init(_ rule: MatchRuleLease, _ use: PostRoute.Use? = nil) { (self.rule, self.use) = (rule, use) }
}
