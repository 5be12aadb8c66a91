import Dispatch
import Glibc
import Synchronization

/// The connection's state and its two sides: callers on any thread, and the I/O thread (``IOThread``).
///
/// Apart from ``DBusConnection``, so that the thread does not keep the public handle alive: the handle's end of life closes
/// the connection.
final class ConnectionCore: Sendable {
    typealias CallWaiter = @Sendable (Result<[DBusValue], DBusError>) -> Void
    typealias RuleWaiter = @Sendable (DBusError?) -> Void
    typealias RuleAction = MatchRuleTable<RuleWaiter>.Action
    typealias SignalHandler = @Sendable (borrowing DBusMessage) -> Void
    typealias Job = @Sendable () -> Void
    typealias EventHandler = @Sendable (ConnectionEvent) -> Void

    enum Phase {
        case connected(BusSocket)
        case lost
        case closed
    }

    struct State {
        var phase: Phase
        var calls = PendingCalls<CallWaiter>()
        var rules = MatchRuleTable<RuleWaiter>()
        var names: [String: BusNameOptions] = [:]
        var objects = ObjectTable()
        var signalHandlers: [(id: UInt64, call: SignalHandler)] = []
        var eventHandlers: [UInt64: EventHandler] = [:]
        /// Messages that a nested wait on the I/O thread read and must not deliver.
        var deferred: [HeldMessage] = []
        var waitingForWrites: [DispatchSemaphore] = []
        /// What the I/O thread is to do between messages.
        var jobs: [Job] = []
        var ioThread: pthread_t?
        /// When the I/O thread wakes by itself. It may be earlier than needed, so that a call whose deadline comes later
        /// need not wake the thread for it.
        var alarm: ContinuousClock.Instant?
        var nextID: UInt64 = 1

        /// Whether the I/O thread has something to do that no message brings.
        var hasWorkBetweenMessages: Bool {
            if case .closed = phase { true } else { !jobs.isEmpty }
        }

        mutating func takeID() -> UInt64 {
            defer { nextID += 1 }
            return nextID
        }

        /// Whether the I/O thread must be woken to sleep less.
        mutating func advanceAlarm(to deadline: ContinuousClock.Instant?) -> Bool {
            guard let deadline, alarm.map({ deadline < $0 }) ?? true else { return false }
            alarm = deadline
            return true
        }
    }

    /// A message on the heap, because an array takes no move-only elements.
    final class HeldMessage: Sendable {
        let message: DBusMessage
        init(_ message: consuming DBusMessage) { self.message = message }
    }

    let bus: Bus
    let state: Locked<State>
    let event: EventDescriptor
    private let forkGeneration = ForkedChild.generation

    /// How long a sender waits for a bus that does not read before it gives up.
    private static let writeTimeout: Duration = .seconds(30)

    init(bus: Bus) throws(DBusError) {
        self.bus = bus
        event = try EventDescriptor("open a D-Bus connection")
        let socket = try BusSocket(address: bus.resolvedAddress())
        state = Locked(State(phase: .connected(socket)))
    }

    // MARK: Sending

    /// Asked before any lock is taken: in a forked child, one may be held by a thread that is not there.
    func checkProcess(_ attempted: @autoclosure () -> String) throws(DBusError) {
        guard forkGeneration == ForkedChild.generation else { throw .forked(attempted()) }
    }

    /// The live socket.
    func socket(_ attempted: @autoclosure () -> String) throws(DBusError) -> BusSocket {
        try checkProcess(attempted())
        switch state.withLock({ $0.phase }) {
        case .connected(let socket): return socket
        case .lost: throw .disconnected(attempted())
        case .closed: throw .closed(attempted())
        }
    }

    /// Sends on this very socket: an answer must not go to whoever has the caller's name on the next one.
    func answer(_ message: borrowing DBusMessage, on socket: BusSocket) throws(DBusError) {
        guard case .connected(let current) = state.withLock({ $0.phase }), current === socket else { return }
        let (_, standing) = try socket.send(message, attempted: Self.attempt(message))
        if standing.hasUnsentMessages { try finishSending(on: socket, attempted: Self.attempt(message)) }
    }

