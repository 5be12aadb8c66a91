import Basics
import Glibc
import Synchronization

/// A connection to a message bus. The release of the last reference closes it.
///
/// Any thread can send, and the message leaves at once. A dedicated quiet thread reads the connection and runs the
/// handlers, which must return soon. There, functions that block throw ``DBusError/Code/wouldDeadlock``; sending works,
/// and so do the async forms in a task.
///
/// When the bus comes back after a loss, bus names, match rules and objects are restored, and ``onEvent(_:)`` reports
/// it.
public final class DBusConnection: Sendable {
    let core: ConnectionCore

    private init(core: ConnectionCore) { self.core = core }

    deinit { core.close() }

    /// Connects. Blocks the calling thread until the bus responds, until `deadline`, and 25 seconds at most.
    ///
    /// - Throws: ``DBusError/Code/noBus`` if there is no bus, it refuses this user, or it does not respond;
    ///   ``DBusError/Code/invalidArgument`` for a text that is not an address; ``DBusError/Code/noResources``.
    public static func open(
        _ bus: Bus = .fromEnvironment,
        by deadline: ContinuousClock.Instant? = nil
    ) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus, connects: true, by: deadline))
    }

    /// Returns a connection that connects with its first use. A use that finds no bus throws ``DBusError/Code/noBus``,
    /// and the next use tries again. Once there is a match rule or an event handler, the reading thread tries until
    /// there is a bus.
    ///
    /// - Throws: ``DBusError/Code/noResources`` if the process has no descriptor left.
    public static func whenThere(_ bus: Bus) throws(DBusError) -> DBusConnection {
        DBusConnection(core: try ConnectionCore(bus: bus, connects: false))
    }

    /// Connects if that has not happened yet, without holding a thread of the concurrency pool.
    ///
    /// - Throws: as ``open(_:by:)``; ``DBusError/Code/disconnected`` if there was a bus before. Does not throw during
    ///   an outage that the reading thread handles.
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

    /// Sends a message that needs no response. On return the kernel has the message. Waits for a bus that does not keep
    /// up, except on the reading thread.
    ///
    /// A process that ends by `exit` or by returning from `main` waits until the bus has read it, 2 s at most. Before
    /// `_exit` or a signal, use ``flush(timeout:)``.
    ///
    /// - Throws: ``DBusError/Code/disconnected``, ``DBusError/Code/noBus``, ``DBusError/Code/closed``;
    ///   ``DBusError/Code/timedOut`` after 30 seconds with a bus that does not read: the bus may still get the message
    ///   then; ``DBusError/Code/limitsExceeded`` if 64 MiB of responses and other threads' messages are already queued
    ///   for the bus; ``DBusError/Code/noResources``.
    public func send(_ message: borrowing DBusMessage) throws(DBusError) { try core.send(message) }

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
        _ = try callAndWait(try .busCall("GetId"), timeout: timeout)
    }

    /// Flushes as the blocking form does, without holding a thread.
    ///
    /// - Throws: as ``call(_:timeout:isCancellable:)``.
    public func flush(timeout: Duration = .seconds(25)) async throws(DBusError) {
        _ = try await call(try .busCall("GetId"), timeout: timeout)
    }

    /// Calls a method and waits for the response, without holding a thread. Connecting first may take 25 seconds more;
    /// both together end after 30 seconds, or after `timeout` if that is longer.
    ///
    /// - Parameter isCancellable: whether a cancelled task stops waiting.
    /// - Throws: ``DBusError/Code/refused`` with the peer's error name, ``DBusError/Code/timedOut``,
    ///   ``DBusError/Code/cancelled`` if the task is cancelled, ``DBusError/Code/disconnected`` if the bus is lost
    ///   during the call, ``DBusError/Code/limitsExceeded`` if the bus or the peer reports it,
    ///   ``DBusError/Code/malformed`` for a response that cannot be decoded; ``DBusError/Code/noBus``,
    ///   ``DBusError/Code/closed``, ``DBusError/Code/noResources``.
    public func call(
        _ message: consuming DBusMessage,
        timeout: Duration = .seconds(25),
        isCancellable: Bool = true
    ) async throws(DBusError) -> [DBusValue] {
        let began = ContinuousClock.now
        try await core.connectAside(ConnectionCore.attempt(message))
        // Connecting and waiting together take 30 seconds at most, or the timeout if that is longer.
        let deadline = min(.now + timeout, began + max(timeout, .seconds(30)))
        let core = core
        let held = HeldMessage(try message.unsent())
        let result: Result<[DBusValue], DBusError> = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let call = PendingCall(held.message.sharedReference(), deadline: deadline) {
                    continuation.resume(returning: $0)
                }
                core.startCall(call)
                // If the task was cancelled before the call was inserted, the handler found nothing to cancel.
                if isCancellable, Task.isCancelled { core.cancelCall(held.message) }
            }
        } onCancel: {
            if isCancellable { core.cancelCall(held.message) }
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
            core.startCall(call)
        } catch {
            answered(.failure(error))
        }
    }

    /// Calls a method and blocks this thread until the response arrives.
    ///
    /// - Throws: as ``call(_:timeout:isCancellable:)``, except for cancellation; ``DBusError/Code/wouldDeadlock`` on
    ///   the reading thread, before anything is sent.
    public func callAndWait(
        _ message: consuming DBusMessage,
        timeout: Duration = .seconds(25)
    ) throws(DBusError) -> [DBusValue] {
        let core = core
        try core.checkWaiting(ConnectionCore.attempt(message))
        let held = HeldMessage(try message.unsent())
        let deadline = ContinuousClock.now + timeout
        let result: Result<[DBusValue], DBusError> = core.wait(
            until: deadline,
            late: {
                core.forgetCall(held.message)
                return .failure(.noAnswer(ConnectionCore.attempt(held.message)))
            },
            start: { answered in
                let call = PendingCall(held.message.sharedReference(), deadline: deadline, waiter: answered)
                core.startCall(call)
            }
        )
        return try result.get()
    }

    /// Calls `handler` for every signal that arrives, in the bus's order, on the reading thread: a handler sees the
    /// signals of all match rules of the connection (``addMatch(_:fallback:timeout:)``).
    ///
    /// A signal over 8 MiB is not read. A signal over 64 KiB to this connection alone is read only if the bus sends it
    /// or the library expects it.
    public func onSignal(_ handler: @escaping @Sendable (borrowing DBusMessage) -> Void) -> Observation {
        let core = core
        guard !core.isForeign else { return Observation {} }
        let id = core.state.withLock { state -> UInt64 in
            let id = state.takeID()
            state.signalHandlers.append(ConnectionCore.Listener(id: id, call: handler))
            return id
        }
        core.handlerGeneration.wrappingAdd(1, ordering: .releasing)
        return Observation { [weak core] in core?.removeHandler(id) }
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

    /// Calls `handler` on the reading thread when the bus is lost and when it is back, until the observation ends.
    ///
    /// If the connection was never made, this thread first waits for the bus once, 25 seconds at most. The reading
    /// thread then tries until there is a bus.
    ///
    /// - Throws: ``DBusError/Code/noResources`` if the reading thread cannot be started; ``DBusError/Code/closed`` in a
    ///   forked child.
    public func onEvent(_ handler: @escaping @Sendable (ConnectionEvent) -> Void) throws(DBusError) -> Observation {
        try core.checkProcess("watch the connection")
        // Connects if needed. Otherwise the reading thread would connect later, and this thread's next call would fail.
        _ = try? core.socket("watch the connection")
        let core = core
        let id = core.state.withLock { state -> UInt64 in
            let id = state.takeID()
            state.eventHandlers.append(ConnectionCore.EventListener(id: id, call: handler))
            return id
        }
        let observation = Observation { [weak core] in core?.removeHandler(id) }
        // Started last, so that the handler learns of the first connection that the reading thread makes.
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

    // MARK: Counters

    /// A connection's counters.
    public struct Statistics: Sendable, Hashable {
        /// The number of different rules in use.
        public let matchRules: Int
        /// The number of rules that a broader rule replaces, because the bus refused more rules.
        public let coveredMatchRules: Int
        /// The number of rules that are not in force: the bus is lost, has refused them, or has not responded yet.
        public let matchRulesNotInForce: Int
        /// The number of times that the connection was made again after the bus was lost.
        public let reconnections: UInt64
    }

    /// A snapshot of the counters; all zero in a forked child, which has no connection.
    public var statistics: Statistics {
        let core = core
        // Another thread may have held the lock when the process forked.
        guard !core.isForeign else {
            return Statistics(matchRules: 0, coveredMatchRules: 0, matchRulesNotInForce: 0, reconnections: 0)
        }
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
        remove.withLock { $0.take() }?()
    }
}

/// Keeps a match rule in force until its deallocation.
public final class MatchRuleLease: Sendable {
    // `nil` if the connection had ended.
    private let handle: Int?
    private let core: ConnectionCore

    init(_ handle: Int?, _ core: ConnectionCore) { (self.handle, self.core) = (handle, core) }

    deinit { if let handle { core.release(handle) } }
}

extension DBusConnection {
    /// Subscribes to the messages that match `rule`, until the lease ends. The rule is in force on return. Blocks the
    /// calling thread, for 25 seconds at most.
    ///
    /// Equal rules of one connection are shared: the thousandth lease of a rule costs nothing on the bus.
    ///
    /// - Parameters:
    ///   - fallback: a broader rule that replaces `rule` if the bus refuses further rules.
    ///   - timeout: how long to wait, if that is less than 25 seconds.
    /// - Throws: ``DBusError/Code/limitsExceeded`` if the bus has no room for the fallback either;
    ///   ``DBusError/Code/refused`` for a rule that the bus rejects; ``DBusError/Code/timedOut``;
    ///   ``DBusError/Code/noBus``; ``DBusError/Code/disconnected``; ``DBusError/Code/closed``;
    ///   ``DBusError/Code/noResources``; ``DBusError/Code/wouldDeadlock`` on the reading thread, on which
    ///   ``addMatchInOrder(_:fallback:failed:)`` works without waiting. After an error the rule is not kept.
    public func addMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        timeout: Duration = .seconds(25)
    ) throws(DBusError) -> MatchRuleLease {
        let core = core
        try core.checkWaiting("add the match rule \(rule)")
        var lease: MatchRuleLease?
        let deadline = ContinuousClock.now + min(timeout, core.state.withLock { $0.ruleTimeout })
        let error: DBusError? = core.wait(
            until: deadline,
            late: { .noAnswer("add the match rule \(rule)") },
            start: { waiter in
                let handle = core.retain(rule, fallback: fallback, by: deadline, waiter: waiter)
                lease = handle.map { MatchRuleLease($0, core) }
            }
        )
        guard error == nil, let lease else { throw error ?? .closed("add the match rule \(rule)") }
        return lease
    }

    /// Subscribes as the blocking form does, without holding a thread. If a handler blocks the reading thread, this
    /// waits for it, too. A cancelled task keeps waiting.
    ///
    /// - Parameter timeout: how long to wait for the rule, counted from the call. Connecting first may take 25 seconds
    ///   more, and so may a fallback.
    /// - Throws: as the blocking form.
    public func addMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(DBusError) -> MatchRuleLease {
        let core = core
        let deadline = ContinuousClock.now + timeout
        try await core.connectAside("add the match rule \(rule)")
        // With more time, the rule's own timeout comes first, and ten thousand simultaneous registrations need no
        // timers.
        let needsTimer = deadline - .now < .seconds(25)
        let held = Locked<MatchRuleLease?>(nil)
        let error = await withCheckedContinuation { continuation in
            var waiter: MatchRuleTable.Waiter = { continuation.resume(returning: $0) }
            if needsTimer {
                let waiting = Locked<CheckedContinuation<DBusError?, Never>?>(continuation)
                waiter = { error in waiting.withLock { $0.take() }?.resume(returning: error) }
                Task { [waiter] in
                    try? await Task.sleep(until: deadline)
                    waiter(.noAnswer("add the match rule \(rule)"))
                }
            }
            let handle = core.retain(rule, fallback: fallback, waiter: waiter)
            held.withLock { $0 = handle.map { MatchRuleLease($0, core) } }
        }
        guard error == nil, let lease = held.withLock({ $0 }) else {
            throw error ?? .closed("add the match rule \(rule)")
        }
        return lease
    }

    /// Subscribes as the blocking form does, for the reading thread, which must not wait. The bus reads the request
    /// before everything that this thread sends later.
    ///
    /// - Parameter failed: called once if the bus does not grant the rule, under the conditions of `settled` in
    ///   ``keepMatch(_:fallback:settled:)``. The rule is kept, and requested again each time the bus is back.
    /// - Throws: ``DBusError/Code/disconnected`` and ``DBusError/Code/closed``, and the reason if the bus has refused
    ///   this rule before. The rule is not kept then.
    public func addMatchInOrder(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        failed: @escaping @Sendable (DBusError) -> Void
    ) throws(DBusError) -> MatchRuleLease {
        try core.checkProcess("add the match rule \(rule)")
        let progress = Locked((isRequested: false, failure: DBusError?.none))
        let lease = keepMatch(rule, fallback: fallback) { error in
            guard let error else { return }
            let isLate = progress.withLock { progress in
                progress.failure = error
                return progress.isRequested
            }
            if isLate { failed(error) }
        }
        let known = progress.withLock { progress in
            progress.isRequested = true
            return progress.failure
        }
        if let known { throw known }
        return lease
    }

    /// Keeps `rule` until the lease ends, even if the bus refuses it now. It is requested again each time the bus is
    /// back.
    ///
    /// - Parameter settled: called once within 25 seconds, with `nil` when the rule is in force, or with the reason why
    ///   it is not; after a timeout the rule is in force once the bus grants it. It runs here, on the reading thread,
    ///   or on a thread that is using another rule of the connection. So it must not take a lock that is held during
    ///   the use of rules.
    public func keepMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        settled: @escaping @Sendable (DBusError?) -> Void
    ) -> MatchRuleLease { MatchRuleLease(core.retain(rule, fallback: fallback, waiter: settled), core) }
}

