import Synchronization

/// A connection to a message bus.
///
/// Sends from any thread, at once. One thread of its own reads, with all signals blocked; handlers run there and must
/// return soon. A handler that waited there for the bus would wait for itself: functions that block throw
/// ``DBusError/Code/wouldDeadlock`` there, while sending and the async forms in a task work. When the bus is lost and comes back, bus names, match rules and objects are put in place again, and
/// ``onEvent(_:)`` tells. The end of the last reference closes the connection.
public final class DBusConnection: Sendable {
    let core: ConnectionCore

    private init(core: ConnectionCore) { self.core = core }

    deinit { core.close() }

    /// Connects. Waits for the bus to answer, which takes well under a millisecond on a healthy one, and 25 seconds at most.
    /// Blocks the calling thread.
    ///
    /// - Throws: ``DBusError/Code/noBus`` where there is none, it refuses this user, or it does not answer; ``DBusError/Code/invalidArgument`` for a text
    ///   that is no address; ``DBusError/Code/noResources``.
    public static func open(_ bus: Bus = .fromEnvironment) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus, connects: true))
    }

    /// The same, until `deadline` at the latest.
    package static func open(_ bus: Bus, by deadline: ContinuousClock.Instant) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus, connects: true, by: deadline))
    }

    /// A connection that connects with its first use. Where a use finds no bus, it throws ``DBusError/Code/noBus``, and the next one tries
    /// again; once something keeps a match rule or watches the connection, its reading thread tries until there is a bus.
    ///
    /// - Throws: ``DBusError/Code/noResources`` where the process has no descriptor left.
    package static func whenThere(_ bus: Bus) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus, connects: false))
    }

    /// Connects where nobody did so far, without holding a thread that tasks share.
    ///
    /// - Throws: as ``open(_:)``; ``DBusError/Code/disconnected`` where the bus was there before. An outage that the reading thread sees to
    ///   throws nothing.
    package func connect() async throws(DBusError) { try await core.connectAside("connect to the bus") }

    /// As the form without a deadline, but blocks the calling thread. On the reading thread, which sees to an outage itself, it does not wait.
    ///
    /// - Throws: as the other form; ``DBusError/Code/disconnected`` and ``DBusError/Code/noBus`` also in an outage that the reading thread sees to.
    package func connect(by deadline: ContinuousClock.Instant) throws(DBusError) {
        _ = try core.socket("connect to the bus", by: deadline)
    }

    /// The bus that was asked for.
    public var bus: Bus { core.bus }

    /// Where the bus is, also in a forked child, whose ``ForkedPoster`` connects to it.
    ///
    /// - Throws: as ``Bus/resolvedAddress()``.
    package func busAddress() throws(DBusError) -> String { try core.resolvedAddress() }

    /// The name that the bus gave this connection (`:1.42`); `nil` while the bus is lost.
    public var uniqueName: String? { core.connectedSocket?.uniqueName }

    /// Closes, from any thread and without waiting: calls that wait fail with ``DBusError/Code/closed``, and no call of a handler begins; one under
    /// way goes on. The reading thread still lets the bus read what was sent, 2 s at most. A second call has no effect.
    public func close() { core.close() }

    // MARK: Messages

    /// Sends a message that needs no answer. When it returns the kernel has the message. A process that ends by `exit` or
    /// by returning from `main` waits until the bus has read it, 2 s at most; before `_exit` or a signal, ``flush(timeout:)`` makes sure.
    ///
    /// A bus that does not keep up makes it wait. Called on the reading thread it does not wait.
    ///
    /// - Throws: ``DBusError/Code/disconnected``, ``DBusError/Code/noBus``, ``DBusError/Code/closed``;
    ///   ``DBusError/Code/timedOut`` after 30 seconds with a bus that does not read: the bus may still get the message then;
    ///   ``DBusError/Code/limitsExceeded`` where 64 MiB already wait that the bus has not read: answers, and messages of other threads;
    ///   ``DBusError/Code/noResources``.
    public func send(_ message: borrowing DBusMessage) throws(DBusError) {
        try core.send(message)
    }

    /// As ``send(_:)``, for a message that others may send at the same time: each of them sends a copy.
    package func send(copyOf message: borrowing DBusMessage) throws(DBusError) { try core.send(message, copies: true) }

    /// As ``send(_:)``, but never waits: what the socket does not take at once, the reading thread writes later. For a connection that
    /// has a reading thread; a lock may be held.
    ///
    /// - Throws: ``DBusError/Code/disconnected``, ``DBusError/Code/closed``; ``DBusError/Code/limitsExceeded`` where the bus has not read
    ///   64 MiB.
    package func queue(_ message: borrowing DBusMessage) throws(DBusError) { try core.queue(message) }

    /// Waits until the bus has read everything that this connection sent before, and this process everything that the bus had sent it
    /// by then: afterwards the handlers have seen the process's own signals. Blocks the calling thread.
    ///
    /// - Throws: as ``callAndWait(_:timeout:)``.
    public func flush(timeout: Duration = .seconds(25)) throws(DBusError) {
        _ = try callAndWait(taking: try .busCall("GetId"), timeout: timeout)
    }

    /// As the blocking form, without holding a thread.
    ///
    /// - Throws: as ``call(_:timeout:)``.
    public func flush(timeout: Duration = .seconds(25)) async throws(DBusError) {
        _ = try await call(try .busCall("GetId"), timeout: timeout)
    }

    /// Calls a method and waits for the answer, without holding a thread. If the bus has to be found first, that may take 25 seconds more;
    /// both together end after 30 seconds, or after `timeout` if that is longer.
    ///
    /// - Throws: ``DBusError/Code/refused`` with the peer's error name, ``DBusError/Code/timedOut``,
    ///   ``DBusError/Code/cancelled`` when the task is, ``DBusError/Code/disconnected`` when the bus is lost meanwhile,
    ///   ``DBusError/Code/limitsExceeded`` when the bus or the peer says so, ``DBusError/Code/malformed`` for an answer that cannot be read;
    ///   ``DBusError/Code/noBus``, ``DBusError/Code/closed``, ``DBusError/Code/noResources``.
    public func call(
        _ message: consuming DBusMessage,
        timeout: Duration = .seconds(25)
    ) async throws(DBusError) -> [DBusValue] {
        let began = ContinuousClock.now
        try await core.connectAside(ConnectionCore.attempt(message))
        let deadline = Self.deadline(timeout, since: began)
        let (core, serial) = (core, core.takeSerial())
        let held = HeldMessage(try message.unsent())
        let result: Result<[DBusValue], DBusError> = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let call = PendingCall(held.message.sharedReference(), deadline: deadline) {
                    continuation.resume(returning: $0)
                }
                core.startCall(call, serial: serial)
                // Cancelled before the call was known, the handler found nothing to cancel.
                if Task.isCancelled { core.cancelCall(serial: serial) }
            }
        } onCancel: {
            core.cancelCall(serial: serial)
        }
        return try result.get()
    }

    /// When the wait for an answer ends. It is bounded together with the search for the bus: by 30 seconds, or by the timeout if that is longer.
    private static func deadline(_ timeout: Duration, since began: ContinuousClock.Instant) -> ContinuousClock.Instant {
        min(.now + timeout, began + max(timeout, .seconds(30)))
    }

    /// As ``call(_:timeout:)``, but a task that is cancelled waits for the answer all the same.
    package func callUncancelled(
        _ message: consuming DBusMessage,
        timeout: Duration = .seconds(25)
    ) async throws(DBusError) -> [DBusValue] {
        let began = ContinuousClock.now
        try await core.connectAside(ConnectionCore.attempt(message))
        let deadline = Self.deadline(timeout, since: began)
        let held = HeldMessage(message)
        let result: Result<[DBusValue], DBusError> = await withCheckedContinuation { continuation in
            call(held.message.sharedReference(), timeout: deadline - .now) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }

    /// Calls a method; `answered` is told on the reading thread what became of it, in the bus's order with what else arrives. Where the
    /// call cannot be sent, it is told so at once, on this thread.
    ///
    /// - Parameter largestAnswer: the largest body of an answer, in bytes. A larger one is not read, and fails with
    ///   ``DBusError/Code/limitsExceeded``. 32 MiB by default.
    package func call(
        _ message: consuming DBusMessage,
        timeout: Duration? = .seconds(25),
        largestAnswer: Int? = nil,
        answered: @escaping @Sendable (Result<[DBusValue], DBusError>) -> Void
    ) {
        do throws(DBusError) {
            let call = PendingCall(
                try message.unsent(),
                deadline: timeout.map { .now + $0 },
                largestAnswer: largestAnswer ?? PendingCall.largestAnswer,
                waiter: answered
            )
            core.startCall(call, serial: core.takeSerial())
        } catch {
            answered(.failure(error))
        }
    }

    /// Calls a method and blocks this thread until the answer is there.
    ///
    /// - Throws: as ``call(_:timeout:)``, but for cancellation; ``DBusError/Code/wouldDeadlock`` at once, before anything is sent, on the
    ///   reading thread.
    public func callAndWait(
        _ message: borrowing DBusMessage,
        timeout: Duration = .seconds(25)
    ) throws(DBusError) -> [DBusValue] {
        // A copy, because others may send the same message at the same time, and each call needs a serial of its own.
        try callAndWait(taking: try message.copy(), timeout: timeout)
    }

    /// The same with a message of the caller's own.
    package func callAndWait(
        taking message: consuming DBusMessage,
        timeout: Duration = .seconds(25)
    ) throws(DBusError) -> [DBusValue] {
        let core = core
        try core.checkWaiting(ConnectionCore.attempt(message))
        let held = HeldMessage(try message.unsent())
        let (deadline, serial) = (ContinuousClock.now + timeout, core.takeSerial())
        let result: Result<[DBusValue], DBusError> = core.wait(
            until: deadline,
            late: {
                core.forgetCall(serial: serial)
                return .failure(.noAnswer(ConnectionCore.attempt(held.message)))
            },
            start: { answered in
                let call = PendingCall(
                    held.message.sharedReference(),
                    deadline: deadline,
                    waiter: answered
                )
                core.startCall(call, serial: serial)
            }
        )
        return try result.get()
    }

    /// Calls `handler` for every signal that arrives, in the bus's order, on the reading thread. The match rules decide which signals
    /// arrive (``addMatch(_:fallback:timeout:)``); a handler sees those of all rules of the connection. A signal of over 8 MiB is not read,
    /// nor is one of over 64 KiB that is for this connection alone, unless the bus sends it or the library expects it.
    public func onSignal(_ handler: @escaping @Sendable (borrowing DBusMessage) -> Void) -> Observation {
        let core = core
        guard !core.isForeign else { return Observation {} }
        let id = core.state.withLock { state -> UInt64 in
            let id = state.takeID()
            state.signalHandlers.append(ConnectionCore.Listener(id: id, call: handler))
            return id
        }
        core.handlerGeneration.wrappingAdd(1, ordering: .releasing)
        return Observation { [weak core] in
            core?.discard { state in
                defer { state.signalHandlers.removeAll { $0.id == id } }
                return state.signalHandlers
            }
        }
    }

    /// Has large signals of this connection read that are for this one alone, until the bus is lost. The latest four count.
    package func expectSignals(from sender: String) {
        guard !core.isForeign else { return }
        core.state.withLock { state in
            state.signalSenders.removeAll { $0 == sender }
            state.signalSenders.append(sender)
            state.signalSenders = state.signalSenders.suffix(4)
        }
    }

    /// Calls `handler` on the reading thread when the bus is lost and when it is back. On a connection that was never made, this has the
    /// reading thread try until there is a bus, after this thread has waited for it once, 25 seconds at most. The returned observation keeps the
    /// handler in place.
    ///
    /// - Throws: ``DBusError/Code/noResources`` where no thread can be started to notice it; ``DBusError/Code/closed`` in a forked child.
    public func onEvent(
        _ handler: @escaping @Sendable (ConnectionEvent) -> Void
    ) throws(DBusError) -> Observation {
        try core.checkProcess("watch the connection")
        // Connects where nobody did so far. Otherwise the reading thread would connect later, and this thread's next call would fail.
        _ = try? core.socket("watch the connection")
        let core = core
        let id = core.state.withLock { state -> UInt64 in
            let id = state.takeID()
            state.eventHandlers[id] = handler
            return id
        }
        let observation = Observation { [weak core] in
            core?.discard { $0.eventHandlers.removeValue(forKey: id) }
        }
        // Last, so that it tells the handler of the first connection that it makes.
        try core.startReading()
        return observation
    }

    /// Leaves it to the reading thread to find a bus that was lost: calls on this connection wait for no bus from here on.
    ///
    /// - Throws: ``DBusError/Code/noResources`` where no thread can be started for it.
    package func reconnectOnReadingThread() throws(DBusError) {
        try core.checkProcess("reconnect to the bus")
        try core.startReading()
    }

    /// Calls `job` on the reading thread, between two messages and in the order of asking, also while the bus is lost. That
    /// thread is there from the first registration or call on; a closed connection calls nothing.
    public func perform(_ job: @escaping @Sendable () -> Void) { core.perform(job) }

    /// Whether this is the reading thread, for an actor that lives there.
    package var isOnReadingThread: Bool { core.isOnReadingThread }

    // MARK: Looking in

    /// What a connection has gone through, and what it asks of the bus.
    public struct Statistics: Sendable, Hashable {
        /// Different rules in use.
        public let matchRules: Int
        /// Those of them that a broader rule stands in for, because the bus refused more rules.
        public let coveredMatchRules: Int
        /// Those of them that are not in force: the bus is lost, has refused them, or has not answered so far.
        public let matchRulesNotInForce: Int
        /// How often the bus was lost and found again.
        public let reconnections: UInt64

        static let none = Statistics(
            matchRules: 0,
            coveredMatchRules: 0,
            matchRulesNotInForce: 0,
            reconnections: 0
        )
    }

    /// A snapshot; of a forked child, which has no connection, all zero.
    public var statistics: Statistics {
        let core = core
        // Another thread may have held the lock when the process forked.
        guard !core.isForeign else { return .none }
        return core.state.withLock { state in
            Statistics(
                matchRules: state.rules.count,
                coveredMatchRules: state.rules.coveredCount,
                matchRulesNotInForce: state.rules.notInForceCount,
                reconnections: state.reconnections
            )
        }
    }
}

/// Keeps something in place, a handler for instance; its end of life, or ``cancel()``, removes it.
public final class Observation: Sendable {
    private let process = ForkedChild.Process()
    private let remove: Locked<(@Sendable () -> Void)?>

    package init(_ remove: @escaping @Sendable () -> Void) { self.remove = Locked(remove) }

    deinit { cancel() }

    /// Removes it, once. A call under way on the reading thread is not waited for.
    public func cancel() {
        // In a forked child another thread of the parent's may have held the lock.
        guard process.isCurrent else { return }
        remove.withLock { remove -> (@Sendable () -> Void)? in
            defer { remove = nil }
            return remove
        }?()
    }
}

/// Keeps a match rule in force; its end of life gives it back.
public final class MatchRuleLease: Sendable {
    // `nil` where the connection had ended.
    private let handle: Int?
    private let core: ConnectionCore

    init(_ handle: Int?, _ core: ConnectionCore) {
        self.handle = handle
        self.core = core
    }

    deinit { if let handle { core.release(handle) } }
}
