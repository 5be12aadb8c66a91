import Basics
import DBus
import Synchronization

/// The common part of the Darwin and the distributed center: a registry of observers, and a connection that is made on
/// first use.
package final class BusCenter: Sendable {
    private final class Link: Sendable {
        let connection: DBusConnection
        let route: PostRoute
        private let signals: Observation

        init(_ connection: DBusConnection, _ route: PostRoute, _ signals: Observation) {
            (self.connection, self.route, self.signals) = (connection, route, signals)
        }
    }

    private struct State {
        var recentlyPosted = RecentlyPosted<HeldMessage>()
        var malformed: UInt64 = 0
        var tooLarge: UInt64 = 0
    }

    /// The reading thread's state between messages.
    ///
    /// Unchecked: the reading thread alone touches it.
    private final class ReadingState: @unchecked Sendable {
        var last: WireNotification.LastName?
    }

    let router = NotificationRouter()
    private let kind: WireKind
    private let bus: Bus
    /// The connection that the center was made for; `nil` for the process's shared connection to the bus.
    private let ownConnection: DBusConnection?
    /// Set on first use. It has no lock, because a forked child reads it.
    private let madeLink = StoredOnce<Link>()
    private let state = Locked(State())

    init(_ kind: WireKind, _ bus: Bus, _ connection: DBusConnection? = nil) {
        (self.kind, self.bus, ownConnection) = (kind, bus, connection)
    }

    /// Returns the connection, which may not have found a bus yet.
    ///
    /// - Throws: ``DBusError/Code/noResources`` if the process has no descriptor left for it; ``DBusError/Code/closed``
    ///   in a forked child.
    package func connection() throws(DBusError) -> DBusConnection { try link().connection }

    private func link() throws(DBusError) -> Link {
        try ForkedChild.check("observe notifications")
        if let link = madeLink.load() { return link }
        let connection = if let ownConnection { ownConnection } else { try BusConnections.connection(to: bus) }
        let route = PostRoute.of(connection)
        return state.withLock { _ in
            if let link = madeLink.load() { return link }
            // Under the lock, so that only one handler is installed and no post is received twice.
            let reading = ReadingState()
            let signals = connection.onSignal { [weak self] in self?.receive($0, reading, route) }
            return madeLink.storeIfNil(Link(connection, route, signals))
        }
    }

    // MARK: Posting

    /// Whether the process has reported that its posts to all sessions reach only one.
    private static let saidThatOneSessionHears = Atomic(false)

    /// Posts without checking who may post the name.
    package func post(
        _ name: NotificationName,
        object: String? = nil,
        userInfo: UserInfo? = nil,
        options: PostingOptions = []
    ) throws(DBusError) {
        if ForkedChild.useBus() {
            try ForkedPoster.check()
            try ForkedPoster.send(message(name, object, userInfo, options), to: busAddress())
        } else if object == nil, userInfo == nil, !options.contains(.deliverImmediately) {
            try post(nameAlone: name)
        } else {
            let message = try message(name, object, userInfo, options)
            try connection().send(message)
        }
        if options.contains(.postToAllSessions) { reportUnreachedSessions() }
    }

    /// Asks notifyd to post a reserved name. notifyd decides whether this process may post it.
    package func postByNotifyd(_ name: NotificationName) throws(DBusError) {
        if ForkedChild.useBus() {
            try ForkedPoster.check()
            _ = try ForkedPoster.call(NotifydProtocol.call(.post, [.string(name.rawValue)]), at: busAddress())
        } else {
            _ = try connection().callAndWait(NotifydProtocol.call(.post, [.string(name.rawValue)]))
        }
    }

    private func message(
        _ name: NotificationName,
        _ object: String?,
        _ userInfo: UserInfo?,
        _ options: PostingOptions
    ) throws(DBusError) -> DBusMessage {
        let isImmediate = options.contains(.deliverImmediately)
        return try WireNotification.message(
            kind,
            name: name,
            object: object,
            userInfo: userInfo,
            deliverImmediately: isImmediate
        )
    }

    /// The address of the parent's connection, or of the bus if the parent had none.
    private func busAddress() throws(DBusError) -> String {
        guard let connection = madeLink.load()?.connection ?? ownConnection else { return try bus.resolvedAddress() }
        return try connection.busAddress()
    }

    func flush(timeout: Duration) throws(DBusError) {
        // A forked child's posts need no flush: each returns after the bus has read it.
        if ForkedChild.isCurrent { return }
        try connection().flush(timeout: timeout)
    }

    func flush(timeout: Duration) async throws(DBusError) {
        if ForkedChild.isCurrent { return }
        try await connection().flush(timeout: timeout)
    }

    /// Posts a name without object, userInfo or option. Most posts are of this kind, and most processes post few names,
    /// so the message is made once and then copied.
    private func post(nameAlone name: NotificationName) throws(DBusError) {
        let connection = try connection()
        let sent = state.withLock { $0.recentlyPosted.message(of: name) }
        if let sent { return try connection.send(copyOf: sent.message) }
        let new = HeldMessage(try WireNotification.message(kind, name: name))
        try connection.send(new.message)
        state.withLock { $0.recentlyPosted.keep(new, of: name) }
    }

    /// Posts without waiting for a bus that does not read. The reading thread later sends what the bus has not taken.
    func queue(_ name: NotificationName) throws(DBusError) {
        try connection().queue(try WireNotification.message(kind, name: name))
    }

    /// Reports that a post to all sessions reaches one session, unless the bus is the system bus. As on a Mac, the
    /// observers of this session get the post. ``UnthrownFailures`` reports once per process that no other session gets
    /// it (CF-P7, CF-B8).
    private func reportUnreachedSessions() {
        if bus == .system || Self.saidThatOneSessionHears.exchange(true, ordering: .relaxed) { return }
        UnthrownFailures.report(
            DBusError(
                .invalidArgument,
                message: "\(bus) reaches one session, so only its observers receive this post and later posts",
                attempted: "post to all sessions",
                remedy: "use a center on the system bus, which all sessions share, or leave the option out"
            ),
            in: "DistributedNotifyCenter.post(_:object:userInfo:options:)"
        )
    }

    // MARK: Observing

    /// The time limit for the bus and the match rule together, for blocking and for asynchronous functions.
    private static let (patience, awaitedPatience) = (Duration.seconds(25), Duration.seconds(30))

    /// Registers an observer. The match rule is in force on return. If this throws, nothing is registered.
    func observe(
        _ name: NotificationName?,
        object: String?,
        _ observer: Registration
    ) throws(DBusError) -> NotificationObservation {
        let (deadline, link) = (ContinuousClock.now + Self.patience, try link())
        // Without a bus nothing is registered, so no thread has to look for one.
        try link.connection.connect(by: deadline)
        try link.route.observe(link.connection)
        let observation = begin(name, object, observer)
        observation.keep(try link.route.lease(interface(name), link.connection, by: deadline))
        return observation
    }

    /// Registers an observer as the blocking form does, without holding a thread.
    ///
    /// - Parameter isNamed: whether only posts count whose sender owns a bus name that a sandbox may talk to. The
    ///   caller compares the sender.
    func observe(
        _ name: NotificationName?,
        object: String?,
        isNamed: Bool = false,
        _ observer: Registration
    ) async throws(DBusError) -> NotificationObservation {
        let (deadline, link) = (ContinuousClock.now + Self.awaitedPatience, try link())
        try await link.connection.connect()
        try link.route.observe(link.connection)
        let observation = begin(name, object, observer)
        let lease = try await link.route.lease(interface(name), link.connection, by: deadline, isNamed: isNamed)
        observation.keep(lease)
        return observation
    }

    /// Registers a permanent observer, for functions that cannot throw: their callers expect to be called back, and do
    /// not retry (CF-A11).
    ///
    /// - Parameter known: called with the observation before the first notification can arrive, so that the caller can
    ///   cancel it.
    /// - Throws: the reason why the rule is not in force. The observer stays anyway: each restoration of the connection
    ///   asks for the rule again. With ``DBusError/Code/noResources`` and ``DBusError/Code/closed`` the rule will never
    ///   be in force.
    func keepObserving(
        _ name: NotificationName?,
        object: String?,
        _ observer: Registration,
        known: (NotificationObservation) -> Void
    ) throws(DBusError) {
        let (deadline, link) = (ContinuousClock.now + Self.patience, try link())
        try link.route.observe(link.connection)
        let observation = begin(name, object, observer, known)
        let interface = interface(name)
        do throws(DBusError) {
            observation.keep(try link.route.lease(interface, link.connection, by: deadline))
        } catch  where error.code == .closed {
            observation.cancel()
            throw error
        } catch {
            observation.keep(link.route.keep(interface, link.connection))
            let remedy =
                "the observer is kept, and receives posts as soon as the bus is there and accepts its match rule"
            throw DBusError(
                error.code,
                name: error.name,
                message: error.message,
                attempted: error.attempted,
                // A sandbox gets a new permission only when it is next started.
                remedy: link.route.isFilteredInVain ? error.remedy : remedy
            )
        }
    }

    /// The interface of a name; for `nil`, the prefix of all names of the center.
    private func interface(_ name: NotificationName?) -> String {
        name.map { InterfaceName($0, prefix: kind.prefix).description } ?? "\(kind.prefix)"
    }

    // MARK: For notify(3), which keeps its own registrations

    /// Has the process report rules that a later bus refuses.
    package func observeConnection() throws(DBusError) {
        let link = try link()
        try link.route.observe(link.connection)
    }

    /// Has the bus or notifyd send the posts of a name to this connection until the lease ends. ``post(_:)`` reads
    /// them.
    package func lease(_ name: NotificationName, by deadline: ContinuousClock.Instant) throws(DBusError) -> PostLease {
        let link = try link()
        return try link.route.lease(interface(name), link.connection, by: deadline)
    }

    /// Does the same as ``lease(_:by:)``, and keeps the lease even if the bus is missing or refuses now. `settled`
    /// works as for a match rule that is kept.
    package func keepLease(
        _ name: NotificationName,
        settled: @escaping @Sendable (DBusError?) -> Void
    ) throws(DBusError) -> PostLease {
        let link = try link()
        return link.route.keep(interface(name), link.connection, settled: settled)
    }

    /// Throws the remedy if a sandbox keeps notifyd's posts away.
    package func checkNotifyd(by deadline: ContinuousClock.Instant) throws(DBusError) {
        let link = try link()
        try link.route.checkNotifyd(link.connection, by: deadline)
    }

    /// Whether a sandbox keeps posts away and notifyd does not relay them.
    package var isOutOfReach: Bool { madeLink.load()?.route.isFilteredInVain ?? false }

    /// Returns the post in a signal; `nil` for any other signal.
    package func post(_ message: borrowing DBusMessage) -> DarwinNotification? {
        DarwinNotification(message, route: madeLink.load()?.route)
    }

    /// Adds the observer before the bus is asked, so that it gets the first notification. The observation's end removes
    /// it.
    private func begin(
        _ name: NotificationName?,
        _ object: String?,
        _ observer: Registration,
        _ known: (NotificationObservation) -> Void = { _ in }
    ) -> NotificationObservation {
        let observation = NotificationObservation { observer.counts }
        known(observation)
        let key = router.add(observer, name: name, object: object.map { NotificationObject(text: $0) })
        observation.begin { self.router.remove(observer, key) }
        return observation
    }

    // MARK: Receiving

    /// Receives a message on the reading thread.
    private func receive(_ message: borrowing DBusMessage, _ reading: ReadingState, _ route: PostRoute) {
        switch WireNotification.receive(message, kind: kind, last: &reading.last, route: route) {
        case .foreign: return
        case .refused(.tooLarge): state.withLock { $0.tooLarge += 1 }
        case .refused: state.withLock { $0.malformed += 1 }
        case .notification(let notification): router.receive(notification)
        }
    }

    // MARK: Suspension

    var isSuspended: Bool {
        get { !ForkedChild.isCurrent && router.isSuspended }
        set {
            // A forked child observes nothing.
            if ForkedChild.isCurrent { return }
            if newValue {
                router.suspend()
            } else if router.resume() {
                // A connection without a reading thread keeps the job until it has one. Without a connection nothing
                // can have arrived.
                guard let connection = try? connection() else { return router.flush() }
                connection.perform { [router] in router.flush() }
            }
        }
    }

    // MARK: Statistics

    var statistics: CenterStatistics {
        if ForkedChild.isCurrent { return CenterStatistics() }
        var statistics = router.statistics
        let state = state.withLock { $0 }
        (statistics.malformed, statistics.tooLarge) = (state.malformed, state.tooLarge)
        guard let connection = madeLink.load()?.connection.statistics else { return statistics }
        statistics.matchRules = connection.matchRules
        statistics.coveredMatchRules = connection.coveredMatchRules
        statistics.matchRulesNotInForce = connection.matchRulesNotInForce
        statistics.reconnections = connection.reconnections
        return statistics
    }
}