/// The options of a request for a bus name.
public struct BusNameOptions: OptionSet, Sendable {
    /// The bits, as the D-Bus specification numbers them.
    public let rawValue: UInt32

    /// Creates the options with these bits of the D-Bus specification.
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Another connection may take the name over.
    public static let allowReplacement = BusNameOptions(rawValue: 1)
    /// Takes the name over from an owner that allows it.
    public static let replaceExisting = BusNameOptions(rawValue: 2)
    /// Fails at once instead of waiting in the queue for the name. Without it, the request succeeds by queueing.
    public static let doNotQueue = BusNameOptions(rawValue: 4)
}

extension DBusConnection {
    // MARK: Names

    /// Owns a bus name until ``releaseName(_:)``, across restarts of the bus.
    ///
    /// - Throws: ``DBusError/Code/nameTaken`` with `.doNotQueue` if another connection owns it;
    ///   ``DBusError/Code/refused`` if the bus's policy forbids it, or `name` is not a bus name; otherwise as
    ///   ``call(_:timeout:isCancellable:)``. A cancelled task keeps waiting.
    public func requestName(_ name: String, options: BusNameOptions = [.doNotQueue]) async throws(DBusError) {
        let core = core
        try await core.connectAside("own the bus name \(name)")
        let error = await withCheckedContinuation { continuation in
            let request = core.state.withLock { $0.names.request(name, options) }
            core.send(request) { continuation.resume(returning: $0) }
        }
        if let error { throw error }
    }

