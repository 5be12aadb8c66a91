import DBusTransport
import Synchronization

/// What the Darwin and the distributed center have in common: a registry of observers and a connection.
///
/// Connects with the first use; a failed attempt is made anew at the next.
final class BusCenter: Sendable {
    private struct Link {
        let connection: DBusConnection
        let token: Observation
    }

    private struct State {
        var link: Link?
        var malformed: UInt64 = 0
    }

    let router = NotificationRouter()
    private let kind: WireKind
    private let source: @Sendable () throws(DBusError) -> DBusConnection
    private let state = Locked(State())

    init(_ kind: WireKind, source: @escaping @Sendable () throws(DBusError) -> DBusConnection) {
        self.kind = kind
        self.source = source
    }

    /// The connection; made if there is none yet.
    func connection() throws(DBusError) -> DBusConnection {
        if let link = state.withLock({ $0.link }) { return link.connection }
        let connection = try source()
        return state.withLock { state in
            if let link = state.link { return link.connection }
            // Under the lock, so that no post is ever received twice.
            let token = connection.onSignal { [weak self] in self?.receive($0) }
            state.link = Link(connection: connection, token: token)
            return connection
        }
    }

    // MARK: Posting

    func post(
        _ name: NotificationName,
        object: String? = nil,
        userInfo: UserInfo? = nil,
        options: PostingOptions = []
    ) throws(DBusError) {
        let message = try WireNotification.message(
            kind,
            name: name,
            object: object,
            userInfo: userInfo,
            deliverImmediately: options.contains(.deliverImmediately)
        )
        let connection = try connection()
        guard !options.contains(.postToAllSessions) || connection.bus == .system else {
            // Not on this bus alone: the poster would not know that the others heard nothing (CF-B8).
            throw DBusError(
                .invalidArgument,
                message: "\(connection.bus) reaches one session only",
                attempted: "post to all sessions",
                remedy: "use a center on the system bus, which all sessions share, or leave the option out"
            )
        }
        try connection.send(message)
    }

    // MARK: Observing

    private struct Entry: Sendable {
        let observer: Registration
        let key: NotificationRouter.Registry.Key
    }

    func observe(
        _ name: NotificationName?,
        object: String?,
        _ observer: Registration
    ) throws(DBusError) -> NotificationObservation {
        let connection = try connection()
        let entry = register(name, object, observer)
        do throws(DBusError) {
            return observation(entry, try connection.addMatch(rule(name), fallback: WireNotification.broadRule))
        } catch {
            unregister(entry)
            throw error
        }
    }

    func observe(
        _ name: NotificationName?,
        object: String?,
        _ observer: Registration
    ) async throws(DBusError) -> NotificationObservation {
        let connection = try connection()
        let entry = register(name, object, observer)
        do throws(DBusError) {
            return observation(entry, try await connection.addMatch(rule(name), fallback: WireNotification.broadRule))
        } catch {
            unregister(entry)
            throw error
        }
    }

    private func rule(_ name: NotificationName?) -> MatchRule {
        name.map { WireNotification.rule(kind, name: $0) } ?? WireNotification.broadRule
    }

    /// Before the bus is asked, so that the first notification finds its observer.
    private func register(_ name: NotificationName?, _ object: String?, _ observer: Registration) -> Entry {
        let object = object.map { NotificationObject(text: $0) }
        return Entry(observer: observer, key: router.add(observer, name: name, object: object))
    }

    private func unregister(_ entry: Entry) { router.remove(entry.observer, entry.key) }

    private func observation(_ entry: Entry, _ lease: MatchRuleLease) -> NotificationObservation {
        NotificationObservation(
            counts: { entry.observer.counts },
            remove: {
                self.unregister(entry)
                // The rule goes after the observer, so that nothing arrives that nobody counts.
                withExtendedLifetime(lease) {}
            }
        )
    }

    // MARK: Receiving

    /// On the reading thread.
    private func receive(_ message: borrowing DBusMessage) {
        switch WireNotification.receive(message, kind: kind) {
        case .foreign: return
        case .malformed: state.withLock { $0.malformed += 1 }
        case .notification(let notification): router.receive(notification)
        }
    }

    // MARK: Suspension

    var isSuspended: Bool {
        get { router.isSuspended }
        set {
            if newValue {
                router.suspend()
            } else if router.resume() {
                // Without a connection nothing waits.
                state.withLock { $0.link }?.connection.perform { [router] in router.flush() }
            }
        }
    }

    // MARK: Looking in

    var statistics: CenterStatistics {
        let state = state.withLock { $0 }
        let rules = state.link?.connection.statistics
        let statistics = router.statistics
        return CenterStatistics(
            observers: statistics.observers,
            received: statistics.received,
            malformed: state.malformed,
            waiting: statistics.waiting,
            deliveries: statistics.deliveries,
            matchRules: rules?.matchRules ?? 0,
            coveredMatchRules: rules?.coveredMatchRules ?? 0
        )
    }
}