/// The notifications of a center so far, and the state of its connection to the bus. All values are zero in a forked
/// child.
public struct CenterStatistics: Sendable, Hashable {
    /// The number of observers.
    public internal(set) var observers = 0
    /// Notifications of this center that arrived from the bus, with or without a matching observer.
    public internal(set) var received: UInt64 = 0
    /// Ignored signals on this center's interfaces that do not have the form of a notification.
    public internal(set) var malformed: UInt64 = 0
    /// Ignored signals on this center's interfaces that exceed the size limit of a notification (CF-U9).
    public internal(set) var tooLarge: UInt64 = 0
    /// Deliveries that wait for a slow observer or for the end of a suspension.
    public internal(set) var waiting = 0
    /// The outcome of the notifications, summed over all observers.
    public internal(set) var deliveries = DeliveryCounts()
    /// Match rules that this process asks the bus for; equal rules count once. This value and the following ones
    /// describe the connection, which the process's centers on one bus share.
    public internal(set) var matchRules = 0
    /// The number of these rules that one broad rule replaces, because the bus refused more rules.
    public internal(set) var coveredMatchRules = 0
    /// The number of these rules that are not in force, because there is no bus, the bus refused them, or its response
    /// is pending. Their observers get nothing. Each restoration of the connection asks for them again.
    public internal(set) var matchRulesNotInForce = 0
    /// The number of times that the connection was restored after the bus was lost.
    public internal(set) var reconnections: UInt64 = 0
}

