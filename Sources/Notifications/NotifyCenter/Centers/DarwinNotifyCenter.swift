public import DBusTransport
import NotifydProtocol

// The two names of the transport that this module's own API speaks of, so that its users import one module.
@_exported public import enum DBusTransport.Bus
@_exported public import struct DBusTransport.DBusError

/// A notification of the Darwin center: a name alone (CF-W1).
public struct DarwinNotification: Sendable, Hashable {
    /// The posted name.
    public let name: NotificationName
    /// The poster's connection as the bus tells it (`:1.42`). Any process may post any name: take the name as a hint, and
    /// ask the bus who the sender is before you act on it.
    public let sender: String?
}

/// Names between all processes of a bus, without payload and without history: “something changed, go and look”.
///
/// A post reaches every observer of its name in every process, the poster's own included, always through the bus and never
/// inside the call (CF-P10). An observer that is busy while several posts arrive gets at least one delivery after the last of
/// them, in constant memory; `.immediate` observers get each. Posts of one process arrive in their order; between posters
/// there is no order (CF-D4, CF-D5). After a restart of the bus observers are in place again; posts made meanwhile are lost.
///
/// All functions may be called from any thread, handlers included.
public final class DarwinNotifyCenter: Sendable {
    /// The center on the bus that the environment names (``Bus/fromEnvironment``).
    public static let `default` = DarwinNotifyCenter()

    /// Who may post which name.
    private static let rules = MachineRules()

    private let center: BusCenter

    /// A center on this bus. It connects with its first use, and shares the connection with the process's other centers.
    public init(bus: Bus = .fromEnvironment) {
        center = BusCenter(.darwin, .bus(bus))
    }

    /// A center on a connection that is open already.
    public init(connection: DBusConnection) {
        center = BusCenter(.darwin, .connection(connection))
    }

    /// The connection that it posts and observes by, which need not have found a bus so far.
    ///
    /// - Throws: ``DBusError/Code/noResources`` where the process has no descriptor left for it.
    package func connection() throws(DBusError) -> DBusConnection { try center.connection() }

    /// Posts a name. On return the kernel has it. If the process then ends by `exit` or by returning from `main`, the end waits
    /// 2 s at most for the bus; `flush(timeout:)` gives certainty, for other ends too. Nobody reports who receives it (CF-P11).
    ///
    /// The observers of notify(3) take a reserved name from notifyd alone: a name that `/etc/notify.conf` reserves, or one
    /// that begins with `user.uid.`. So notifyd posts such a name for this process, if the process may post it. The call
    /// blocks until notifyd has answered, 25 seconds at most.
    ///
    /// - Throws: ``DBusError/Code/tooLarge`` for a name of 1 MiB, before anything is sent; ``DBusError/Code/refused`` for
    ///   a reserved name that this process may not post, or if no notifyd is installed or the configuration cannot be read;
    ///   other codes where the bus cannot be reached or does not read. After ``DBusError/Code/timedOut``, a bus that goes
    ///   on may still deliver the post.
    public func post(_ name: NotificationName) throws(DBusError) {
        if try Self.isReserved(name) { try center.postByNotifyd(name) } else { try center.post(name) }
    }

    private static func isReserved(_ name: NotificationName) throws(DBusError) -> Bool {
        do throws(ConfigurationFileError) {
            return !(try rules.read().isOpen(.write, name.rawValue))
        } catch {
            throw DBusError(.refused, message: "\(error)", attempted: "find out whether the name is reserved")
        }
    }

    /// Posts a name without asking who may post it: for notifyd, and for a caller that has asked.
    package func postUnchecked(_ name: NotificationName) throws(DBusError) { try center.post(name) }

    /// Has notifyd post a name that is reserved, for a caller that has asked.
    package func postByNotifyd(_ name: NotificationName) throws(DBusError) { try center.postByNotifyd(name) }

    /// As ``post(_:)``, for a thread that must not wait: what a bus does not read at once is sent when it reads again. Where there is no bus, it is not
    /// posted, and no connection is made. notifyd's refusal of a reserved name is not told.
    ///
    /// - Throws: ``DBusError/Code/disconnected`` where there is none; ``DBusError/Code/limitsExceeded`` where too much waits already.
    package func queue(_ name: NotificationName) throws(DBusError) {
        // Rules that cannot be read keep back nothing that this process has to say.
        guard (try? Self.isReserved(name)) == true else { return try center.queue(name) }
        try connection().queue(try NotifydProtocol.call(.post, [.string(name.rawValue)], options: .noReply))
    }

    /// Waits until the bus has read everything that this process sent by this connection before, posts of other centers on it included. Blocks the
    /// calling thread.
    ///
    /// An end of the process by `exit` or by returning from `main` waits for the bus too, but 2 s at most: a bus that has not read a post by
    /// then may lose it. An end by `_exit` or by a signal does not wait. A flush before the end makes sure that no post is lost.
    ///
    /// - Throws: ``DBusError/Code/timedOut`` after `timeout` with a bus that does not read; ``DBusError/Code/noBus`` and
    ///   ``DBusError/Code/disconnected`` where there is none; ``DBusError/Code/wouldDeadlock`` in a handler with immediate delivery.
    public func flush(timeout: Duration = .seconds(25)) throws(DBusError) { try center.flush(timeout: timeout) }