    /// Releases a bus name.
    ///
    /// - Throws: as ``call(_:timeout:isCancellable:)``; the name is released even then.
    public func releaseName(_ name: String) async throws(DBusError) {
        try core.checkProcess("release the bus name \(name)")
        core.state.withLock { $0.names.release(name) }
        _ = try await callBus("ReleaseName", [.string(name)])
    }

    /// Returns the unique name of a bus name's owner; `nil` if it has none.
    ///
    /// - Throws: as ``call(_:timeout:isCancellable:)``.
    public func owner(of name: String) async throws(DBusError) -> String? {
        do throws(DBusError) {
            return try await callBus("GetNameOwner", [.string(name)]).first?.stringValue
        } catch {
            guard error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" else { throw error }
            return nil
        }
    }

    /// The identifier of the bus's address; `nil` if there is no bus. Each run of a bus makes a new identifier for each
    /// address that it listens on, which distinguishes connections with the same name on two buses.
    public var busIdentifier: String? { core.connectedSocket?.busIdentifier }

    /// Calls a method of the bus itself.
    ///
    /// - Throws: as ``call(_:timeout:isCancellable:)``.
    public func callBus(_ member: StaticString, _ arguments: [DBusValue] = []) async throws(DBusError) -> [DBusValue] {
        try await call(try .busCall(member, arguments))
    }

