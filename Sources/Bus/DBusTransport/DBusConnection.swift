import Synchronization

/// A connection to a message bus.
///
/// Sends from any thread, at once. One thread of its own reads, with all signals blocked; handlers run there and must
/// return soon. When the bus is lost and comes back, bus names, match rules and objects are put in place again, and
/// ``onEvent(_:)`` tells. The end of the last reference closes the connection.
public final class DBusConnection: Sendable {
    let core: ConnectionCore

    private init(core: ConnectionCore) { self.core = core }

    deinit { core.close() }

    /// Connects. Waits for the bus to answer, which takes well under a millisecond on a healthy one.
    ///
    /// - Throws: ``DBusError/Code/noBus`` where there is none, or it refuses this user.
    public static func open(_ bus: Bus = .fromEnvironment) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus))
    }

    /// The bus that was asked for.
    public var bus: Bus { core.bus }

    /// The name that the bus gave this connection (`:1.42`); `nil` while the bus is lost.
    public var uniqueName: String? { try? core.socket("read the unique name").uniqueName }

    /// Closes: calls that wait fail with ``DBusError/Code/closed``, handlers are not called any more.
    public func close() { core.close() }

    // MARK: Messages

    /// Sends a message that needs no answer. When it returns the kernel has the message: the process may end at once.
    /// A bus that does not keep up makes it wait. Called from a handler on the reading thread it does not wait.
    ///
    /// - Throws: ``DBusError/Code/disconnected``, ``DBusError/Code/closed``, ``DBusError/Code/timedOut`` after 30 seconds
    ///   with a bus that does not read.
    public func send(_ message: borrowing DBusMessage) throws(DBusError) {
        try core.send(message)
    }

    /// Calls a method and waits for the answer, without holding a thread.
    ///
    /// - Throws: ``DBusError/Code/refused`` with the peer's error name, ``DBusError/Code/timedOut``,
    ///   ``DBusError/Code/cancelled`` when the task is, ``DBusError/Code/disconnected`` when the bus is lost meanwhile.
    public func call(
        _ message: consuming DBusMessage,
        timeout: Duration = .seconds(25)
    ) async throws(DBusError) -> [DBusValue] {
        let core = core
        try core.checkProcess(Self.attempt(message))
        let id = core.takeID()
        let held = ConnectionCore.HeldMessage(message)
        let result: Result<[DBusValue], DBusError> = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                core.startCall(held.message, attempted: Self.attempt(held.message), id: id, timeout: timeout) {
                    continuation.resume(returning: $0)
                }
                // Cancelled before the call was known, the handler found nothing to cancel.
                if Task.isCancelled { core.cancelCall(id: id) }
            }
        } onCancel: {
            core.cancelCall(id: id)
        }
        return try result.get()
    }

    /// As ``call(_:timeout:)``, but a task that is cancelled waits for the answer all the same.
    package func callUncancelled(
        _ message: consuming DBusMessage,
        timeout: Duration = .seconds(25)
    ) async throws(DBusError) -> [DBusValue] {
        let core = core
        try core.checkProcess(Self.attempt(message))
        let held = ConnectionCore.HeldMessage(message)
        let result: Result<[DBusValue], DBusError> = await withCheckedContinuation { continuation in
            start(held, timeout: timeout) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }

    /// Calls a method; `answered` hears on the reading thread what became of it, in the bus's order with what else arrives. Where the call
    /// cannot be sent, it hears so at once, on this thread.
    package func call(
        _ message: consuming DBusMessage,
        timeout: Duration = .seconds(25),
        answered: @escaping @Sendable (Result<[DBusValue], DBusError>) -> Void
    ) {
        start(ConnectionCore.HeldMessage(message), timeout: timeout, waiter: answered)
    }

    private func start(
        _ held: ConnectionCore.HeldMessage,
        timeout: Duration,
        waiter: @escaping ConnectionCore.CallWaiter
    ) {
        core.startCall(
            held.message,
            attempted: Self.attempt(held.message),
            id: core.takeID(),
            timeout: timeout,
            waiter: waiter
        )
    }

    /// Calls a method and blocks this thread until the answer is there. Allowed on the reading thread too, which goes on
    /// reading meanwhile and delivers afterwards.
    ///
    /// - Throws: as ``call(_:timeout:)``, but for cancellation.
    public func callAndWait(
        _ message: borrowing DBusMessage,
        timeout: Duration = .seconds(25)
    ) throws(DBusError) -> [DBusValue] {
        try core.checkProcess(Self.attempt(message))
        // A copy, because the same message may be sent by others too, and each call needs a serial of its own.
        let held = ConnectionCore.HeldMessage(try message.copy())
        let result: Result<[DBusValue], DBusError> = core.wait { answered in
            core.startCall(
                held.message,
                attempted: Self.attempt(held.message),
                id: core.takeID(),
                timeout: timeout,
                waiter: answered
            )
        }
        return try result.get()
    }

    /// Blocks until the bus has taken what this process sent before, and this process what the bus had sent it by then:
    /// afterwards the handlers have seen the process's own signals.
    ///
    /// - Throws: as ``callAndWait(_:timeout:)``.
    public func synchronize() throws(DBusError) {
        _ = try callAndWait(try BusDaemon.call("GetId", []).message())
    }

    private static func attempt(_ message: borrowing DBusMessage) -> String {
        "call \(message.interface ?? "").\(message.member ?? "")"
    }

    /// Calls `handler` for every signal that arrives, in the bus's order, on the reading thread. Which signals arrive is the
    /// matter of ``addMatch(_:fallback:)``; a handler sees those of all rules of the connection.
    public func onSignal(_ handler: @escaping @Sendable (borrowing DBusMessage) -> Void) -> Observation {
        let core = core
        let id = core.state.withLock { state -> UInt64 in
            let id = state.takeID()
            state.signalHandlers.append((id, handler))
            return id
        }
        return Observation { [weak core] in
            core?.discard { state in
                defer { state.signalHandlers.removeAll { $0.id == id } }
                return state.signalHandlers
            }
        }
    }

    /// Calls `handler` on the reading thread when the bus is lost and when it is back.
    ///
    /// - Throws: ``DBusError/Code/noResources`` where no thread can be started to notice it.
    public func onEvent(
        _ handler: @escaping @Sendable (ConnectionEvent) -> Void
    ) throws(DBusError) -> Observation {
        try core.checkProcess("watch the connection")
        try core.startThread()
        let core = core
        let id = core.state.withLock { state -> UInt64 in
            let id = state.takeID()
            state.eventHandlers[id] = handler
            return id
        }
        return Observation { [weak core] in
            core?.discard { $0.eventHandlers.removeValue(forKey: id) }
        }
    }

    /// Calls `job` on the reading thread, between two messages and in the order of asking, also while the bus is lost. That
    /// thread is there from the first registration or call on; a closed connection calls nothing.
    public func perform(_ job: @escaping @Sendable () -> Void) { core.perform(job) }

    /// Whether this is the reading thread, for an actor that lives there.
    package var isOnReadingThread: Bool { core.isOnIOThread }

    // MARK: Match rules

    /// Has the bus send what matches `rule`, until the lease ends. The rule is in force when this returns. Equal rules of one
    /// connection are shared and counted, so that the thousandth lease of a rule costs nothing on the bus.
    ///
    /// - Parameter fallback: a broader rule that takes the place of `rule` when the bus grants no more rules.
    /// - Throws: ``DBusError/Code/limitsExceeded`` where that has no place either; ``DBusError/Code/refused`` for a rule
    ///   that the bus does not take; ``DBusError/Code/disconnected``.
    public func addMatch(_ rule: MatchRule, fallback: MatchRule? = nil) throws(DBusError) -> MatchRuleLease {
        let error: DBusError? = core.wait { core.retain(rule, fallback: fallback, waiter: $0) }
        if let error { throw error }
        return MatchRuleLease(rule, core)
    }

    /// The same without holding a thread: many at once travel together.
    public func addMatch(_ rule: MatchRule, fallback: MatchRule? = nil) async throws(DBusError) -> MatchRuleLease {
        let core = core
        let error = await withCheckedContinuation { continuation in
            core.retain(rule, fallback: fallback) { continuation.resume(returning: $0) }
        }
        if let error { throw error }
        return MatchRuleLease(rule, core)
    }

    /// How many different rules are in use, and how many of them a fallback stands in for.
    public var matchRuleCounts: (inUse: Int, covered: Int) {
        core.state.withLock { ($0.rules.count, $0.rules.coveredCount) }
    }
}

/// Keeps a handler in place; its end of life, or ``cancel()``, removes it.
public final class Observation: Sendable {
    private let remove: Locked<(@Sendable () -> Void)?>

    init(_ remove: @escaping @Sendable () -> Void) { self.remove = Locked(remove) }

    deinit { cancel() }

    /// Removes the handler, once. A call under way on the reading thread is not waited for.
    public func cancel() {
        remove.withLock { remove -> (@Sendable () -> Void)? in
            defer { remove = nil }
            return remove
        }?()
    }
}

/// Keeps a match rule in force; its end of life gives it back.
public final class MatchRuleLease: Sendable {
    private let rule: MatchRule
    private let core: ConnectionCore

    init(_ rule: MatchRule, _ core: ConnectionCore) {
        self.rule = core.state.withLock { $0.rules.shared(rule) }
        self.core = core
    }

    deinit { core.release(rule) }
}