    /// As the blocking form, without holding a thread.
    ///
    /// - Throws: as the blocking form, and ``DBusError/Code/cancelled`` when the task is.
    public func flush(timeout: Duration = .seconds(25)) async throws(DBusError) {
        try await center.flush(timeout: timeout)
    }

    /// Observes on the main queue, as ``BusCenter/keepObserving(_:object:_:known:)`` does.
    func keepObserving(
        _ name: NotificationName,
        known: (NotificationObservation) -> Void,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) throws(DBusError) {
        try center.keepObserving(name, object: nil, registration(.main, handler), known: known)
    }

    /// Calls `handler` for each post of `name` until the returned observation ends. The registration is in force on return:
    /// what any process posts from then on is seen (CF-A11). Blocks the calling thread until the bus has answered, 25 seconds at most.
    ///
    /// - Throws: and registers nothing: ``DBusError/Code/noBus``, ``DBusError/Code/disconnected``, ``DBusError/Code/timedOut`` where the bus does not
    ///   answer, ``DBusError/Code/refused`` and ``DBusError/Code/limitsExceeded`` where it refuses the rule, ``DBusError/Code/closed``,
    ///   ``DBusError/Code/noResources``. In a sandbox that may not talk to notifyd: ``DBusError/Code/refused``, with the
    ///   missing permission (<doc:Sandboxes>).
    public func observe(
        _ name: NotificationName,
        delivery: Delivery = .background,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) throws(DBusError) -> NotificationObservation {
        try center.observe(name, object: nil, registration(delivery, handler))
    }

    /// As the blocking form, without holding a thread: many registrations at once travel together. It
    /// waits 30 seconds at most, but for the two cases that <doc:Outages> names, and a task that is cancelled waits all the same.
    ///
    /// - Throws: as the blocking form.
    public func observe(
        _ name: NotificationName,
        delivery: Delivery = .background,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) async throws(DBusError) -> NotificationObservation {
        try await center.observe(name, object: nil, registration(delivery, handler))
    }

    /// As the blocking form, for any name where it is `nil`: then the bus sends everything that anybody posts. For tools that show
    /// what goes on; the handler gets every post, on the thread that reads the bus.
    package func observeAny(
        _ name: NotificationName?,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) throws(DBusError) -> NotificationObservation {
        try center.observe(name, object: nil, registration(.immediate, handler))
    }

    /// As the asynchronous form, for posts that count only from the owner of a bus name: a process in a sandbox that
    /// may talk to that name hears them without notifyd. The handler compares the sender with the owner, because posts
    /// of other processes may arrive.
    package func observeOwner(
        postsOf name: NotificationName,
        delivery: Delivery = .background,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) async throws(DBusError) -> NotificationObservation {
        try await center.observe(name, object: nil, isNamed: true, registration(delivery, handler))
    }

    /// Has the posts of a name sent to this process until the lease ends, for notify(3), which takes them by ``received(_:)``.
    package func lease(_ name: NotificationName, by deadline: ContinuousClock.Instant) throws(DBusError) -> PostLease {
        try center.lease(name, by: deadline)
    }

    /// The same, whatever the bus says now. `settled` is as for a match rule that is kept.
    package func keepLease(
        _ name: NotificationName,
        settled: @escaping @Sendable (DBusError?) -> Void
    ) throws(DBusError) -> PostLease {
        try center.keepLease(name, settled: settled)
    }

    /// Whether a sandbox keeps the posts of other processes away, and notifyd does not relay them.
    package var isOutOfReach: Bool { center.isOutOfReach }

    /// Throws the remedy if a sandbox keeps notifyd's posts away.
    package func checkNotifyd(by deadline: ContinuousClock.Instant) throws(DBusError) {
        try center.checkNotifyd(by: deadline)
    }

    /// The post that a signal is; `nil` for any other signal.
    package func received(_ message: borrowing DBusMessage) -> DarwinSignal? { center.post(message) }

    /// The posts of `name` as a sequence, registered when this returns. One pending element stands for all posts that arrive
    /// while the loop is busy. The loop ends when its task is cancelled, or by ``NotificationSequence/cancel()``.
    ///
    /// - Throws: ``DBusError`` where the bus cannot be reached or refuses the registration.
    public func notifications(
        named name: NotificationName
    ) async throws(DBusError)
        -> NotificationSequence<DarwinNotification>
    {
        let inlet = NotificationInlet(.coalescing, gate: center.router.gate)
        let observation = try await center.observe(name, object: nil, inlet.registration)
        return NotificationSequence(inlet, observation) { DarwinNotification(name: $0.name, sender: $0.sender) }
    }

    /// The counts of this center so far.
    public var statistics: CenterStatistics { center.statistics }

    private func registration(
        _ delivery: Delivery,
        _ handler: @escaping @Sendable (DarwinNotification) -> Void
    ) -> Registration {
        Registration(delivery, .coalescing, gate: center.router.gate) { wire in
            handler(DarwinNotification(name: wire.name, sender: wire.sender))
        }
    }
}