    /// Hands a message to the bus. On return the kernel has it, so that the process may end at once; only on the I/O thread,
    /// which must not wait, it may still be queued.
    func send(_ message: borrowing DBusMessage) throws(DBusError) {
        let socket = try socket(Self.attempt(message))
        var (_, standing) = try socket.send(message, attempted: Self.attempt(message))
        if standing.hasUnsentMessages {
            try finishSending(on: socket, attempted: Self.attempt(message))
            standing = socket.standing
        }
        guard standing.isConnected else {
            // The I/O thread is the one that restores; it may not have run so far.
            try startThread()
            event.signal()
            throw .disconnected(Self.attempt(message))
        }
    }

    /// What errors say was attempted. Only they: a post should not pay for the text.
    private static func attempt(_ message: borrowing DBusMessage) -> String {
        switch message.kind {
        case .signal: "send the signal \(message.interface ?? "").\(message.member ?? "")"
        case .methodReturn, .error: "answer a call"
        case .methodCall, .unknown: "send a message"
        }
    }

    /// Waits until libdbus has written its queue: a bus that is slow slows its senders, instead of filling their memory.
    private func finishSending(on socket: BusSocket, attempted: String) throws(DBusError) {
        try startThread()
        guard !isOnIOThread else { return }
        let written = DispatchSemaphore(value: 0)
        let isWaiting = state.withLock { state -> Bool in
            // A socket that was lost meanwhile has nobody who would tell.
            guard case .connected(let current) = state.phase, current === socket else { return false }
            state.waitingForWrites.append(written)
            return true
        }
        guard isWaiting else { return }
        event.signal()
        guard written.wait(timeout: .now() + .seconds(Int(Self.writeTimeout.components.seconds))) == .success else {
            throw DBusError(
                .timedOut,
                message: "the bus has not read for \(Self.writeTimeout)",
                attempted: attempted,
                remedy: "find out why the bus daemon is stopped"
            )
        }
    }

    // MARK: Calling

    /// Sends a method call. The waiter is called once: on the I/O thread with the answer, or right here when nothing could
    /// be sent.
    func startCall(
        _ call: borrowing DBusMessage,
        attempted: String,
        id: UInt64,
        timeout: Duration?,
        waiter: @escaping CallWaiter
    ) {
        do throws(DBusError) {
            try checkProcess(attempted)
            try startThread()
        } catch {
            return waiter(.failure(error))
        }
        let deadline = timeout.map { ContinuousClock.now + $0 }
        let (failure, wakes) = state.withLock { state -> (DBusError?, Bool) in
            switch state.phase {
            case .lost: return (.disconnected(attempted), false)
            case .closed: return (.closed(attempted), false)
            case .connected(let socket):
                do throws(DBusError) {
                    // Sent with the lock held, so that the answer finds its call in the table.
                    let (serial, standing) = try socket.send(call, attempted: attempted)
                    let entry = PendingCalls<CallWaiter>.Call(
                        id: id,
                        destination: call.destination ?? "",
                        attempted: attempted,
                        deadline: deadline,
                        waiter: waiter
                    )
                    state.calls.insert(entry, serial: serial)
                    let isDone = standing.isConnected && !standing.hasUnsentMessages
                    return (nil, !isDone || state.advanceAlarm(to: deadline))
                } catch {
                    return (error, true)
                }
            }
        }
        if wakes { event.signal() }
        if let failure { waiter(.failure(failure)) }
    }

    func takeID() -> UInt64 { state.withLock { $0.takeID() } }

    func cancelCall(id: UInt64) {
        guard let call = state.withLock({ $0.calls.cancelled(id: id) }) else { return }
        call.waiter(.failure(DBusError(.cancelled, message: "the task was cancelled", attempted: call.attempted)))
    }

    /// Waits on this thread. On the I/O thread it goes on reading meanwhile: answers are taken, everything else is kept for
    /// afterwards, in order.
    func wait<Value: Sendable>(start: (@escaping @Sendable (Value) -> Void) -> Void) -> Value {
        let box = Locked<Value?>(nil)
        let done = DispatchSemaphore(value: 0)
        start { value in
            box.withLock { $0 = value }
            done.signal()
        }
        // What could not be started has its value already, and asks for no lock.
        if let value = box.withLock({ $0 }) { return value }
        let onIOThread = isOnIOThread
        while true {
            if let value = box.withLock({ $0 }) { return value }
            if onIOThread {
                IOThread(self).turn { box.withLock { $0 != nil } }
            } else {
                done.wait()
            }
        }
    }

    // MARK: Match rules

