import DBusTransport
import Synchronization

/// What the Darwin and the distributed center have in common: a registry of observers and a connection.
///
/// Connects with the first use; a failed attempt is made anew at the next.
final class BusCenter: Sendable {
    typealias Observer = Registration<WireNotification>
    typealias Registry = ObserverRegistry<NotificationObject, Observer>

    private struct Link {
        let connection: DBusConnection
        let token: HandlerToken
    }

    private struct State {
        var link: Link?
        var registry = Registry()
        var received: UInt64 = 0
        var malformed: UInt64 = 0
        /// Of registrations that have ended.
        var endedCounts = DeliveryCounts()
    }

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
        let message = try WireNotification.message(kind, name: name, object: object, userInfo: userInfo)
        try connection().send(message)
    }

    // MARK: Observing

    private struct Entry: Sendable {
        let observer: Observer
        let key: Registry.Key
    }

    func observe(
        _ name: NotificationName?,
        object: String?,
        _ observer: Observer
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
        _ observer: Observer
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
    private func register(_ name: NotificationName?, _ object: String?, _ observer: Observer) -> Entry {
        let object = object.map { NotificationObject(text: $0) }
        return Entry(observer: observer, key: state.withLock { $0.registry.add(observer, name: name, object: object) })
    }

    private func unregister(_ entry: Entry) {
        entry.observer.cancel()
        let counts = entry.observer.counts
        state.withLock { state in
            guard state.registry.remove(entry.key) != nil else { return }
            state.endedCounts.add(counts)
        }
    }

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
        case .notification(let notification):
            let receivers = state.withLock { state in
                state.received += 1
                return state.registry.receivers(name: notification.name, object: notification.object)
            }
            for receiver in receivers { receiver.offer(notification) }
        }
    }

    // MARK: Looking in

    var statistics: CenterStatistics {
        let state = state.withLock { $0 }
        let rules = state.link?.connection.matchRuleCounts ?? (inUse: 0, covered: 0)
        var counts = state.endedCounts
        for observer in state.registry.all { counts.add(observer.counts) }
        return CenterStatistics(
            observers: state.registry.count,
            received: state.received,
            malformed: state.malformed,
            deliveries: counts,
            matchRules: rules.inUse,
            coveredMatchRules: rules.covered
        )
    }
}