    // MARK: Peers

    /// The identity of the process behind a connection. The bus vouches for it.
    public struct PeerCredentials: Sendable, Hashable {
        /// The effective user.
        public let userID: UInt32
        /// The effective group and the supplementary groups, in no order. If the bus does not report them, these are
        /// the user's groups in the machine's user database, looked up at each access, perhaps over a network.
        public var groupIDs: [UInt32] { toldGroups.isEmpty ? UserGroups.of(userID) : toldGroups }
        private let toldGroups: [UInt32]
        /// The process ID; `nil` if the bus does not report it.
        public let processID: UInt32?
        /// The label from the security module that confines the process, as the kernel reported it to the bus; `nil` if
        /// there is none.
        public let securityLabel: String?
        /// The program's file; `nil` if this process may not see it. A hint and no proof: a process may pass its
        /// connection on to a child, and run another program itself.
        public internal(set) var executable: String?
        /// A descriptor of the process (pidfd), which unlike a process ID never means another process. `nil` if the bus
        /// gives none (dbus-daemon before 1.15.8, dbus-broker before 35).
        public let process: DBusDescriptor?

        /// Whether the process has not ended, so that everything read through `processID` so far concerns the peer: its
        /// ID cannot have been reused. `nil` if only a second request to the bus can tell.
        public var isRunning: Bool? {
            guard let process else { return nil }
            // Readable once the process has ended. If `poll` fails, the process does not count as running.
            var watched = pollfd(fd: process.number, events: CShort(POLLIN), revents: 0)
            return poll(&watched, 1, 0) == 0
        }
    }

