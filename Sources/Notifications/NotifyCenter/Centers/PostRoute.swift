import Basics
import DBus
import Dispatch
import Glibc
import Synchronization

/// The way that posts of other processes reach a connection: from the bus, or from notifyd, the service of notify(3).
/// notifyd relays them if a sandbox's proxy filters the bus (<doc:Sandboxes>).
///
/// Such a proxy lets a broadcast through if its sender owns a bus name that the sandbox may talk to. Most posters own
/// none. The first registration of a connection therefore asks the bus which process owns the connection. If that is
/// another process, it sends a broadcast from one new connection to another. If the broadcast does not arrive, the bus
/// is filtered, and notifyd relays the registered interfaces.
final class PostRoute: Sendable {
    private struct State {
        /// `nil` before the first registration that found a bus.
        var isFiltered: Bool?
        /// The number of uses of each registered interface.
        var uses: [String: Int] = [:]
        /// notifyd's connection, while it relays.
        var relay: String?
        /// The number of times that notifyd or the bus has gone or come. Earlier responses are then out of date.
        var changes = 0
        /// Observes the connection to the bus, from the first registration on.
        var events: Observation?
        /// Whether everything is to be registered anew, and no thread has begun with it.
        var isRestorationPending = false
        /// The pause before the next attempt, if notifyd has no room or does not respond in time.
        var backoff = Backoff(first: .milliseconds(250), longest: .seconds(32))
        /// Observes notifyd.
        var owners: (signals: Observation, lease: MatchRuleLease)?
    }

    private weak let connection: DBusConnection?
    private let bus: Bus
    private let state = Locked(State())
    /// Mirrors `state.isFiltered == true` for the reading thread, which checks it for each message.
    private let mayRelay = Atomic(false)
    /// Held by the thread that finds out whether the bus is filtered. The others wait.
    private let turn = DispatchSemaphore(value: 1)
    /// Waits for that in place of tasks, because a task must not block a thread of the concurrency pool.
    private let queueOfTasks = DispatchQueue(label: "org.notifycenter.route.tasks")
    private let restorations = DispatchQueue(label: "org.notifycenter.route")

    private init(_ connection: DBusConnection) {
        self.connection = connection
        bus = connection.bus
    }

    // MARK: One for each connection

    private struct Entry {
        let identity: ObjectIdentifier
        weak var connection: DBusConnection?
        weak var route: PostRoute?
    }

    /// A process has few connections.
    private static let routes = Locked<[Entry]>([])

    /// Returns the route of a connection, which all its centers share.
    static func of(_ connection: DBusConnection) -> PostRoute {
        let identity = ObjectIdentifier(connection)
        return routes.withLock { routes in
            // Only this connection is compared as an object: another one could get its last release here, under the
            // lock, and its deinit calls handlers. A new connection may get the address of a freed one.
            for entry in routes where entry.identity == identity && entry.connection === connection {
                if let route = entry.route { return route }
            }
            routes.removeAll { $0.route == nil }
            let route = PostRoute(connection)
            routes.append(Entry(identity: identity, connection: connection, route: route))
            return route
        }
    }

    // MARK: The connection

    /// Observes the connection, once for all its centers. Called before the first rule is requested, so that the first
    /// bus is covered too.
    ///
    /// Reports rules that a later bus refuses: without a report, their observers would silently get nothing.
    func observe(_ connection: DBusConnection) throws(DBusError) {
        if state.withLock({ $0.events != nil }) { return }
        let events = try connection.onEvent { [weak self] event in
            switch event {
            case .lost: self?.noteChange()
            case .restored(let failures):
                Self.report(failures)
                self?.restore()
            }
        }
        state.withLock { if $0.events == nil { $0.events = events } }
    }

    private static func report(_ failures: [DBusError]) {
        // Runs on the reading thread: a line for each of ten thousand rules would block it.
        for failure in failures.prefix(3) { UnthrownFailures.report(failure, in: "restoring the connection to a bus") }
        guard failures.count > 3, let last = failures.last else { return }
        let rest = DBusError(
            last.code,
            name: last.name,
            message: "\(failures.count - 3) more could not be restored; the last: \(last.message)",
            attempted: "restore match rules and names",
            remedy: last.remedy
        )
        UnthrownFailures.report(rest, in: "restoring the connection to a bus")
    }

