public import DBus

/// A notification of the distributed center.
public struct DistributedNotification: Sendable, Hashable {
    /// The posted name, also for observers of any name (CF-D6).
    public let name: NotificationName
    /// The object that the notification is about; `nil` if the poster passed none.
    public let object: String?
    /// The content; `nil` if the poster passed none. Any process may post any name: treat it as untrusted (CF-U8).
    public let userInfo: UserInfo?
    /// The bus name of the poster's connection (`:1.42`), as the bus or, for a program in a sandbox, notifyd names it;
    /// `nil` if neither does.
    public let sender: String?

    init(_ wire: WireNotification) {
        name = wire.name
        object = wire.object?.text
        userInfo = wire.userInfo
        sender = wire.sender
    }
}

/// Options for posting a distributed notification (CF-T8). The bits are CoreFoundation's.
public struct PostingOptions: OptionSet, Sendable, Hashable {
    /// The option bits.
    public let rawValue: UInt

    /// Creates options from these bits; unknown bits have no effect.
    public init(rawValue: UInt) { self.rawValue = rawValue }

    /// Suspended observers get the notification at once too, whatever their suspension behavior. Everything that waits
    /// for them is delivered first (CF-P5, CF-S7).
    public static let deliverImmediately = PostingOptions(rawValue: 1 << 0)

    /// The notification is for the observers of all login sessions (CF-P7). A center on the system bus reaches all of
    /// them with or without this option. A center on another bus reaches only the observers of that bus's session;
    /// ``UnthrownFailures`` reports once per process that no other session gets the post (CF-B8).
    public static let postToAllSessions = PostingOptions(rawValue: 1 << 1)
}

/// A center for notifications with an object and a userInfo, between all processes of a bus.
///
/// A post (name, object) reaches an observer whose name is that name or any, and whose object is that object or any
/// (CF-M1). Objects are compared as text, byte by byte. The poster's own process receives the post too, through the bus
/// and never within the post (CF-P10). Posts of one process arrive in order; posts of different processes have no order
/// (CF-D4, CF-D5). The center limits the backlog of a slow observer, and counts dropped notifications. After a restart
/// of the bus observers are in place again; posts made during the outage are lost.
///
/// All functions may be called from any thread, handlers included.
public final class DistributedNotifyCenter: Sendable {
    /// The center on the bus that the environment names (``Bus/fromEnvironment``).
    public static let `default` = DistributedNotifyCenter()

    private let center: BusCenter

    /// Creates a center on this bus. It connects on first use, and shares the connection with the process's other
    /// centers.
    public init(bus: Bus = .fromEnvironment) { center = BusCenter(.distributed, bus) }

    /// Creates a center on an open connection. After the connection's `close()` nothing more arrives, and functions
    /// that need the bus throw ``DBusError/Code/closed``.
    public init(connection: DBusConnection) { center = BusCenter(.distributed, connection.bus, connection) }

    /// Posts a notification. On return the kernel has it; for a bus that does not keep up, the call waits at most 30
    /// seconds. `flush(timeout:)` guarantees that the bus has read the post, however the process ends. No report tells
    /// who receives the post (CF-P11). In a forked child the call returns when the bus has read the post, after at most
    /// 10 seconds (<doc:Outages>).
    ///
    /// - Parameters:
    ///   - name: the name of the event.
    ///   - object: the object that the notification is about; with `nil`, only observers of any object receive it
    ///     (CF-P2).
    ///   - userInfo: the content, nested at most 20 arrays and dictionaries deep. An empty one arrives as empty, and
    ///     `nil` as `nil` (CF-U6).
    ///   - options: whether suspended observers get it at once, and which sessions it reaches.
    /// - Throws: ``DBusError/Code/tooLarge`` for a notification of over 1 MiB as <doc:WireProtocol> counts it (CF-U9)
    ///   and ``DBusError/Code/invalidArgument`` for a userInfo that is nested too deep or holds a date that is NaN or
    ///   infinite, both before anything is sent; ``DBusError/Code/noBus``, ``DBusError/Code/disconnected``,
    ///   ``DBusError/Code/closed`` and ``DBusError/Code/noResources`` if the bus cannot be reached;
    ///   ``DBusError/Code/timedOut`` and ``DBusError/Code/limitsExceeded`` if it does not read. After
    ///   ``DBusError/Code/timedOut``, a bus that resumes may still deliver the post.
    public func post(
        _ name: NotificationName,
        object: String? = nil,
        userInfo: UserInfo? = nil,
        options: PostingOptions = []
    ) throws(DBusError) {
        try center.post(name, object: object, userInfo: userInfo, options: options)
    }

    /// Waits until the bus has read everything that this process sent earlier on this connection, including the posts
    /// of other centers. Blocks the calling thread.
    ///
    /// When the process exits by `exit` or by returning from `main`, the exit waits for the bus too, but at most 2 s. A
    /// post that the bus has not read by then may be lost. `_exit` and signals do not wait.
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

    /// Observes like ``BusCenter/keepObserving(_:object:_:known:)``, for Apple's functions, which cannot throw.
    package func keepObserving(
        _ name: NotificationName?,
        object: String?,
        delivery: Delivery,
        suspensionBehavior: SuspensionBehavior,
        known: (NotificationObservation) -> Void,
        handler: @escaping @Sendable (DistributedNotification) -> Void
    ) throws(DBusError) {
        let registration = registration(delivery, .standard, suspensionBehavior, handler)
        try center.keepObserving(name, object: object, registration, known: known)
    }