    /// Asks the bus for the identity of the process behind `name`.
    ///
    /// A process ID may be reused. So the executable counts only if the process still runs after the lookup, according
    /// to its descriptor. A bus without descriptors is asked a second time: while the connection exists, so does its
    /// process, unless it passed the connection on to a child.
    ///
    /// - Throws: as ``call(_:timeout:isCancellable:)``; ``DBusError/Code/refused`` if the peer is gone.
    public func credentials(of name: String) async throws(DBusError) -> PeerCredentials {
        var credentials = try await rawCredentials(of: name)
        guard let processID = credentials.processID else { return credentials }
        let executable = executable(of: processID)
        let isTheirs: Bool
        if let isRunning = credentials.isRunning {
            isTheirs = isRunning
        } else {
            isTheirs = try await rawCredentials(of: name) == credentials
        }
        credentials.executable = isTheirs ? executable : nil
        return credentials
    }

    /// Asks once, for uses in which a wrong program does no harm: the process may have ended, and its ID been reused.
    ///
    /// - Throws: as ``credentials(of:)``.
    public func firstCredentials(of name: String) async throws(DBusError) -> PeerCredentials {
        var credentials = try await rawCredentials(of: name)
        credentials.executable = credentials.processID.flatMap(executable)
        return credentials
    }