    // MARK: Registering

    /// Has the posts on an interface sent to the connection. The registration is in force on return. In a handler on
    /// the reading thread this does not wait for bus and notifyd; ``UnthrownFailures`` reports a refusal.
    func lease(
        _ interface: String,
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) -> PostLease {
        let rule = MatchRule.posts(on: interface)
        if connection.isOnReadingThread {
            let lease = try connection.addMatchInOrder(rule, fallback: .allPosts) { error in
                // After a disconnection, the restoration requests the rule again and reports a refusal.
                if error.code != .disconnected { UnthrownFailures.report(error, in: "observing in a handler") }
            }
            return relayLater(interface, lease)
        }
        let isFiltered = try isFiltered(connection, by: deadline)
        let lease = try connection.addMatch(rule, fallback: .allPosts, timeout: deadline - .now)
        guard isFiltered else { return PostLease(lease) }
        let use = use(interface, lease)
        try relay([interface], connection, by: deadline)
        return use
    }

    /// Leases like the blocking form, without holding a thread.
    ///
    /// - Parameter isNamed: whether only posts count whose sender owns a bus name that a sandbox may talk to. They pass
    ///   the proxy.
    func lease(
        _ interface: String,
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant,
        isNamed: Bool
    ) async throws(DBusError) -> PostLease {
        let isFiltered = try await isFiltered(connection, by: deadline)
        let rule = MatchRule.posts(on: interface)
        let lease = try await connection.addMatch(rule, fallback: .allPosts, timeout: deadline - .now)
        guard isFiltered, !isNamed else { return PostLease(lease) }
        let use = use(interface, lease)
        do throws(DBusError) {
            let changes = changes
            _ = try await connection.call(Self.call([interface]), timeout: deadline - .now, isCancellable: false)
            let question = try NotifydProtocol.ownerQuestion()
            let owner = try await connection.call(question, timeout: deadline - .now, isCancellable: false)
            relays(owner, asOf: changes)
        } catch {
            throw explained(error)
        }
        return use
    }

    /// Keeps a registration until its lease ends, even if the bus or notifyd is missing or refuses now.
    func keep(
        _ interface: String,
        _ connection: DBusConnection,
        settled: @escaping @Sendable (DBusError?) -> Void = { _ in }
    ) -> PostLease {
        relayLater(interface, connection.keepMatch(.posts(on: interface), fallback: .allPosts, settled: settled))
    }

    /// Has notifyd relay the posts on an interface in the background, unless the bus is known to be unfiltered.
    private func relayLater(_ interface: String, _ lease: MatchRuleLease) -> PostLease {
        guard state.withLock({ $0.isFiltered != false }) else { return PostLease(lease) }
        let use = use(interface, lease)
        restore()
        return use
    }

    private func use(_ interface: String, _ lease: MatchRuleLease) -> PostLease {
        state.withLock { $0.uses[interface, default: 0] += 1 }
        return PostLease(lease, use: (interface, self))
    }

