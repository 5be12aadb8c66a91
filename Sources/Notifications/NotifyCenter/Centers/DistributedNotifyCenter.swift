public import DBusTransport

/// A notification of the distributed center.
public struct DistributedNotification: Sendable, Hashable {
    /// The posted name, also for observers of any name (CF-D6).
    public let name: NotificationName
    /// What it is about; `nil` where the poster gave nothing.
    public let object: String?
    /// What it says; `nil` where the poster gave nothing. Any process may post any name: treat it as untrusted (CF-U8).
    public let userInfo: UserInfo?
    /// The poster's connection as the bus tells it (`:1.42`).
    public let sender: String?

    init(_ wire: WireNotification) {
        name = wire.name
        object = wire.object?.text
        userInfo = wire.userInfo
        sender = wire.sender
    }
}

/// How a distributed notification is posted (CF-T8); the bits are CoreFoundation's.
public struct PostingOptions: OptionSet, Sendable, Hashable {
    /// The bits.
    public let rawValue: UInt

    /// Options of these bits; unknown ones have no effect.
    public init(rawValue: UInt) { self.rawValue = rawValue }

    /// Suspended observers get it at once too, whatever their suspension behavior, and before it all that waits for them
    /// (CF-P5, CF-S7).
    public static let deliverImmediately = PostingOptions(rawValue: 1 << 0)

    /// To the observers of all login sessions (CF-P7). A center on the system bus reaches all of them anyway. One on another bus reaches
    /// those of its own session; ``UnthrownFailures`` tells the process once that no other session hears it (CF-B8).
    public static let postToAllSessions = PostingOptions(rawValue: 1 << 1)
}

/// Notifications with an object and a payload, between all processes of a bus.
///
/// A post (name, object) reaches an observer whose name is that name or any, and whose object is that object or any (CF-M1);
/// objects are compared as text, byte by byte. The poster's own process receives too, through the bus, never inside the call
/// (CF-P10). Posts of one process arrive in their order; between posters there is no order (CF-D4, CF-D5). The center bounds what
/// waits for a slow observer, and counts what it drops. After a restart of the bus observers are in place again; posts made
/// meanwhile are lost.
///
/// All functions may be called from any thread, handlers included.
public final class DistributedNotifyCenter: Sendable {
    /// The center on the bus that the environment names (``Bus/fromEnvironment``).
    public static let `default` = DistributedNotifyCenter()

    private let center: BusCenter

    /// A center on this bus. It connects with its first use, and shares the connection with the process's other centers.
    public init(bus: Bus = .fromEnvironment) {
        center = BusCenter(.distributed, .bus(bus))
    }

    /// A center on a connection that is open already.
    public init(connection: DBusConnection) {
        center = BusCenter(.distributed, .connection(connection))
    }

    /// Posts a notification. On return the kernel has it. If the process also observes, and then ends by `exit` or by returning from `main`, the end
    /// waits 2 s at most for the bus; `flush(timeout:)` gives certainty, for other ends too. Nobody reports who receives it (CF-P11).
    ///
    /// - Parameters:
    ///   - name: what happened.
    ///   - object: what it is about; without one, only observers of any object receive it (CF-P2).
    ///   - userInfo: nested at most 20 arrays and dictionaries deep. An empty one arrives as empty, and none as none (CF-U6).
    ///   - options: whether suspended observers get it at once, and how far it reaches.
    /// - Throws: ``DBusError/Code/tooLarge`` for a notification of over 1 MiB as <doc:WireProtocol> counts it (CF-U9) and
    ///   ``DBusError/Code/invalidArgument`` for a userInfo that is nested too deep, both before anything is sent; other codes where the
    ///   bus cannot be reached or does not read. After ``DBusError/Code/timedOut``, a bus that goes on may still deliver the post.
    public func post(
        _ name: NotificationName,
        object: String? = nil,
        userInfo: UserInfo? = nil,
        options: PostingOptions = []
    ) throws(DBusError) {
        try center.post(name, object: object, userInfo: userInfo, options: options)
    }

    /// Waits until the bus has read everything that this process sent by this connection before, posts of other centers on it included. Blocks the
    /// calling thread.
    ///
    /// An end of the process by `exit` or by returning from `main` waits for the bus too, but 2 s at most: a bus that has not read a post by
    /// then may lose it. An end by `_exit` or by a signal does not wait. A flush before the end makes sure that no post is lost.
    ///
    /// - Throws: ``DBusError/Code/timedOut`` after `timeout` with a bus that does not read; ``DBusError/Code/noBus`` and
    ///   ``DBusError/Code/disconnected`` where there is none.
    public func flush(timeout: Duration = .seconds(25)) throws(DBusError) { try center.flush(timeout: timeout) }

