import Basics
import CDBus
import Glibc
import Synchronization

/// The state of a connection, shared by callers on any thread and the reading thread. Separate from ``DBusConnection``,
/// whose deallocation closes the connection, so that the thread does not keep it alive.
final class ConnectionCore: Sendable {
    typealias Job = @Sendable () -> Void

    enum Phase {
        case connected(BusSocket)
        /// The bus is lost, or was never reached; in the latter case with the error of the last attempt.
        case lost(DBusError?)
        case closed
    }

    struct Listener: Sendable {
        let id: UInt64
        let call: @Sendable (borrowing DBusMessage) -> Void
    }

    struct EventListener: Sendable {
        let id: UInt64
        let call: @Sendable (ConnectionEvent) -> Void
    }

    struct State {
        var phase: Phase
        var wasConnected: Bool
        var reconnectDelay = ReconnectDelay()
        var reconnections: UInt64 = 0
        /// Tasks that wait for the connection that a separate thread is making.
        var connecting: [CheckedContinuation<DBusError?, Never>] = []
        var calls = PendingCalls()
        var rules = MatchRuleTable()
        /// How long a caller waits for the bus to accept a rule.
        var ruleTimeout: Duration = .seconds(25)
        var names = OwnedNames()
        /// The failures of the restoration in progress; `nil` if there is none.
        var restorationFailures: [DBusError]?
        var callServer: (any CallServer)?
        var signalHandlers: [Listener] = []
        /// The latest connections that may send large signals to this connection alone.
        var signalSenders: [String] = []
        var eventHandlers: [EventListener] = []
        /// Work for the reading thread between messages.
        var jobs: [Job] = []
        /// Whether there is a reading thread. It ends with the connection.
        var isReading = false
        /// The socket of a closed connection, for the reading thread to finish.
        var closing: BusSocket?
        /// When the reading thread wakes by itself. May be too early, so that a call with a later deadline need not
        /// wake it.
        var alarm: ContinuousClock.Instant?
        var nextID: UInt64 = 1

        mutating func takeID() -> UInt64 {
            defer { nextID += 1 }
            return nextID
        }

        /// Returns whether the reading thread must be woken because its sleep would be too long.
        mutating func advanceAlarm(to deadline: ContinuousClock.Instant?) -> Bool {
            guard let deadline, alarm.map({ deadline < $0 }) ?? true else { return false }
            alarm = deadline
            return true
        }
    }

    /// A class, because ``StoredOnce`` stores a reference.
    private final class Address: Sendable {
        let text: String
        init(text: String) { self.text = text }
    }

    let bus: Bus
    /// The bus's address once it is known. Without a lock, because a forked child reads it.
    private let address = StoredOnce<Address>()
    let opener = BusOpener()
    let state: Locked<State>
    /// Held while the rule table decides and its actions are sent: the room of a removed rule must go to the rule that
    /// replaces it. Taken before ``state``; with it held, nothing waits for the bus and no waiter is called.
    let ruleOrder = Locked(())
    /// Wakes the reading thread.
    let event: EventDescriptor
    /// Incremented with each change of the signal handlers, which the reading thread so notices without the lock.
    let handlerGeneration = Atomic<UInt>(0)
    /// The reading thread's `pthread_self`; 0 if there is none.
    let readingThread = Atomic<UInt>(0)
    /// Whether the reading thread already waits for room in the socket, and need not be woken for that.
    let awaitsRoom = Atomic<Bool>(false)
    /// The serial of the next message (libdbus takes lower ones for Hello). Held from the numbering of a message until
    /// libdbus has it, so that messages leave in the order of their serials: xdg-dbus-proxy hangs up otherwise. Taken
    /// before ``state`` and outside ``onLibdbus(_:)``.
    private let nextSerial = Locked<UInt32>(16)
    private let process = ForkedChild.Process()

    /// How long a sender waits for a bus that does not read.
    let sendTimeout = Locked(Duration.seconds(30))

    /// - Parameters:
    ///   - connects: whether to connect at once; otherwise the first use connects.
    ///   - deadline: the time at which connecting ends; `nil` for the usual timeout.
    init(bus: Bus, connects: Bool, by deadline: ContinuousClock.Instant? = nil) throws(DBusError) {
        try ForkedChild.check("open a D-Bus connection")
        self.bus = bus
        do { event = try EventDescriptor("open a D-Bus connection") } catch { throw DBusError(error) }
        var phase = Phase.lost(nil)
        if connects {
            let text = try bus.resolvedAddress()
            _ = address.storeIfNil(Address(text: text))
            phase = .connected(try BusSocket(address: text, opener: opener, by: deadline))
        }
        state = Locked(State(phase: phase, wasConnected: connects))
    }