    func retain(_ rule: MatchRule, fallback: MatchRule?, waiter: @escaping RuleWaiter) {
        do throws(DBusError) { try checkProcess("add the match rule \(rule)") } catch { return waiter(error) }
        let outcome = state.withLock {
            state -> Result<(MatchRuleTable<RuleWaiter>.Retention, [RuleAction]), DBusError> in
            switch state.phase {
            case .connected: .success(state.rules.retain(rule, fallback: fallback, waiter: waiter))
            case .lost: .failure(.disconnected("add the match rule \(rule)"))
            case .closed: .failure(.closed("add the match rule \(rule)"))
            }
        }
        switch outcome {
        case .success((let retention, let actions)):
            if case .ready = retention { waiter(nil) }
            perform(actions)
        case .failure(let error): waiter(error)
        }
    }

    func release(_ rule: MatchRule) {
        perform(state.withLock { $0.rules.release(rule) })
    }

    /// Carries out what the table decided. `settled` is called once per rule to add, when it or its fallback is in force or
    /// refused.
    func perform(_ actions: [RuleAction], settled: @escaping RuleWaiter = { _ in }) {
        for action in actions {
            switch action {
            case .add(let rule, let ticket):
                let attempted = "add the match rule \(rule)"
                start(BusDaemon.call("AddMatch", [.string(rule.description)]), attempted: attempted) { result in
                    let error = result.failure
                    let answer = self.state.withLock { $0.rules.answered(rule, ticket: ticket, error: error) }
                    for waiter in answer.waiters { waiter(answer.error) }
                    // Another rule may be on its way in place of this one; then its answer settles the matter.
                    let goesOn = answer.actions.contains { if case .add = $0 { true } else { false } }
                    self.perform(answer.actions, settled: settled)
                    if !goesOn { settled(answer.error) }
                }
            case .remove(let rule):
                // A lost bus has forgotten the rule by itself, and the answer changes nothing.
                start(BusDaemon.call("RemoveMatch", [.string(rule.description)]), attempted: "remove a rule") { _ in }
            }
        }
    }

    /// Calls the bus itself, which always answers.
    func start(_ call: BusDaemon.Call, attempted: String, waiter: @escaping CallWaiter) {
        do throws(DBusError) {
            let message = try call.message()
            startCall(message, attempted: attempted, id: takeID(), timeout: nil, waiter: waiter)
        } catch {
            waiter(.failure(error))
        }
    }

    // MARK: Thread and end

    /// Takes something out of the state and frees it outside the lock: a handler may hold the last reference to what, at its
    /// end, takes this lock itself; the connection, for one.
    func discard<Removed: Sendable>(_ remove: @Sendable (inout State) -> Removed) {
        let removed = state.withLock { remove(&$0) }
        withExtendedLifetime(removed) {}
    }

    /// Has the I/O thread do something between messages, in the order of asking.
    func perform(_ job: @escaping Job) {
        let isClosed = state.withLock { state in
            if case .closed = state.phase { return true }
            state.jobs.append(job)
            return false
        }
        if !isClosed { event.signal() }
    }

    var isOnIOThread: Bool {
        state.withLock { $0.ioThread }.map { pthread_equal($0, pthread_self()) != 0 } ?? false
    }

    /// Starts the I/O thread with the first thing that needs an answer; a process that only posts does without.
    func startThread() throws(DBusError) {
        let isRunning = state.withLock { state -> Bool in
            if state.ioThread == nil { state.ioThread = IOThread(self).start() }
            return state.ioThread != nil
        }
        guard isRunning else {
            throw DBusError(
                .noResources,
                message: "no thread can be started",
                attempted: "read from the bus",
                remedy: "raise the limit of processes (ulimit -u)"
            )
        }
    }

    /// Ends everything: calls that wait fail, the thread leaves, the socket closes with its last user.
    func close() {
        // The old state is freed outside the lock, its handlers included.
        var before = state.withLock { state -> State in
            let before = state
            state.phase = .closed
            state.signalHandlers = []
            state.eventHandlers = [:]
            state.objects = ObjectTable()
            state.waitingForWrites = []
            state.jobs = []
            _ = state.calls.removeAll()
            return before
        }
        event.signal()
        for writer in before.waitingForWrites { writer.signal() }
        for call in before.calls.removeAll() { call.waiter(.failure(.closed(call.attempted))) }
    }
}

extension Result {
    var failure: Failure? {
        if case .failure(let error) = self { error } else { nil }
    }
}
