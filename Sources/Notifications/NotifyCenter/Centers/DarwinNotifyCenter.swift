public import DBus

// The two names of the module DBus that this module's API uses. A program then needs to import this module only.
@_exported public import enum DBus.Bus
@_exported public import struct DBus.DBusError

/// A notification of the Darwin center: a name without content (CF-W1).
public struct DarwinNotification: Sendable, Hashable {
    /// The posted name.
    public let name: NotificationName
    /// The bus name of the poster's connection (`:1.42`), as the bus or, for a program in a sandbox, notifyd names it;
    /// `nil` if neither does. Any process may post any name: take the name as a hint, and ask the bus who the sender is
    /// before you act on it.
    public let sender: String?
}

/// A center for names between all processes of a bus, without content and without history: “something changed, go and
/// look”.
///
/// A post reaches every observer of its name in every process, including the poster's own. It always goes through the
/// bus and is never delivered within the post (CF-P10). If several posts arrive while an observer is busy, it gets at
/// least one delivery after the last of them, in constant memory. `.immediate` observers get each post. Posts of one
/// process arrive in order; posts of different processes have no order (CF-D4, CF-D5). After a restart of the bus
/// observers are in place again; posts made during the outage are lost.
///
/// All functions may be called from any thread, handlers included.
public final class DarwinNotifyCenter: Sendable {
    /// The center on the bus that the environment names (``Bus/fromEnvironment``).
    public static let `default` = DarwinNotifyCenter()

    /// The rules that say who may post which name.
    private static let rules = MachineRules()

    /// The center without access rules, also for notify(3) and notifyd, which have their own.
    package let center: BusCenter

    /// Creates a center on this bus. It connects on first use, and shares the connection with the process's other
    /// centers.
    public init(bus: Bus = .fromEnvironment) { center = BusCenter(.darwin, bus) }

    /// Creates a center on an open connection. After the connection's `close()` nothing more arrives, and functions
    /// that need the bus throw ``DBusError/Code/closed``.
    public init(connection: DBusConnection) { center = BusCenter(.darwin, connection.bus, connection) }

    /// Posts a name. On return the kernel has it; for a bus that does not keep up, the call waits at most 30 seconds.
    /// `flush(timeout:)` guarantees that the bus has read the post, however the process ends. No report tells who
    /// receives the post (CF-P11).
    ///
    /// A name is reserved if `/etc/notify.conf` reserves it, or if it begins with `user.uid.`. The observers of
    /// notify(3) take such a name only from notifyd, the service of notify(3). notifyd therefore posts it for this
    /// process, if the process may post it. The call blocks until notifyd has responded, for at most 25 seconds. In a
    /// forked child, a post of any name returns when the bus has read it, after at most 10 seconds (<doc:Outages>).
    ///
    /// - Throws: ``DBusError/Code/tooLarge`` for a name of 1 MiB or more, before anything is sent;
    ///   ``DBusError/Code/refused`` for a reserved name that this process may not post, if no notifyd is installed, or
    ///   if the configuration cannot be read; ``DBusError/Code/wouldDeadlock`` for a reserved name in a handler with
    ///   immediate delivery; ``DBusError/Code/noBus``, ``DBusError/Code/disconnected``, ``DBusError/Code/closed`` and
    ///   ``DBusError/Code/noResources`` if the bus cannot be reached; ``DBusError/Code/timedOut`` and
    ///   ``DBusError/Code/limitsExceeded`` if it does not read. After ``DBusError/Code/timedOut``, a bus that resumes
    ///   may still deliver the post.
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

    /// Posts like ``post(_:)``, for a thread that must not block. If the bus does not read now, the post is sent when
    /// it reads again. If there is no bus, nothing is posted and no connection is made. If notifyd refuses a reserved
    /// name, the caller does not learn of it.
    ///
    /// - Throws: ``DBusError/Code/disconnected`` if there is no bus; ``DBusError/Code/limitsExceeded`` if too much is
    ///   queued already.
    package func queue(_ name: NotificationName) throws(DBusError) {
        // If the rules cannot be read, the name is posted as an unreserved one.
        guard (try? Self.isReserved(name)) == true else { return try center.queue(name) }
        try center.connection().queue(try NotifydProtocol.call(.post, [.string(name.rawValue)], options: .noReply))
    }