    /// The address to connect to. It stays the same, even if the program changes its environment for child processes.
    func resolvedAddress() throws(DBusError) -> String {
        if let known = address.load() { return known.text }
        return address.storeIfNil(Address(text: try bus.resolvedAddress())).text
    }

    /// Checked before any lock is taken: in a forked child, a thread that does not exist there may hold the lock.
    var isForeign: Bool { !process.isCurrent }

    func checkProcess(_ attempted: @autoclosure () -> String) throws(DBusError) {
        if isForeign { throw .forked(attempted()) }
    }

    // MARK: Sending

    /// Runs `send` with the next serial, in the order of the serials.
    func numbered<Result: ~Copyable>(_ send: (UInt32) throws(DBusError) -> Result) throws(DBusError) -> Result {
        try nextSerial.withLock { next throws(DBusError) in
            let serial = next
            // 0 is not a valid serial.
            next = max(next &+ 1, 1)
            return try send(serial)
        }
    }

    var connectedSocket: BusSocket? {
        guard !isForeign, case .connected(let socket) = state.withLock({ $0.phase }) else { return nil }
        return socket
    }

    /// Returns the connected socket. Without a reading thread, this reconnects, until `limit` at most.
    func socket(
        _ attempted: @autoclosure () -> String,
        by limit: ContinuousClock.Instant? = nil
    ) throws(DBusError) -> BusSocket {
        try checkProcess(attempted())
        let (phase, isReading) = state.withLock { ($0.phase, $0.isReading) }
        switch phase {
        case .connected(let socket): return socket
        case .closed: throw .closed(attempted())
        case .lost(let error):
            guard !isReading else { throw error ?? .disconnected(attempted()) }
            return try connectHere(attempted(), by: limit)
        }
    }

    /// Sends a message, or a copy if other threads send it at the same time. On return the kernel has it; on the
    /// reading thread, which must not wait, it may still be queued.
    ///
    /// A process without a reading thread notices a restart of the bus only here. It then reconnects and sends once
    /// more. If the failed write was another thread's, receivers may get this message twice.
    func send(_ message: borrowing DBusMessage, copies: Bool = false) throws(DBusError) {
        // One deadline for all waits together.
        let deadline = ContinuousClock.now + sendTimeout.withLock { $0 }
        let socket = try socket(Self.attempt(message), by: deadline)
        if try hand(message, copies: copies, to: socket, by: deadline) { return }
        guard lost(withoutReader: socket) else {
            event.signal()
            if case .closed = state.withLock({ $0.phase }) { throw .closed(Self.attempt(message)) }
            throw .disconnected(Self.attempt(message))
        }
        let next = try connectHere(Self.attempt(message), by: deadline)
        guard try hand(message, copies: true, to: next, by: deadline) else {
            throw .disconnected(Self.attempt(message))
        }
    }

    /// - Returns: false if the bus is gone.
    private func hand(
        _ message: borrowing DBusMessage,
        copies: Bool,
        to socket: BusSocket,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) -> Bool {
        let standing = try numbered { serial throws(DBusError) in
            // In one block, because each entry costs a hundredth of a post.
            try onLibdbus { () throws(DBusError) in
                guard copies || message.serial != 0 else {
                    return try socket.send(message, serial: serial, attempted: Self.attempt(message))
                }
                return try socket.send(message.copy(), serial: serial, attempted: Self.attempt(message))
            }
        }
        guard standing.isConnected else { return false }
        guard standing.hasUnsentMessages else { return true }
        if isOnReadingThread {
            event.signal()
            return true
        }
        switch socket.writeAll(by: deadline) {
        case .done: return true
        case .busGone: return false
        case .timedOut:
            event.signal()
            throw DBusError(
                .timedOut,
                message: "the bus has not read within \(sendTimeout.withLock { $0 }); it may still get the message",
                attempted: Self.attempt(message),
                remedy: "find out why the bus daemon is stopped"
            )
        }
    }