    /// Ends one use of a registered interface. The end of the last use tells notifyd.
    fileprivate func end(_ interface: String) {
        // In a forked child, another thread of the parent may have held the lock at the fork.
        if ForkedChild.isCurrent { return }
        // Taken before the lock: this may be the last reference, and the connection's deinit calls handlers.
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
            // Sent under the lock, so that the call for a new use of the interface is sent after this.
            try? connection.queue(call)
        }
    }

    // MARK: Whether the bus is filtered

    var isFilteredInVain: Bool { state.withLock { $0.isFiltered == true && $0.relay == nil } }

    /// Throws the remedy if a proxy filters the bus and does not let calls through to notifyd: then notifyd's own posts
    /// do not arrive either.
    func checkNotifyd(_ connection: DBusConnection, by deadline: ContinuousClock.Instant) throws(DBusError) {
        guard try isFiltered(connection, by: deadline) else { return }
        do throws(DBusError) {
            let changes = changes
            relays(try connection.callAndWait(NotifydProtocol.ownerQuestion(), timeout: deadline - .now), asOf: changes)
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
                message: "another thread has asked the bus, and has no response yet",
                attempted: "find out whether a proxy filters the bus"
            )
        }
        defer { turn.signal() }
        if let known = state.withLock({ $0.isFiltered }) { return known }
        let isOwn = try isOwn(connection, by: deadline)
        let isFiltered = isOwn ? false : try dropsBroadcasts(by: deadline)
        if isFiltered { watchNotifyd(connection) }
        state.withLock { $0.isFiltered = isFiltered }
        mayRelay.store(isFiltered, ordering: .releasing)
        return isFiltered
    }

    private func isFiltered(
        _ connection: DBusConnection,
        by deadline: ContinuousClock.Instant
    ) async throws(DBusError) -> Bool {
        if let known = state.withLock({ $0.isFiltered }) { return known }
        let result = await withCheckedContinuation { continuation in
            queueOfTasks.async {
                let result = Result { () throws(DBusError) in try self.isFiltered(connection, by: deadline) }
                continuation.resume(returning: result)
            }
        }
        return try result.get()
    }

    /// Whether the bus reports this process as the owner of the connection, so that there is no proxy in between.
    /// Always false in a Flatpak.
    private func isOwn(_ connection: DBusConnection, by deadline: ContinuousClock.Instant) throws(DBusError) -> Bool {
        if connection.uniqueName == nil { try connection.flush(timeout: deadline - .now) }
        guard access("/.flatpak-info", F_OK) != 0, let name = connection.uniqueName else { return false }
        let question = try NotifydProtocol.busCall("GetConnectionUnixProcessID", [.string(name)])
        do throws(DBusError) {
            let process = try connection.callAndWait(question, timeout: deadline - .now).first?.unsignedValue
            return process == UInt64(getpid())
        } catch {
            // A bus over a network knows no processes.
            guard error.code == .refused else { throw error }
            return false
        }
    }

    /// Whether a broadcast from one new connection fails to arrive at another that subscribes to it.
    private func dropsBroadcasts(by deadline: ContinuousClock.Instant) throws(DBusError) -> Bool {
        let interface = "org.notifycenter.Probe1"
        let (sender, receiver): (DBusConnection, DBusConnection)
        do throws(DBusError) {
            sender = try DBusConnection.open(bus, by: deadline)
            receiver = try DBusConnection.open(bus, by: deadline)
        } catch  where error.code == .noBus {
            // The bus was there a moment ago, so this is an outage, in which a registration is kept.
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
        // First the bus has read the probe. Then the receiver has everything that the bus sent before its response.
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
            _ = try connection.callAndWait(Self.call(interfaces), timeout: deadline - .now)
            relays(try connection.callAndWait(NotifydProtocol.ownerQuestion(), timeout: deadline - .now), asOf: changes)
        } catch {
            throw explained(error)
        }
    }

    private static func call(_ interfaces: [String]) throws(DBusError) -> DBusMessage {
        try NotifydProtocol.call(.relay, [.array(interfaces.map { .string($0) }, of: "s")])
    }

    private var changes: Int { state.withLock { $0.changes } }

    /// Notes the owner of notifyd's name as the relay, unless notifyd or the bus has changed since the request: the
    /// restoration asks again.
    private func relays(_ owner: [DBusValue], asOf changes: Int) {
        if let relay = owner.first?.stringValue { connection?.expectSignals(from: relay) }
        state.withLock { if $0.changes == changes { $0.relay = owner.first?.stringValue } }
    }

    /// Notes that notifyd or the bus has gone or come.
    private func noteChange() {
        state.withLock { state in
            state.relay = nil
            state.changes += 1
        }
    }

    /// Returns the error of a call to notifyd, with the remedy if the bus, or the proxy, says that there is no notifyd.
    private func explained(_ error: DBusError) -> DBusError {
        guard NotifydProtocol.isAbsent(error) else { return error }
        let name = NotifydProtocol.busName
        let option = bus == .system ? "--system-talk-name" : "--talk-name"
        return DBusError(
            .refused,
            name: error.name,
            message:
                "the D-Bus proxy of this sandbox filters them, and notifyd, which would relay them, does not respond",
            attempted: "observe posts of other processes",
            remedy:
                "allow the sandbox to talk to \(name) (Flatpak: \(option)=\(name)), and install notifyd outside of it"
        )
    }

    private func watchNotifyd(_ connection: DBusConnection) {
        guard state.withLock({ $0.owners == nil }) else { return }
        let signals = connection.onSignal { [weak self] in self?.receive($0) }
        let lease = connection.keepMatch(NotifydProtocol.ownerRule) { _ in }
        state.withLock { $0.owners = (signals, lease) }
    }

    private func receive(_ message: borrowing DBusMessage) {
        guard message.ownerChange()?.name == NotifydProtocol.busName else { return }
        noteChange()
        // Also when notifyd has ended: the call makes the bus start it again.
        restore()
    }

    /// Has notifyd relay everything that is registered, on a background queue. Only one restoration runs at a time, and
    /// at most one waits, however often this is called.
    private func restore() {
        let isNew = state.withLock { state in
            guard state.isFiltered != false, !state.uses.isEmpty, !state.isRestorationPending else { return false }
            state.isRestorationPending = true
            return true
        }
        guard isNew else { return }
        restorations.async { [weak self] in
            self?.state.withLock { $0.isRestorationPending = false }
            self?.restoreOnce()
        }
    }

    /// The number of interfaces in one call: notifyd accepts 256 KiB per call.
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
                    // An interface that notifyd refuses does not block the others.
                    for interface in some { try relayAlone(interface, connection) }
                }
            }
            state.withLock { $0.backoff.reset() }
        } catch {
            // The next restoration of the connection, or the next notifyd, triggers another attempt.
            guard error.code != .disconnected, error.code != .closed, error.code != .noBus else { return }
            let isFirst = state.withLock { $0.backoff.isFirst }
            if isFirst { UnthrownFailures.report(error, in: "registering anew with notifyd") }
            if Self.mayPass(error) { restoreLater() }
        }
    }

    /// Whether the same request may succeed a moment later: other processes of the user use notifyd's time and quota
    /// too.
    private static func mayPass(_ error: DBusError) -> Bool {
        error.code == .timedOut || NotifydProtocol.refusal(error) == .limitsExceeded
    }

    private func restoreLater() {
        let pause = state.withLock { $0.backoff.next() }
        DispatchQueue.global().asyncAfter(deadline: .now() + Self.interval(pause)) { [weak self] in self?.restore() }
    }

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
    /// connection: otherwise a post whose sender passes the proxy would be received twice.
    func takes(_ message: borrowing DBusMessage) -> Bool {
        guard mayRelay.load(ordering: .acquiring), let interface = message.interface else { return true }
        let (relay, isRegistered) = state.withLock { state in
            let center = WireKind(interface: interface)
            return (state.relay, state.uses[interface] != nil || center.map { state.uses[$0.rawValue] != nil } == true)
        }
        guard let relay, isRegistered, let sender = message.sender else { return true }
        return sender == relay || sender == connection?.uniqueName
    }

    /// Returns the poster of a relayed post; `nil` for any other message.
    func poster(ofRelayed message: borrowing DBusMessage) -> String? {
        guard mayRelay.load(ordering: .acquiring), let relay = state.withLock({ $0.relay }),
            message.sender == relay, let path = message.path
        else { return nil }
        return NotifydProtocol.poster(ofRelayPath: path)
    }
}

/// Keeps the posts of one name, or of all names, coming.
package final class PostLease: Sendable {
    private let rule: MatchRuleLease
    /// The interface that notifyd relays; `nil` if the bus sends the posts.
    private let use: (interface: String, route: PostRoute)?

    init(_ rule: MatchRuleLease, use: (interface: String, route: PostRoute)? = nil) {
        (self.rule, self.use) = (rule, use)
    }

    deinit {
        if let use { use.route.end(use.interface) }
    }
}
