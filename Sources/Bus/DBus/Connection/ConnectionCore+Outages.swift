import Basics
import Glibc
import Synchronization

/// A change of the connection itself.
public enum ConnectionEvent: Sendable {
    /// The bus is gone. Signals sent until it returns are lost; calls fail with ``DBusError/Code/disconnected``.
    case lost
    /// The bus is available, again or for the first time. Names, match rules and objects are in place, except for those
    /// in `failures`. A program that caches a peer's state should request it again.
    case restored(failures: [DBusError])
}

/// The delay before each attempt to reach a lost bus: none at first, then 50 ms doubling to 2 s. Pure.
///
/// A bus that accepts connections and soon drops them counts as lost throughout: only a connection that lasted
/// ``steadyTime`` resets the delay. There is no jitter: the kernel takes simultaneous connections in microseconds.
struct ReconnectDelay {
    static let steadyTime: Duration = .seconds(2)

    /// `nil` before the first attempt.
    private var backoff: Backoff?
    private var restoredAt: ContinuousClock.Instant?

    mutating func next() -> Duration {
        if let wait = backoff?.next() { return wait }
        backoff = Backoff(first: .milliseconds(50), longest: .seconds(2))
        return .zero
    }

    mutating func restored(at now: ContinuousClock.Instant) { restoredAt = now }

    mutating func lost(at now: ContinuousClock.Instant) {
        if let restoredAt, now - restoredAt >= Self.steadyTime { backoff = nil }
        restoredAt = nil
    }
}

extension ConnectionCore {
    // MARK: Losing the bus

    /// Called on the reading thread. A second call for the same socket has no effect.
    func lost(_ socket: BusSocket) {
        let (lost, ruleWaiters) = state.withLock { state -> (State?, [MatchRuleTable.Waiter]) in
            guard case .connected(let current) = state.phase, current === socket else { return (nil, []) }
            let before = state
            state.phase = .lost(nil)
            state.reconnectDelay.lost(at: .now)
            let ruleWaiters = state.rules.lost()
            state.restorationFailures = nil
            // The next bus gives these unique names to other connections.
            state.signalSenders = []
            _ = state.calls.removeAll()
            return (before, ruleWaiters)
        }
        guard var told = lost else { return }
        for waiter in ruleWaiters { waiter(.disconnected("add a match rule")) }
        for call in told.calls.removeAll() { call.waiter(.failure(.disconnected(call.attempted))) }
        for listener in told.eventHandlers { listener.call(.lost) }
    }

    /// For a sender that found the bus gone. Returns whether it must reconnect, because no reading thread does.
    func lost(withoutReader socket: BusSocket) -> Bool {
        state.withLock { state in
            guard !state.isReading else { return false }
            if case .connected(let current) = state.phase, current === socket { state.phase = .lost(nil) }
            return true
        }
    }

    // MARK: Finding it

    /// Connects on the calling thread, without a reading thread. Waits until `limit`, and at most 25 seconds.
    func connectHere(
        _ attempted: @autoclosure () -> String,
        by limit: ContinuousClock.Instant? = nil
    ) throws(DBusError) -> BusSocket {
        let fresh: BusSocket
        do throws(DBusError) {
            fresh = try BusSocket(address: try resolvedAddress(), opener: opener, by: limit)
        } catch {
            noteFailure(error)
            // If there was a bus, it is lost. If there never was one, the error says why.
            throw state.withLock({ $0.wasConnected }) ? .disconnected(attempted()) : error
        }
        // Another thread may have connected first.
        if connected(fresh) { return fresh }
        switch state.withLock({ $0.phase }) {
        case .connected(let socket): return socket
        case .lost: throw .disconnected(attempted())
        case .closed: throw .closed(attempted())
        }
    }