    /// Passes a message to libdbus without waiting. The reading thread writes what the socket does not accept at once.
    func queue(_ message: borrowing DBusMessage) throws(DBusError) {
        try checkProcess(Self.attempt(message))
        guard let socket = connectedSocket else { throw .disconnected(Self.attempt(message)) }
        try queue(message, on: socket)
    }

    func queue(_ message: borrowing DBusMessage, on socket: BusSocket) throws(DBusError) {
        let standing = try numbered { serial throws(DBusError) in
            try socket.send(message, serial: serial, attempted: Self.attempt(message))
        }
        if needsReader(standing) { event.signal() }
    }

    /// Whether to wake the reading thread, which handles the end of a connection and writes the queue.
    func needsReader(_ standing: BusSocket.Standing) -> Bool {
        !standing.isConnected || standing.hasUnsentMessages && !awaitsRoom.load(ordering: .acquiring)
    }

    /// The attempted action for errors. Made only for an error: a post does not pay for the text.
    static func attempt(_ message: borrowing DBusMessage) -> String {
        switch message.kind {
        case .signal: "send the signal \(message.interface ?? "").\(message.member ?? "")"
        case .methodReturn, .error: "respond to a call"
        case .methodCall: "call \(message.interface ?? "").\(message.member ?? "")"
        case .unknown: "send a message"
        }
    }

    // MARK: Handlers and jobs

    /// Removes a handler and frees it outside the lock: it may hold the last reference to an object whose deinit takes
    /// this lock.
    func removeHandler(_ id: UInt64) {
        guard !isForeign else { return }
        let before = state.withLock { state in
            let before = (state.signalHandlers, state.eventHandlers)
            state.signalHandlers.removeAll { $0.id == id }
            state.eventHandlers.removeAll { $0.id == id }
            return before
        }
        handlerGeneration.wrappingAdd(1, ordering: .releasing)
        withExtendedLifetime(before) {}
    }

    /// Runs a job on the reading thread between messages. Jobs run in order.
    func perform(_ job: @escaping Job) {
        guard !isForeign else { return }
        let isClosed = state.withLock { state in
            if case .closed = state.phase { return true }
            state.jobs.append(job)
            return false
        }
        if !isClosed { event.signal() }
    }

    // MARK: End

    /// Closes the connection. The socket closes when the bus has read everything sent.
    func close() {
        guard !isForeign else { return }
        // The old state, handlers included, is freed outside the lock.
        var before = state.withLock { state -> State in
            let before = state
            if case .connected(let socket) = state.phase { state.closing = socket }
            state.phase = .closed
            state.signalHandlers = []
            state.eventHandlers = []
            state.callServer = nil
            state.jobs = []
            _ = state.calls.removeAll()
            return before
        }
        handlerGeneration.wrappingAdd(1, ordering: .releasing)
        for call in before.calls.removeAll() { call.waiter(.failure(.closed(call.attempted))) }
        if before.isReading {
            event.signal()
        } else if case .connected(let socket) = before.phase {
            // Without a reading thread nothing but the greeting can be unread, and it has arrived.
            socket.finish(by: .now)
            state.withLock { $0.closing = nil }
        }
    }
}

extension Result {
    var failure: Failure? {
        if case .failure(let error) = self { error } else { nil }
    }
}

/// A message on the heap, because an array takes no move-only elements.
public final class HeldMessage: Sendable {
    public let message: DBusMessage
    public init(_ message: consuming DBusMessage) { self.message = message }
}

// MARK: - The reading thread

/// The one thread that reads a connection (architecture, D3). It polls the socket and an event descriptor, lets libdbus
/// transfer without waiting, dispatches each message, and restores a lost connection.
extension ConnectionCore {
    var isOnReadingThread: Bool { readingThread.load(ordering: .relaxed) == UInt(pthread_self()) }

    /// Starts the reading thread with the first operation that needs a response. A process that only posts has none.
    func startReading() throws(DBusError) {
        let isReading = state.withLock { state -> Bool in
            if state.isReading { return true }
            if case .closed = state.phase { return true }
            state.isReading = QuietThread.start("dbus-read") { self.read() } != nil
            return state.isReading
        }
        guard isReading else { throw .noThread("read from the bus") }
    }