    /// Asks once, without the program. `answered` is called on the reading thread, in the bus's order with other
    /// messages. If the call cannot be sent, it is called at once on this thread.
    public func askCredentials(
        of name: String,
        answered: @escaping @Sendable (Result<PeerCredentials, DBusError>) -> Void
    ) {
        do throws(DBusError) {
            call(try .busCall("GetConnectionCredentials", [.string(name)])) { answer in
                answered(Result { () throws(DBusError) in try PeerCredentials(of: name, answer: try answer.get()) })
            }
        } catch {
            answered(.failure(error))
        }
    }

    private func rawCredentials(of name: String) async throws(DBusError) -> PeerCredentials {
        try PeerCredentials(of: name, answer: try await callBus("GetConnectionCredentials", [.string(name)]))
    }

    private func executable(of processID: UInt32) -> String? {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Int(PATH_MAX)) { buffer in
            let length = buffer.withMemoryRebound(to: CChar.self) { path in
                path.baseAddress.map { readlink("/proc/\(processID)/exe", $0, path.count) } ?? 0
            }
            return length > 0 ? String(decoding: buffer[..<length], as: UTF8.self) : nil
        }
    }
}

extension DBusConnection.PeerCredentials {
    /// Decodes the bus's response to `GetConnectionCredentials`. Ignores other fields: newer buses send more of them.
    init(of name: String, answer: [DBusValue]) throws(DBusError) {
        guard let fields = answer.first?.fieldsValue,
            let user = fields["UnixUserID"]?.unsignedValue.flatMap(UInt32.init(exactly:))
        else { throw DBusError(.malformed, message: "the bus did not report its user", attempted: "identify \(name)") }
        var groups: [UInt32] = []
        if case .array(let elements, "u") = fields["UnixGroupIDs"] {
            groups = elements.compactMap { $0.unsignedValue.flatMap(UInt32.init(exactly:)) }
        }
        userID = user
        toldGroups = groups
        processID = fields["ProcessID"]?.unsignedValue.flatMap(UInt32.init(exactly:))
        securityLabel = fields["LinuxSecurityLabel"]?.bytesValue.map {
            String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
        }
        if case .descriptor(let descriptor) = fields["ProcessFD"] { process = descriptor } else { process = nil }
    }
}

/// The groups that the user database lists for a user. Not those of the process in `/proc`: a connection that was
/// passed on to a child would get the groups of whatever program its first process runs by then.
enum UserGroups {
    /// Empty for an unknown user.
    static func of(_ user: UInt32) -> [UInt32] {
        var (entry, found) = (passwd(), UnsafeMutablePointer<passwd>?.none)
        var buffer = [CChar](repeating: 0, count: 16_384)
        guard getpwuid_r(user, &entry, &buffer, buffer.count, &found) == 0, found != nil else { return [] }
        var count: CInt = 256
        while true {
            var groups = [gid_t](repeating: 0, count: Int(count))
            let room = count
            if getgrouplist(entry.pw_name, entry.pw_gid, &groups, &count) >= 0 {
                return Array(groups.prefix(Int(count)))
            }
            // On failure, `count` is the number of groups.
            guard count > room else { return [entry.pw_gid] }
        }
    }
}