    /// Makes sure that a task has a connection and a reading thread. Connects on a separate thread for all waiting
    /// tasks: connecting may block, and the concurrency pool has few threads. A cancelled task keeps waiting.
    ///
    /// - Throws: ``DBusError/Code/noBus``, ``DBusError/Code/disconnected``, ``DBusError/Code/closed``,
    ///   ``DBusError/Code/noResources``. Does not throw during an outage that the reading thread handles.
    func connectAside(_ attempted: @autoclosure () -> String) async throws(DBusError) {
        try checkProcess(attempted())
        let (isLost, isReading) = state.withLock { state in
            if case .lost = state.phase { return (true, state.isReading) }
            return (false, state.isReading)
        }
        if isReading { return }
        // From here on the reading thread reconnects, and no task ever does.
        guard isLost else { return try startReading() }
        let error = await withCheckedContinuation { continuation in
            let isFirst = state.withLock { state in
                state.connecting.append(continuation)
                return state.connecting.count == 1
            }
            guard isFirst else { return }
            let thread = QuietThread.start("dbus-connect") { [self] in
                let result = Result { () throws(DBusError) in
                    _ = try socket("connect to the bus")
                    try startReading()
                }
                endConnecting(result.failure)
            }
            if thread == nil { endConnecting(.noThread("connect to the bus")) }
        }
        if let error { throw error.of(attempted()) }
    }

    private func endConnecting(_ error: DBusError?) {
        let waiting = state.withLock { state in
            defer { state.connecting = [] }
            return state.connecting
        }
        for continuation in waiting { continuation.resume(returning: error) }
    }

    /// Makes one attempt on the reading thread, after the back-off delay.
    func reconnect() {
        let end = ContinuousClock.now + state.withLock { $0.reconnectDelay.next() }
        // Other wake-ups only run jobs; only a close ends the sleep early.
        while case .lost = state.withLock({ $0.phase }), .now < end {
            performJobs()
            _ = poll(nil, until: end)
        }
        guard case .lost = state.withLock({ $0.phase }) else { return }
        // A stopped bus may block this for long, so jobs run during the wait.
        let jobs = BusSocket.OtherWork(descriptor: event.descriptor) { [self] in
            event.clear()
            performJobs()
            if case .closed = state.withLock({ $0.phase }) { return false }
            return true
        }
        do throws(DBusError) {
            _ = connected(try BusSocket(address: try resolvedAddress(), opener: opener, meanwhile: jobs))
        } catch {
            noteFailure(error)
        }
    }

    /// Records why the first connection failed, for the errors of later callers.
    private func noteFailure(_ error: DBusError) {
        state.withLock { state in
            if case .lost = state.phase { state.phase = .lost(state.wasConnected ? nil : error) }
        }
    }

    /// Restores names and match rules on a fresh socket. Returns false if the connection is not lost any more.
    private func connected(_ socket: BusSocket) -> Bool {
        let work = decide { state -> ((names: [OwnedNames.Request], isReading: Bool)?, [MatchRuleTable.Action]) in
            guard case .lost = state.phase else { return (nil, []) }
            state.phase = .connected(socket)
            if state.wasConnected { state.reconnections += 1 }
            state.wasConnected = true
            state.restorationFailures = state.isReading ? [] : nil
            return ((state.names.requestAll(), state.isReading), state.rules.reconnected())
        }
        guard let work else { return false }
        for request in work.names {
            send(request) { error in
                guard let error else { return }
                self.state.withLock { $0.restorationFailures?.append(error) }
            }
        }
        // Without a reading thread there are no handlers to tell. A reading thread in its back-off sleep is woken.
        if work.isReading {
            event.signal()
            finishRestoration()
        }
        return true
    }

    /// Reports the restoration when the bus has responded to all requests. The response to this call follows those for
    /// rules and names, and proves that the bus keeps the connection. A response may cause a request for another rule,
    /// and then another such call. If this call cannot be sent, neither could the next one: its error ends the
    /// restoration.
    private func finishRestoration() {
        guard let message = try? DBusMessage.busCall("GetId") else { return }
        let call = PendingCall(message) { [self] result in
            // If the bus was lost again, the next restoration reports.
            if let error = result.failure, error.code == .disconnected || error.code == .closed { return }
            let wasSent = result.failure.map { $0.name != nil || $0.code == .timedOut } ?? true
            let (waits, failures, listeners) = state.withLock { state -> (Bool, [DBusError], [EventListener]) in
                guard var failures = state.restorationFailures else { return (false, [], []) }
                if wasSent, state.rules.hasRequests { return (true, [], []) }
                state.restorationFailures = nil
                state.reconnectDelay.restored(at: .now)
                if let failure = result.failure { failures.append(failure) }
                return (false, failures, state.eventHandlers)
            }
            if waits { return finishRestoration() }
            for listener in listeners { listener.call(.restored(failures: failures)) }
        }
        startCall(call)
    }