    private func read() {
        readingThread.store(UInt(pthread_self()), ordering: .relaxed)
        ProcessExit.noteReadingThread(of: self)
        while true {
            let turn = performJobs()
            // A job may have left the bus.
            switch turn.jobs.isEmpty ? turn.phase : state.withLock({ $0.phase }) {
            case .connected(let socket): read(socket, turn)
            case .lost: reconnect()
            case .closed: return endInOrder()
            }
        }
    }

    /// A snapshot of the state for one turn of the loop, taken under one lock.
    struct Turn {
        let phase: Phase
        let jobs: [Job]
        let alarm: ContinuousClock.Instant?
        let expired: [PendingCall]
        let callServer: (any CallServer)?
        var handlers: [Listener]
        var handlerGeneration: UInt
    }

    private func beginTurn() -> Turn {
        let generation = handlerGeneration.load(ordering: .acquiring)
        return state.withLock { state in
            var expired: [PendingCall] = []
            if let alarm = state.alarm, alarm <= .now {
                expired = state.calls.expired(at: .now)
                state.alarm = state.calls.nextDeadline
            }
            defer { state.jobs = [] }
            return Turn(
                phase: state.phase,
                jobs: state.jobs,
                alarm: state.alarm,
                expired: expired,
                callServer: state.callServer,
                handlers: state.signalHandlers,
                handlerGeneration: generation
            )
        }
    }

    /// Runs one turn of the loop: dispatches the messages that were read, then sleeps until the next event.
    private func read(_ socket: BusSocket, _ turn: consuming Turn) {
        let standing = deliver(from: socket, &turn)
        guard standing.isConnected else { return lost(socket) }
        let next = turn.callServer?.carryOut()
        let deadline = if let next, let alarm = turn.alarm { min(next, alarm) } else { next ?? turn.alarm }
        // If another thread sets an earlier alarm, it wakes this thread through the event descriptor.
        let events = poll(standing, until: deadline)
        if events != 0 { socket.transfer(events) }
    }

    /// Sleeps until the socket, the event descriptor or a deadline; returns the socket's events.
    func poll(_ standing: BusSocket.Standing?, until deadline: ContinuousClock.Instant?) -> CShort {
        if event.restoreIfClosed(), event.descriptor >= 0 { return 0 }
        let awaitsRoom = standing?.hasUnsentMessages == true
        // Set only during the sleep: this thread finds other queued messages at its next look at the socket.
        if awaitsRoom { self.awaitsRoom.store(true, ordering: .releasing) }
        defer { if awaitsRoom { self.awaitsRoom.store(false, ordering: .releasing) } }
        // Without a descriptor that wakes it, this thread looks for work every second.
        let deadline = event.descriptor < 0 ? min(deadline ?? .now + .seconds(1), .now + .seconds(1)) : deadline
        let (ready, isSignalled) = pollBoth(
            standing?.descriptor ?? -1,
            CShort(awaitsRoom ? POLLIN | POLLOUT : POLLIN),
            event.descriptor,
            timeout: deadline.map(milliseconds(until:)) ?? -1
        )
        if isSignalled { event.clear() }
        return ready
    }

    /// Runs the waiting jobs, and ends the calls whose time is over.
    @discardableResult
    func performJobs() -> Turn {
        let turn = beginTurn()
        for job in turn.jobs { job() }
        for call in turn.expired { call.waiter(.failure(.noAnswer(call.attempted))) }
        return turn
    }

    // MARK: Messages

    private func deliver(from socket: BusSocket, _ turn: inout Turn) -> BusSocket.Standing {
        while true {
            switch socket.next({ judge($0, from: socket) }) {
            case .none(let standing): return standing
            case .message(let arrival, let last):
                handle(arrival.message, arrival.ticket, from: socket, &turn)
                // Does not ask the socket again: threads that this message woke are sending by now, and hold its lock.
                if let last { return last }
            }
        }
    }

    /// Decides from the header, before the body is read, whether the message is wanted.
    private func judge(_ header: borrowing MessageHeader, from socket: BusSocket) -> MessageReader.Verdict {
        switch header.kind {
        case .methodCall: admit(header, from: socket).map { .read($0) } ?? .passOver
        case .unknown: .passOver
        case .methodReturn, .error: isAwaited(header) ? .read(nil) : .passOver
        case .signal: isHeard(header) ? .read(nil) : .passOver
        }
    }