/// A cache of the messages that a process posted last, by name: at most 32 names of at most 512 bytes. Pure.
struct RecentlyPosted<Message> {
    static var capacity: Int { 32 }
    static var longestName: Int { 512 }

    /// Most recently used first: a process that posts one name repeatedly finds it at once.
    private var entries: [(name: NotificationName, message: Message)] = []

    var count: Int { entries.count }

    mutating func message(of name: NotificationName) -> Message? {
        guard let index = entries.firstIndex(where: { $0.name == name }) else { return nil }
        if index > 0 { entries.insert(entries.remove(at: index), at: 0) }
        return entries[0].message
    }

    /// Keeps the message. If the cache is full, the least recently used message is evicted.
    mutating func keep(_ message: Message, of name: NotificationName) {
        guard name.rawValue.utf8.count <= Self.longestName, !entries.contains(where: { $0.name == name }) else {
            return
        }
        if entries.count >= Self.capacity { entries.removeLast() }
        entries.insert((name, message), at: 0)
    }
}

extension RecentlyPosted: Sendable where Message: Sendable {}

// MARK: - Connections

/// The process's connections: one per bus for all centers, so that they share match rules and a thread. A connection
/// closes with its last user.
package enum BusConnections {
    private struct Entry {
        let bus: Bus
        weak var connection: DBusConnection?
    }

    /// An array, because a process has one or two buses, and instantiating a dictionary's type takes a sixth of the
    /// time of a process that posts once.
    private static let open = Locked<[Entry]>([])

    /// Returns the process's connection to `bus`, which may not have found the bus yet.
    ///
    /// - Throws: ``DBusError/Code/noResources`` if the process has no descriptor left for it.
    package static func connection(to bus: Bus) throws(DBusError) -> DBusConnection {
        // The reference taken here may be the last one to a connection. Its deinit calls handlers, which may
        // ask for a connection. Connections seen under the lock are therefore released after it.
        var seen: [DBusConnection] = []
        defer { withExtendedLifetime(seen) {} }
        return try open.withLock { (open) throws(DBusError) -> DBusConnection in
            var present: [Entry] = []
            for entry in open {
                guard let connection = entry.connection else { continue }
                seen.append(connection)
                if entry.bus == bus { return connection }
                present.append(entry)
            }
            let fresh = try DBusConnection.whenThere(bus)
            present.append(Entry(bus: bus, connection: fresh))
            open = present
            return fresh
        }
    }
}
