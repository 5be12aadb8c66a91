import Glibc
import Synchronization

/// The connection's state and its two sides: callers on any thread, and the reading thread.
///
/// Apart from ``DBusConnection``, so that the thread does not keep the public handle alive: the handle's end of life closes
/// the connection. Its chapters: sending (here), calls and match rules (`+Calls`), the reading thread (`+Reading`), losing and finding
/// the bus (`+Outages`), method calls of others (`+Objects`).
final class ConnectionCore: Sendable {
    typealias SignalHandler = @Sendable (borrowing DBusMessage) -> Void
    typealias Job = @Sendable () -> Void
    typealias EventHandler = @Sendable (ConnectionEvent) -> Void

    enum Phase {
        case connected(BusSocket)
        /// The bus is lost, or was never there: then with the error of the last attempt.
        case lost(DBusError?)
        case closed
    }

    /// Who is called for each signal.
    struct Listener: Sendable {
        let id: UInt64
        let call: SignalHandler
    }

    struct State {
        var phase: Phase
        var wasConnected: Bool
        var backoff = Backoff()
        var reconnections: UInt64 = 0
        /// Tasks that wait for the first connection, which a thread is making for them.
        var connecting: [CheckedContinuation<DBusError?, Never>] = []
        var calls = PendingCalls()
        var rules = MatchRuleTable()
        /// How long somebody waits for the bus to take a rule.
        var ruleTimeout: Duration = .seconds(25)
        var names = OwnedNames()
        /// What a restoration under way could not put in place; `nil` while there is none.
        var restorationFailures: [DBusError]?
        var objects = ObjectTable()
        /// Its owner keeps it, and often this connection with it.
        weak var scheduler: (any CallScheduler)?
        var signalHandlers: [Listener] = []
        /// The latest connections that may send this one large signals.
        var signalSenders: [String] = []
        var eventHandlers: [UInt64: EventHandler] = [:]
        /// What the reading thread is to do between messages.
        var jobs: [Job] = []
        /// Whether there is a reading thread. It ends with the connection.
        var isReading = false
        /// The socket of a connection that was closed, for the reading thread to end in order.
        var closing: BusSocket?
        /// When the reading thread wakes by itself. It may be earlier than needed, so that a call whose deadline comes later
        /// need not wake the thread for it.
        var alarm: ContinuousClock.Instant?
        var nextID: UInt64 = 1

        mutating func takeID() -> UInt64 {
            defer { nextID += 1 }
            return nextID
        }

        /// Whether the reading thread must be woken to sleep less.
        mutating func advanceAlarm(to deadline: ContinuousClock.Instant?) -> Bool {
            guard let deadline, alarm.map({ deadline < $0 }) ?? true else { return false }
            alarm = deadline
            return true
        }
    }

    /// On the heap, for a reference that is stored once.
    private final class Address: Sendable {
        let text: String
        init(text: String) { self.text = text }
    }

    let bus: Bus
    /// The bus's address once it is known. Without a lock, because a forked child reads it.
    private let address = StoredOnce<Address>()
    let opener = BusOpener()
    let state: Locked<State>
    /// Held while the table of rules decides, and while that is sent: a place that a rule gave up must go to the rule that it was given up
    /// for. Nothing waits for the bus meanwhile, and no waiter is told. Taken before ``state``.
    let ruleOrder = Locked(())
    /// Wakes the reading thread.
    let event: EventDescriptor
    /// Rises with each change of the signal handlers, so that the reading thread need not take the lock to see that there is none.
    let handlerGeneration = Atomic<UInt>(0)
    /// The reading thread, as `pthread_self` has it; 0 while there is none.
    let readingThread = Atomic<UInt>(0)
    /// Whether the reading thread sleeps until the socket takes more, so that nobody need wake it for that.
    let awaitsRoom = Atomic<Bool>(false)
    /// The serial number of the next message. libdbus chooses the numbers of the first few messages, such as Hello; these are lower.
    private let nextSerial = Atomic<UInt32>(16)
    private let process = ForkedChild.Process()

    /// How long a sender waits for a bus that does not read before it gives up.
    let sendTimeout = Locked(Duration.seconds(30))

    /// - Parameters:
    ///   - connects: whether to connect at once; otherwise the first use does.
    ///   - deadline: until when to connect; `nil` for as long as a connection may take.
    init(bus: Bus, connects: Bool, by deadline: ContinuousClock.Instant? = nil) throws(DBusError) {
        try ForkedChild.check("open a D-Bus connection")
        self.bus = bus
        event = try EventDescriptor("open a D-Bus connection")
        let address = connects ? try bus.resolvedAddress() : nil
        if let address { _ = self.address.storeIfNil(Address(text: address)) }
        let phase: Phase =
            if let address {
                .connected(try BusSocket(address: address, opener: opener, by: deadline))
            } else {
                .lost(nil)
            }
        state = Locked(State(phase: phase, wasConnected: connects))
    }

    /// The address to connect to. It stays the same for the life of the connection: a program may prepare its
    /// environment for others while the connection is being restored.
    func resolvedAddress() throws(DBusError) -> String {
        if let known = address.load() { return known.text }
        return address.storeIfNil(Address(text: try bus.resolvedAddress())).text
    }

