import Basics
import Synchronization

/// A connection to a message bus.
///
/// Any thread can send, and the message leaves at once. A dedicated thread, which blocks all signals, reads the
/// connection and runs the handlers; they must return soon. A handler that waits for the bus would wait for itself:
/// functions that block throw ``DBusError/Code/wouldDeadlock`` there, but sending works, and so do the async forms in a
/// task.
///
/// When the bus comes back after a loss, bus names, match rules and objects are restored, and ``onEvent(_:)`` reports
/// it. The release of the last reference closes the connection.
public final class DBusConnection: Sendable {
    let core: ConnectionCore

    private init(core: ConnectionCore) { self.core = core }

    deinit { core.close() }

    /// Connects. Waits for the bus to respond, which takes well under a millisecond if it is healthy, and 25 seconds at
    /// most. Blocks the calling thread.
    ///
    /// - Throws: ``DBusError/Code/noBus`` if there is no bus, it refuses this user, or it does not respond;
    ///   ``DBusError/Code/invalidArgument`` for a text that is not an address; ``DBusError/Code/noResources``.
    public static func open(_ bus: Bus = .fromEnvironment) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus, connects: true))
    }

    /// Connects as ``open(_:)`` does, until `deadline` at the latest.
    public static func open(_ bus: Bus, by deadline: ContinuousClock.Instant) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus, connects: true, by: deadline))
    }

    /// Returns a connection that connects with its first use.
    ///
    /// If a use finds no bus, it throws ``DBusError/Code/noBus``, and the next use tries again. Once there is a match
    /// rule or an event handler, the reading thread tries until there is a bus.
    ///
    /// - Throws: ``DBusError/Code/noResources`` if the process has no descriptor left.
    public static func whenThere(_ bus: Bus) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus, connects: false))
    }

    /// Connects if that has not happened yet, without holding a thread of the concurrency pool.
    ///
    /// - Throws: as ``open(_:)``; ``DBusError/Code/disconnected`` if there was a bus before. Does not throw during an
    ///   outage that the reading thread handles.
    public func connect() async throws(DBusError) { try await core.connectAside("connect to the bus") }

    /// Connects as the form without a deadline does, but blocks the calling thread. If there is a reading thread, which
    /// handles outages, this does not wait.
    ///
    /// - Throws: as the other form; ``DBusError/Code/disconnected`` and ``DBusError/Code/noBus`` also during an outage
    ///   that the reading thread handles.
    public func connect(by deadline: ContinuousClock.Instant) throws(DBusError) {
        _ = try core.socket("connect to the bus", by: deadline)
    }

    /// The requested bus.
    public var bus: Bus { core.bus }

    /// Returns the bus's address. Works in a forked child, whose ``ForkedPoster`` connects to it.
    ///
    /// - Throws: as ``Bus/resolvedAddress()``.
    public func busAddress() throws(DBusError) -> String { try core.resolvedAddress() }

    /// The name that the bus assigned to this connection (`:1.42`); `nil` while the bus is lost.
    public var uniqueName: String? { core.connectedSocket?.uniqueName }

    /// Closes the connection, from any thread and without waiting.
    ///
    /// Pending calls fail with ``DBusError/Code/closed``. No handler call begins any more; a handler call in progress
    /// continues. The reading thread lets the bus read all sent messages, 2 s at most. A second call has no effect.
    public func close() { core.close() }

    // MARK: Messages

    /// Sends a message that needs no response. On return the kernel has the message.
    ///
    /// A process that ends by `exit` or by returning from `main` waits until the bus has read it, 2 s at most. Before
    /// `_exit` or a signal, use ``flush(timeout:)``. This waits for a bus that does not keep up, except on the reading
    /// thread.
    ///
    /// - Throws: ``DBusError/Code/disconnected``, ``DBusError/Code/noBus``, ``DBusError/Code/closed``;
    ///   ``DBusError/Code/timedOut`` after 30 seconds with a bus that does not read: the bus may still get the message
    ///   then; ``DBusError/Code/limitsExceeded`` if 64 MiB of responses and other threads' messages are already queued
    ///   for the bus; ``DBusError/Code/noResources``.
    public func send(_ message: borrowing DBusMessage) throws(DBusError) {
        try core.send(message)
    }

    /// Sends a copy of a message that other threads may send at the same time; otherwise as ``send(_:)``.
    public func send(copyOf message: borrowing DBusMessage) throws(DBusError) { try core.send(message, copies: true) }

    /// Sends as ``send(_:)`` does, but never waits: the reading thread later writes what the socket does not accept at
    /// once. For a connection that has a reading thread. The caller may hold a lock.
    ///
    /// - Throws: ``DBusError/Code/disconnected``, ``DBusError/Code/closed``; ``DBusError/Code/limitsExceeded`` if the
    ///   bus has left 64 MiB unread.
    public func queue(_ message: borrowing DBusMessage) throws(DBusError) { try core.queue(message) }

    /// Waits until the bus has read everything that this connection sent before, and this process has read everything
    /// that the bus had sent by then. Afterwards the handlers have seen the process's own signals. Blocks the calling
    /// thread.
    ///
    /// - Throws: as ``callAndWait(_:timeout:)``.
    public func flush(timeout: Duration = .seconds(25)) throws(DBusError) {
        _ = try callAndWait(taking: try .busCall("GetId"), timeout: timeout)
    }

    /// Flushes as the blocking form does, without holding a thread.
    ///
    /// - Throws: as ``call(_:timeout:)``.
    public func flush(timeout: Duration = .seconds(25)) async throws(DBusError) {
        _ = try await call(try .busCall("GetId"), timeout: timeout)
    }

    /// Calls a method and waits for the response, without holding a thread. Connecting first may take 25 seconds more;
    /// both together end after 30 seconds, or after `timeout` if that is longer.
    ///
    /// - Throws: ``DBusError/Code/refused`` with the peer's error name, ``DBusError/Code/timedOut``,
    ///   ``DBusError/Code/cancelled`` if the task is cancelled, ``DBusError/Code/disconnected`` if the bus is lost
    ///   during the call, ``DBusError/Code/limitsExceeded`` if the bus or the peer reports it,
    ///   ``DBusError/Code/malformed`` for a response that cannot be decoded; ``DBusError/Code/noBus``,
    ///   ``DBusError/Code/closed``, ``DBusError/Code/noResources``.
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
                // If the task was cancelled before the call was inserted, the handler found nothing to cancel.
                if Task.isCancelled { core.cancelCall(serial: serial) }
            }
        } onCancel: {
            core.cancelCall(serial: serial)
        }
        return try result.get()
    }

    /// The deadline for a response. Connecting and waiting together take 30 seconds at most, or the timeout if that is
    /// longer.
    private static func deadline(_ timeout: Duration, since began: ContinuousClock.Instant) -> ContinuousClock.Instant {
        min(.now + timeout, began + max(timeout, .seconds(30)))
    }

    /// Calls a method as ``call(_:timeout:)`` does, but a cancelled task keeps waiting.
    public func callUncancelled(
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

    /// Calls a method. `answered` is called on the reading thread, in the bus's order with other messages. If the call
    /// cannot be sent, it is called at once on this thread.
    ///
    /// - Parameter largestAnswer: the largest body of a response, in bytes. A larger one is not read, and the call
    ///   fails with ``DBusError/Code/limitsExceeded``. 32 MiB by default.
    public func call(
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

    /// Calls a method and blocks this thread until the response arrives.
    ///
    /// - Throws: as ``call(_:timeout:)``, except for cancellation; ``DBusError/Code/wouldDeadlock`` on the reading
    ///   thread, before anything is sent.
    public func callAndWait(
        _ message: borrowing DBusMessage,
        timeout: Duration = .seconds(25)
    ) throws(DBusError) -> [DBusValue] {
        // A copy, because other threads may send the same message at the same time, and each call needs a new serial.
        try callAndWait(taking: try message.copy(), timeout: timeout)
    }

    /// Calls a method as ``callAndWait(_:timeout:)`` does, and takes the message over instead of copying it.
    public func callAndWait(
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

    /// Calls `handler` for every signal that arrives, in the bus's order, on the reading thread.
    ///
    /// The match rules decide which signals arrive (``addMatch(_:fallback:timeout:)``); a handler sees the signals of
    /// all rules of the connection. A signal over 8 MiB is not read. A signal over 64 KiB to this connection alone is
    /// read only if the bus sends it or the library expects it.
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

    /// Lets large signals from `sender` to this connection alone be read, until the bus is lost. Applies to the latest
    /// four senders.
    public func expectSignals(from sender: String) {
        guard !core.isForeign else { return }
        core.state.withLock { state in
            state.signalSenders.removeAll { $0 == sender }
            state.signalSenders.append(sender)
            state.signalSenders = state.signalSenders.suffix(4)
        }
    }

    /// Calls `handler` on the reading thread when the bus is lost and when it is back. The returned observation keeps
    /// the handler registered.
    ///
    /// If the connection was never made, this thread first waits for the bus once, 25 seconds at most. The reading
    /// thread then tries until there is a bus.
    ///
    /// - Throws: ``DBusError/Code/noResources`` if the reading thread cannot be started; ``DBusError/Code/closed`` in a
    ///   forked child.
    public func onEvent(
        _ handler: @escaping @Sendable (ConnectionEvent) -> Void
    ) throws(DBusError) -> Observation {
        try core.checkProcess("watch the connection")
        // Connects if needed. Otherwise the reading thread would connect later, and this thread's next call would fail.
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
        // Last, so that the handler learns of the first connection that the reading thread makes.
        try core.startReading()
        return observation
    }

    /// Lets the reading thread find a lost bus: from here on, calls on this connection do not wait for a bus.
    ///
    /// - Throws: ``DBusError/Code/noResources`` if the thread cannot be started.
    public func reconnectOnReadingThread() throws(DBusError) {
        try core.checkProcess("reconnect to the bus")
        try core.startReading()
    }

    /// Runs `job` on the reading thread, between two messages and in the order of the calls, even while the bus is
    /// lost. The thread exists from the first registration or call on; a closed connection runs no job.
    public func perform(_ job: @escaping @Sendable () -> Void) { core.perform(job) }

    /// Whether this is the reading thread, for an actor that lives there.
    public var isOnReadingThread: Bool { core.isOnReadingThread }

    // MARK: Looking in

    /// A connection's counters.
    public struct Statistics: Sendable, Hashable {
        /// The number of different rules in use.
        public let matchRules: Int
        /// The number of rules that a broader rule replaces, because the bus refused more rules.
        public let coveredMatchRules: Int
        /// The number of rules that are not in force: the bus is lost, has refused them, or has not responded yet.
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

    /// A snapshot of the counters; all zero in a forked child, which has no connection.
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

/// Keeps a registration, such as a handler, in place. Its deallocation or ``cancel()`` removes it.
public final class Observation: Sendable {
    private let process = ForkedChild.Process()
    private let remove: Locked<(@Sendable () -> Void)?>

    public init(_ remove: @escaping @Sendable () -> Void) { self.remove = Locked(remove) }

    deinit { cancel() }

    /// Removes the registration, once. Does not wait for a call in progress on the reading thread.
    public func cancel() {
        // In a forked child another thread of the parent may have held the lock.
        guard process.isCurrent else { return }
        remove.withLock { remove -> (@Sendable () -> Void)? in
            defer { remove = nil }
            return remove
        }?()
    }
}

/// Keeps a match rule in force until its deallocation.
public final class MatchRuleLease: Sendable {
    // `nil` if the connection had ended.
    private let handle: Int?
    private let core: ConnectionCore

    init(_ handle: Int?, _ core: ConnectionCore) {
        self.handle = handle
        self.core = core
    }

    deinit { if let handle { core.release(handle) } }
}