    /// Calls `handler` for each matching post until the returned observation ends. The registration is in force on
    /// return: the handler gets what any process posts from then on (CF-A11). Blocks the calling thread until the bus
    /// has responded, for at most 25 seconds. In a handler with immediate delivery it does not wait, and
    /// ``UnthrownFailures`` reports a refusal (CF-D9).
    ///
    /// - Parameters:
    ///   - name: the name; `nil` for any. With an observer of any name, the bus sends every post of every process.
    ///   - object: the object; `nil` for any.
    ///   - delivery: the place where the handler runs.
    ///   - buffering: how many notifications wait while the handler is busy or the center is suspended.
    ///   - suspensionBehavior: how notifications are treated while the center is suspended.
    ///   - handler: called for one notification at a time.
    /// - Throws: the errors of the blocking `observe` of ``DarwinNotifyCenter``. After an error nothing is registered.
    public func observe(
        _ name: NotificationName?,
        object: String? = nil,
        delivery: Delivery = .background,
        buffering: Buffering = .standard,
        suspensionBehavior: SuspensionBehavior = .coalesce,
        handler: @escaping @Sendable (DistributedNotification) -> Void
    ) throws(DBusError) -> NotificationObservation {
        try center.observe(name, object: object, registration(delivery, buffering, suspensionBehavior, handler))
    }

    /// Observes like the blocking form, without holding a thread: many concurrent registrations share round trips. It
    /// waits at most 30 seconds, except in the two cases that <doc:Outages> names. Cancelling the task does not shorten
    /// the wait.
    ///
    /// - Throws: the errors of the blocking form.
    public func observe(
        _ name: NotificationName?,
        object: String? = nil,
        delivery: Delivery = .background,
        buffering: Buffering = .standard,
        suspensionBehavior: SuspensionBehavior = .coalesce,
        handler: @escaping @Sendable (DistributedNotification) -> Void
    ) async throws(DBusError) -> NotificationObservation {
        try await center.observe(name, object: object, registration(delivery, buffering, suspensionBehavior, handler))
    }

    /// Returns the matching posts as a sequence. The registration is in force on return. The loop ends when its task is
    /// cancelled, or by ``NotificationSequence/cancel()``.
    ///
    /// - Throws: the errors of the asynchronous `observe`. After an error nothing is registered.
    public func notifications(
        named name: NotificationName?,
        object: String? = nil,
        buffering: Buffering = .standard,
        suspensionBehavior: SuspensionBehavior = .coalesce
    ) async throws(DBusError) -> NotificationSequence<DistributedNotification> {
        let inlet = NotificationInlet(buffering, suspensionBehavior, gate: center.router.gate)
        let observation = try await center.observe(name, object: object, inlet.registration)
        return NotificationSequence(inlet: inlet, observation: observation) { DistributedNotification($0) }
    }

    /// Returns the same sequence for Foundation's functions, which block. The name differs because at the top level of
    /// a program the compiler would prefer this function.
    package func blockingNotifications(
        named name: NotificationName?,
        object: String?,
        buffering: Buffering = .standard
    ) throws(DBusError) -> NotificationSequence<DistributedNotification> {
        let inlet = NotificationInlet(buffering, .coalesce, gate: center.router.gate)
        let observation = try center.observe(name, object: object, inlet.registration)
        return NotificationSequence(inlet: inlet, observation: observation) { DistributedNotification($0) }
    }

    /// Observes like ``BusCenter/keepObserving(_:object:_:known:)``, for Foundation's function that cannot throw.
    ///
    /// - Parameter known: called with the sequence, before any error is thrown.
    package func keepNotifications(
        named name: NotificationName?,
        object: String?,
        known: (NotificationSequence<DistributedNotification>) -> Void
    ) throws(DBusError) {
        let inlet = NotificationInlet(.standard, .coalesce, gate: center.router.gate)
        try center.keepObserving(name, object: object, inlet.registration) { observation in
            known(NotificationSequence(inlet: inlet, observation: observation) { DistributedNotification($0) })
        }
    }

    /// Whether deliveries to this center's observers wait, as each observer's ``SuspensionBehavior`` says (CF-S1). It
    /// is initially false, and only this setter changes it (CF-S2). Setting the current value has no effect (CF-S9).
    ///
    /// After it is set to true no further call begins, except of a handler whose thread has already taken its
    /// notification. Queued notifications wait too. When it is set to false, everything that waits is delivered as each
    /// observer asked, in the order of arrival, and then normal delivery resumes (CF-S8). The setter does not wait for
    /// that. If a handler sets it to true meanwhile, the rest keeps waiting (CF-S14). On a closed connection nothing
    /// more is delivered.
    public var isSuspended: Bool {
        get { center.isSuspended }
        set { center.isSuspended = newValue }
    }

    /// The counts of this center so far.
    public var statistics: CenterStatistics { center.statistics }

    private func registration(
        _ delivery: Delivery,
        _ buffering: Buffering,
        _ suspensionBehavior: SuspensionBehavior,
        _ handler: @escaping @Sendable (DistributedNotification) -> Void
    ) -> Registration {
        Registration(delivery, buffering, suspensionBehavior, gate: center.router.gate) { wire in
            handler(DistributedNotification(wire))
        }
    }
}