    /// Asked before any lock is taken: in a forked child, one may be held by a thread that is not there.
    var isForeign: Bool { !process.isCurrent }

    func checkProcess(_ attempted: @autoclosure () -> String) throws(DBusError) {
        if isForeign { throw .forked(attempted()) }
    }

    // MARK: Sending

    func takeSerial() -> UInt32 {
        while true {
            // 0 is no serial number.
            let serial = nextSerial.wrappingAdd(1, ordering: .relaxed).oldValue
            if serial != 0 { return serial }
        }
    }

    /// The live socket, if there is one now.
    var connectedSocket: BusSocket? {
        guard !isForeign, case .connected(let socket) = state.withLock({ $0.phase }) else { return nil }
        return socket
    }

    /// The live socket. Without a reading thread nobody else reconnects, so this does, until `limit` at most.
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

    /// Hands a message to the bus. On return the kernel has it; only on the reading thread, which must not wait, it may still be queued.
    ///
    /// A process without a reading thread notices only here that the bus was restarted. It connects anew then and sends once more: the
    /// write failed. If another thread's write failed, the bus may have this message already, and receivers get it twice.
    ///
    /// - Parameter copies: whether a copy goes out, because others send the message at the same time.
    func send(_ message: borrowing DBusMessage, copies: Bool = false) throws(DBusError) {
        // For everything that it waits for, together.
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

    /// - Returns: false where the bus is gone.
    private func hand(
        _ message: borrowing DBusMessage,
        copies: Bool,
        to socket: BusSocket,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) -> Bool {
        // Together, because each beginning costs a hundredth of a post.
        let standing = try onLibdbus { () throws(DBusError) in
            guard copies else {
                return try socket.send(message, serial: takeSerial(), attempted: Self.attempt(message))
            }
            return try socket.send(message.copy(), serial: takeSerial(), attempted: Self.attempt(message))
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

    /// Hands a message to libdbus and never waits: what the socket does not take at once, the reading thread writes later. What a bus does
    /// not read is bounded by ``BusSocket/unsentLimit``.
    func queue(_ message: borrowing DBusMessage) throws(DBusError) {
        try checkProcess(Self.attempt(message))
        guard let socket = connectedSocket else { throw .disconnected(Self.attempt(message)) }
        try queue(message, on: socket)
    }

    /// Answers on this very socket: an answer must not go to whoever has the caller's name on the next one. Never waits, because answers
    /// come from tasks.
    func answer(_ message: borrowing DBusMessage, on socket: BusSocket) throws(DBusError) {
        guard connectedSocket === socket else { return }
        try queue(message, on: socket)
    }

    private func queue(_ message: borrowing DBusMessage, on socket: BusSocket) throws(DBusError) {
        let standing = try socket.send(message, serial: takeSerial(), attempted: Self.attempt(message))
        if needsReader(standing) { event.signal() }
    }

    /// Whether the reading thread must be woken after a message was handed to libdbus: it finds the end of a connection, and writes on when
    /// the socket has room.
    func needsReader(_ standing: BusSocket.Standing) -> Bool {
        !standing.isConnected || standing.hasUnsentMessages && !awaitsRoom.load(ordering: .acquiring)
    }

    /// What errors say was attempted. Made for errors only: a post should not pay for the text.
    static func attempt(_ message: borrowing DBusMessage) -> String {
        switch message.kind {
        case .signal: "send the signal \(message.interface ?? "").\(message.member ?? "")"
        case .methodReturn, .error: "answer a call"
        case .methodCall: "call \(message.interface ?? "").\(message.member ?? "")"
        case .unknown: "send a message"
        }
    }

    // MARK: Handlers and jobs

    /// Takes something out of the state and frees it outside the lock: a handler may hold the last reference to an object whose deinit takes
    /// this lock, such as the connection.
    func discard<Removed: Sendable>(_ remove: @Sendable (inout State) -> Removed) {
        guard !isForeign else { return }
        let removed = state.withLock { remove(&$0) }
        handlerGeneration.wrappingAdd(1, ordering: .releasing)
        withExtendedLifetime(removed) {}
    }

    /// Has the reading thread do something between messages, in the order of asking.
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

    /// Ends everything: calls that wait fail, the thread leaves, the socket closes when the bus has read all that was sent.
    func close() {
        guard !isForeign else { return }
        // The old state is freed outside the lock, its handlers included.
        var before = state.withLock { state -> State in
            let before = state
            if case .connected(let socket) = state.phase { state.closing = socket }
            state.phase = .closed
            state.signalHandlers = []
            state.eventHandlers = [:]
            state.objects = ObjectTable()
            state.scheduler = nil
            state.jobs = []
            _ = state.calls.removeAll()
            return before
        }
        handlerGeneration.wrappingAdd(1, ordering: .releasing)
        for call in before.calls.removeAll() { call.waiter(.failure(.closed(call.attempted))) }
        if before.isReading {
            event.signal()
        } else if case .connected(let socket) = before.phase {
            // Without a reading thread only the greeting can be unread, and it has arrived.
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