    /// As the blocking form, without holding a thread.
    ///
    /// - Throws: as the blocking form, and ``DBusError/Code/cancelled`` when the task is.
    public func flush(timeout: Duration = .seconds(25)) async throws(DBusError) {
        try await center.flush(timeout: timeout)
    }

    /// Observes as ``BusCenter/keepObserving(_:object:_:known:)`` does, for Apple's spellings, whose functions cannot throw.
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

    /// Calls `handler` for each matching post until the returned observation ends. The registration is in force on return:
    /// what any process posts from then on is seen (CF-A11). Blocks the calling thread until the bus has answered, 25 seconds at most.
    ///
    /// - Parameters:
    ///   - name: the name; `nil` for any. An observer of any name has the bus send everything that anybody posts.
    ///   - object: the object; `nil` for any.
    ///   - delivery: where the handler runs.
    ///   - buffering: how much waits while the handler is busy or the center suspended.
    ///   - suspensionBehavior: what waits while the center is suspended.
    ///   - handler: is called for one notification at a time.
    /// - Throws: as the blocking `observe` of ``DarwinNotifyCenter``; nothing is registered then.
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

    /// As the blocking form, without holding a thread: many registrations at once travel together. It
    /// waits 30 seconds at most, but for the two cases that <doc:Outages> names, and a task that is cancelled waits all the same.
    ///
    /// - Throws: as the blocking form.
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

    /// The matching posts as a sequence, registered when this returns. The loop ends when its task is
    /// cancelled, or by ``NotificationSequence/cancel()``.
    ///
    /// - Throws: ``DBusError`` where the bus cannot be reached or refuses the registration.
    public func notifications(
        named name: NotificationName?,
        object: String? = nil,
        buffering: Buffering = .standard,
        suspensionBehavior: SuspensionBehavior = .coalesce
    ) async throws(DBusError) -> NotificationSequence<DistributedNotification> {
        let inlet = NotificationInlet(buffering, suspensionBehavior, gate: center.router.gate)
        let observation = try await center.observe(name, object: object, inlet.registration)
        return NotificationSequence(inlet, observation) { DistributedNotification($0) }
    }

    /// As the asynchronous form, but blocks for one answer of the bus, for Foundation's spelling, which is not asynchronous. It has a name
    /// of its own, because at the top level of a program the compiler would choose it over the other.
    package func blockingNotifications(
        named name: NotificationName?,
        object: String? = nil,
        buffering: Buffering = .standard,
        suspensionBehavior: SuspensionBehavior = .coalesce
    ) throws(DBusError) -> NotificationSequence<DistributedNotification> {
        let inlet = NotificationInlet(buffering, suspensionBehavior, gate: center.router.gate)
        let observation = try center.observe(name, object: object, inlet.registration)
        return NotificationSequence(inlet, observation) { DistributedNotification($0) }
    }

    /// The same for Foundation's spelling that cannot throw: as ``BusCenter/keepObserving(_:object:_:known:)``, it keeps the observer where the bus
    /// is not there.
    ///
    /// - Parameter known: is called with the sequence, before anything is thrown.
    package func keepNotifications(
        named name: NotificationName?,
        object: String?,
        known: (NotificationSequence<DistributedNotification>) -> Void
    ) throws(DBusError) {
        let inlet = NotificationInlet(.standard, .coalesce, gate: center.router.gate)
        try center.keepObserving(name, object: object, inlet.registration) { observation in
            known(NotificationSequence(inlet, observation) { DistributedNotification($0) })
        }
    }

    /// Whether notifications for this center's observers wait, as each observer's ``SuspensionBehavior`` says (CF-S1). False at
    /// first, and nothing but this sets it (CF-S2). Setting what it is already changes nothing (CF-S9).
    ///
    /// When it is set to true no call begins any more, except of a handler whose thread has taken its notification already; what was
    /// on its way to an observer's queue waits too. When it is set to false, all that waits is delivered where each observer wants
    /// it, in the order of arrival, and then normal delivery goes on (CF-S8); the setter does not wait for that. Setting it to true
    /// from within such a delivery leaves the rest waiting (CF-S14). On a connection that was closed nothing is delivered any more.
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