    /// Whether to read the response. A response that is too large ends its call with an error.
    private func isAwaited(_ header: borrowing MessageHeader) -> Bool {
        switch state.withLock({ state in state.calls.judge(header) }) {
        case .awaited: return true
        case .notAwaited: return false
        case .tooLarge(let call):
            let message = "the response has \(header.bytes) bytes, more than this call permits"
            call.waiter(.failure(DBusError(.limitsExceeded, message: message, attempted: call.attempted)))
            return false
        }
    }

    /// The largest body of a signal. Notifications somewhat over their 1 MiB must still be read to be counted.
    static let largestSignal = 8 << 20
    /// The largest signal that is sent to this connection alone by an arbitrary sender.
    static let largestDirectedSignal = 64 << 10

    private func isHeard(_ header: borrowing MessageHeader) -> Bool {
        guard !header.isTooLong, header.bodyBytes <= Self.largestSignal else { return false }
        // Match rules keep other signals away, but any peer may send a signal to this connection alone.
        guard header.isDirected, header.bytes > Self.largestDirectedSignal else { return true }
        guard let sender = header.sender else { return false }
        return sender == DBusMessage.busName || state.withLock { $0.signalSenders.contains(sender) }
    }

    private func handle(
        _ message: borrowing DBusMessage,
        _ ticket: CallTicket?,
        from socket: BusSocket,
        _ turn: inout Turn
    ) {
        switch message.kind {
        case .methodReturn, .error: answer(message)
        case .signal: route(message, &turn)
        case .methodCall: ticket?(message, ReturnPath(core: self, socket: socket))
        case .unknown: break
        }
    }

    private func answer(_ message: borrowing DBusMessage) {
        // `isAwaited` has checked the sender.
        guard let call = state.withLock({ $0.calls.remove(message.replySerial) }) else { return }
        do throws(DBusError) {
            let arguments = try message.arguments()
            guard let name = message.errorName else { return call.waiter(.success(arguments)) }
            let text = arguments.first?.stringValue ?? "no reason was given"
            let details = arguments.dropFirst().first?.fieldsValue ?? [:]
            let answer = DBusError.answer(name: name, message: text, details: details, attempted: call.attempted)
            call.waiter(.failure(answer))
        } catch {
            call.waiter(.failure(error))
        }
    }

    private func route(_ message: borrowing DBusMessage, _ turn: inout Turn) {
        // A handler that was removed before now, for instance by the previous handler, is not called.
        if handlerGeneration.load(ordering: .acquiring) != turn.handlerGeneration { refreshHandlers(of: &turn) }
        let (handlers, generation) = (turn.handlers, turn.handlerGeneration)
        for handler in handlers {
            if handlerGeneration.load(ordering: .acquiring) != turn.handlerGeneration { refreshHandlers(of: &turn) }
            guard turn.handlerGeneration == generation || turn.handlers.contains(where: { $0.id == handler.id }) else {
                continue
            }
            handler.call(message)
        }
    }

    private func refreshHandlers(of turn: inout Turn) {
        turn.handlerGeneration = handlerGeneration.load(ordering: .acquiring)
        turn.handlers = state.withLock { $0.signalHandlers }
    }
}

extension DBusMessage {
    /// The approximate size of the message in bytes. The cost does not depend on the size: libdbus knows the length of
    /// each array, and the data lies in strings and arrays. A path has no limit below that of the message.
    public var size: Int {
        let header = 256 + (dbus_message_get_path(pointer).map { strlen($0) } ?? 0)
        var iterator = DBusMessageIter()
        return dbus_message_iter_init(pointer, &iterator) == 0 ? header : header + Self.size(&iterator)
    }

    private static func size(_ iterator: inout DBusMessageIter) -> Int {
        var sum = 0
        while true {
            switch DBusReader.Kind(rawValue: dbus_message_iter_get_arg_type(&iterator)) {
            case .end: return sum
            case .string, .objectPath, .signature:
                var start: UnsafePointer<CChar>?
                dbus_message_iter_get_basic(&iterator, &start)
                sum += 5 + (start.map { strlen($0) } ?? 0)
            case .array:
                var inner = DBusMessageIter()
                dbus_message_iter_recurse(&iterator, &inner)
                sum += 8 + Int(CDBus_arrayLength(&inner))
            case .structure, .variant:
                var inner = DBusMessageIter()
                dbus_message_iter_recurse(&iterator, &inner)
                sum += 8 + size(&inner)
            default: sum += 8
            }
            dbus_message_iter_next(&iterator)
        }
    }
}