    /// Waits until the bus has read everything that this process sent earlier on this connection, including the posts
    /// of other centers. Blocks the calling thread.
    ///
    /// When the process exits by `exit` or by returning from `main`, the exit waits for the bus too, but at most 2 s. A
    /// post that the bus has not read by then may be lost. `_exit` and signals do not wait. A flush before the process
    /// ends makes sure that no post is lost.
    ///
    /// - Throws: ``DBusError/Code/timedOut`` if the bus does not read within `timeout`; ``DBusError/Code/noBus`` and
    ///   ``DBusError/Code/disconnected`` if there is no bus; ``DBusError/Code/wouldDeadlock`` in a handler with
    ///   immediate delivery.
    public func flush(timeout: Duration = .seconds(25)) throws(DBusError) { try center.flush(timeout: timeout) }

    /// Waits like the blocking form, without holding a thread.
    ///
    /// - Throws: the errors of the blocking form, and ``DBusError/Code/cancelled`` when the task is cancelled.
    public func flush(timeout: Duration = .seconds(25)) async throws(DBusError) {
        try await center.flush(timeout: timeout)
    }

    /// Observes on the main queue, like ``BusCenter/keepObserving(_:object:_:known:)``.
    func keepObserving(
        _ name: NotificationName,
        known: (NotificationObservation) -> Void,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) throws(DBusError) {
        try center.keepObserving(name, object: nil, registration(.main, handler), known: known)
    }

    /// Calls `handler` for posts of `name`, where `delivery` says, until the returned observation ends. Posts that
    /// arrive while a call is due or running are merged into one, except with ``Delivery/immediate``. The registration
    /// is in force on return: the handler gets what any process posts from then on (CF-A11). Blocks the calling thread
    /// until the bus has responded, for at most 25 seconds. In a handler with immediate delivery it does not wait, and
    /// ``UnthrownFailures`` reports a refusal (CF-D9).
    ///
    /// - Throws: ``DBusError/Code/noBus`` and ``DBusError/Code/disconnected`` without a bus,
    ///   ``DBusError/Code/timedOut`` if it does not respond, ``DBusError/Code/refused`` and
    ///   ``DBusError/Code/limitsExceeded`` if it refuses the rule, ``DBusError/Code/closed``,
    ///   ``DBusError/Code/noResources``. In a sandbox that may not talk to notifyd: ``DBusError/Code/refused``, with
    ///   the missing permission (<doc:Sandboxes>). After an error nothing is registered.
    public func observe(
        _ name: NotificationName,
        delivery: Delivery = .background,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) throws(DBusError) -> NotificationObservation {
        try center.observe(name, object: nil, registration(delivery, handler))
    }

    /// Observes like the blocking form, without holding a thread: many concurrent registrations share round trips. It
    /// waits at most 30 seconds, except in the two cases that <doc:Outages> names. Cancelling the task does not shorten
    /// the wait.
    ///
    /// - Throws: the errors of the blocking form.
    public func observe(
        _ name: NotificationName,
        delivery: Delivery = .background,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) async throws(DBusError) -> NotificationObservation {
        try await center.observe(name, object: nil, registration(delivery, handler))
    }

    /// Observes like the blocking form; with `nil`, observes any name, and the bus then sends every post. For tools
    /// that show the traffic: the handler gets every post, on the thread that reads the bus.
    package func observeAny(
        _ name: NotificationName?,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) throws(DBusError) -> NotificationObservation {
        try center.observe(name, object: nil, registration(.immediate, handler))
    }

    /// Observes like the asynchronous form, for posts that count only from the owner of a bus name. A process in a
    /// sandbox that may talk to that name gets them without notifyd. The handler compares the sender with the owner,
    /// because posts of other processes may arrive.
    package func observeOwner(
        postsOf name: NotificationName,
        delivery: Delivery = .background,
        handler: @escaping @Sendable (DarwinNotification) -> Void
    ) async throws(DBusError) -> NotificationObservation {
        try await center.observe(name, object: nil, isNamed: true, registration(delivery, handler))
    }

    /// Returns the posts of `name` as a sequence. The registration is in force on return. One pending element stands
    /// for all posts that arrive while the loop is busy.
    ///
    /// - Throws: the errors of the asynchronous `observe`. After an error nothing is registered.
    public func notifications(
        named name: NotificationName
    ) async throws(DBusError) -> NotificationSequence<DarwinNotification> {
        let inlet = NotificationInlet(.coalescing, gate: center.router.gate)
        let observation = try await center.observe(name, object: nil, inlet.registration)
        return NotificationSequence(inlet: inlet, observation: observation) {
            DarwinNotification(name: $0.name, sender: $0.sender)
        }
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