    // MARK: End

    func endInOrder() { state.withLock { $0.closing.take() }?.finish(by: .now + ProcessExit.timeout) }

    /// Writes the unsent messages when a handler on this reading thread ends the process: no other thread writes them.
    func writeAtExit(by deadline: ContinuousClock.Instant) {
        guard !isForeign else { return }
        let socket = state.withLock { state in
            if case .connected(let socket) = state.phase { socket } else { state.closing }
        }
        _ = socket?.writeAll(by: deadline)
    }
}

extension DBusConnection {
    /// Finds out on a separate thread, within 25 seconds, whether the bus accepts a new connection. `found` is called
    /// on the reading thread, unless the connection was closed.
    package func probeBus(_ found: @escaping @Sendable (Bool) -> Void) {
        let core = core
        let thread = QuietThread.start("dbus-probe") { [weak self] in
            let probe = try? BusSocket(address: try core.resolvedAddress())
            let isServed = probe != nil
            self?.perform { found(isServed) }
        }
        if thread == nil { perform { found(false) } }
    }

    /// About how many sent bytes the bus has not read; `nil` if there is no bus, or the kernel does not report it.
    package var unreadBytes: Int? { core.connectedSocket?.unreadBytes }

    /// Loses the bus, with what it has not read, and reconnects. Called on the reading thread.
    package func leaveBus() {
        guard let socket = core.connectedSocket else { return }
        // Shut down now, and not with the last reference: until then the bus would keep this connection's names.
        socket.shutDown()
        core.lost(socket)
    }
}

/// The bus names that a connection owns or has requested. Pure. The bus may process requests and releases in another
/// order than that of the decisions under the connection's lock: their numbers tell which came last.
struct OwnedNames {
    struct Request: Sendable {
        let name: String
        let options: BusNameOptions
        fileprivate let number: UInt64
    }

    /// Pending requests for a name.
    private struct UnderWay {
        var count = 0
        /// The number of the latest request.
        var last: UInt64 = 0
        /// The number of the latest release since the first pending request.
        var released: UInt64 = 0
    }

    /// Names that are requested again after an outage.
    private(set) var owned: [String: BusNameOptions] = [:]
    private var underWay: [String: UnderWay] = [:]
    private var lastNumber: UInt64 = 0

    mutating func request(_ name: String, _ options: BusNameOptions) -> Request {
        lastNumber += 1
        underWay[name, default: UnderWay()].count += 1
        underWay[name]?.last = lastNumber
        return Request(name: name, options: options, number: lastNumber)
    }

    mutating func requestAll() -> [Request] { owned.map { request($0.key, $0.value) } }

    /// Requests a name after its second release, if it is owned by now.
    mutating func requestAgain(_ name: String) -> Request? { owned[name].map { request(name, $0) } }

    mutating func release(_ name: String) {
        owned[name] = nil
        lastNumber += 1
        underWay[name]?.released = lastNumber
    }

    /// Ends a request. `isOwned` tells whether the bus gave the name to this connection, or queued it for the name.
    /// Returns whether the release must be sent to the bus again.
    mutating func answered(_ request: Request, isOwned: Bool) -> Bool {
        guard var others = underWay[request.name] else { return false }
        others.count -= 1
        underWay[request.name] = others.count > 0 ? others : nil
        guard isOwned else { return false }
        // The response to a later request decides.
        if others.released > request.number { return others.last == request.number }
        owned[request.name] = request.options
        return false
    }
}
