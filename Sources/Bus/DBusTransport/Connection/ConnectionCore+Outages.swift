import Glibc
import Synchronization

/// What happened to the connection itself.
public enum ConnectionEvent: Sendable {
    /// The bus is gone. Signals sent until it is back are lost; calls fail with ``DBusError/Code/disconnected``.
    case lost
    /// The bus is there, again or for the first time: names, match rules and objects are in place, except for those that `failures`
    /// tells of. Whoever keeps a copy of somebody's state should ask for it anew.
    case restored(failures: [DBusError])
}

/// How long to wait before each attempt to reach a lost bus: at once, then 50 ms doubling to 2 s. Pure.
///
/// Not longer: a bus that restarts is back within seconds, and an attempt costs one failed `connect`. A bus that takes connections and
/// drops them soon after counts as lost all the while; only one that held for ``steadyTime`` makes the next wait short again.
/// All processes of a bus wait alike: the kernel queues the connections that come at once, and takes them in microseconds.
struct Backoff {
    static let steadyTime: Duration = .seconds(2)

    private var attempts = 0
    private var restoredAt: ContinuousClock.Instant?

    mutating func next() -> Duration {
        defer { attempts += 1 }
        guard attempts > 0 else { return .zero }
        return min(.milliseconds(50 << min(attempts - 1, 6)), .seconds(2))
    }

    mutating func restored(at now: ContinuousClock.Instant) { restoredAt = now }

    mutating func lost(at now: ContinuousClock.Instant) {
        if let restoredAt, now - restoredAt >= Self.steadyTime { attempts = 0 }
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
            state.backoff.lost(at: .now)
            let ruleWaiters = state.rules.lost()
            state.restorationFailures = nil
            // The next bus gives these names to others.
            state.signalSenders = []
            _ = state.calls.removeAll()
            return (before, ruleWaiters)
        }
        guard var told = lost else { return }
        for waiter in ruleWaiters { waiter(.disconnected("add a match rule")) }
        for call in told.calls.removeAll() { call.waiter(.failure(.disconnected(call.attempted))) }
        for handler in told.eventHandlers.values { handler(.lost) }
    }

    /// Called by a sender that found the bus gone.
    ///
    /// - Returns: whether the sender is to reconnect, because there is no reading thread that does.
    func lost(withoutReader socket: BusSocket) -> Bool {
        state.withLock { state in
            guard !state.isReading else { return false }
            if case .connected(let current) = state.phase, current === socket { state.phase = .lost(nil) }
            return true
        }
    }

    // MARK: Finding it

    /// Connects for the calling thread, where there is no reading thread. Waits for the bus, at most 25 seconds, and not beyond `limit`.
    func connectHere(
        _ attempted: @autoclosure () -> String,
        by limit: ContinuousClock.Instant? = nil
    ) throws(DBusError) -> BusSocket {
        let fresh: BusSocket
        do throws(DBusError) {
            fresh = try BusSocket(address: try resolvedAddress(), opener: opener, by: limit)
        } catch {
            noteFailure(error)
            // A bus that was there is one that is lost; one that never was has its own reason.
            throw state.withLock({ $0.wasConnected }) ? .disconnected(attempted()) : error
        }
        // Somebody else may have been faster.
        if connected(fresh) { return fresh }
        switch state.withLock({ $0.phase }) {
        case .connected(let socket): return socket
        case .lost: throw .disconnected(attempted())
        case .closed: throw .closed(attempted())
        }
    }

    /// Has a connection and a reading thread in place for a task. Connects on a thread of its own, one for all tasks that ask meanwhile: it may
    /// wait for the bus, and the threads that tasks share are few. A task that is cancelled waits all the same.
    ///
    /// - Throws: ``DBusError/Code/noBus``, ``DBusError/Code/disconnected``, ``DBusError/Code/closed``, ``DBusError/Code/noResources``. An
    ///   outage that the reading thread sees to throws nothing.
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
            guard isFirst, QuietThread.start("dbus-connect", { self.finishConnecting() }) == nil else { return }
            endConnecting(.noThread("connect to the bus"))
        }
        guard let error else { return }
        throw DBusError(
            error.code,
            name: error.name,
            message: error.message,
            attempted: attempted(),
            remedy: error.remedy
        )
    }

    private func finishConnecting() {
        do throws(DBusError) {
            _ = try socket("connect to the bus")
            try startReading()
            endConnecting(nil)
        } catch {
            endConnecting(error)
        }
    }

    private func endConnecting(_ error: DBusError?) {
        let waiting = state.withLock { state in
            defer { state.connecting = [] }
            return state.connecting
        }
        for continuation in waiting { continuation.resume(returning: error) }
    }

    /// One attempt of the reading thread, after the wait that is due.
    func reconnect() {
        sleepWhileLost(state.withLock { $0.backoff.next() })
        guard case .lost = state.withLock({ $0.phase }) else { return }
        // A bus that is stopped makes this wait for long.
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

    /// Keeps why a connection that was never there cannot be made, for the errors of those who use it.
    private func noteFailure(_ error: DBusError) {
        state.withLock { state in
            if case .lost = state.phase { state.phase = .lost(state.wasConnected ? nil : error) }
        }
    }

    private func sleepWhileLost(_ duration: Duration) {
        let end = ContinuousClock.now + duration
        // The event cuts it short only when the connection is closed; after other wake-ups it sleeps on.
        while case .lost = state.withLock({ $0.phase }), .now < end {
            performJobs()
            _ = poll(nil, until: end)
        }
    }

    /// Takes a fresh socket into use, and puts names and match rules in place on it.
    ///
    /// - Returns: false where the connection is not lost any more.
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
        // Without a reading thread there is nothing to restore and nobody to tell. One that sleeps until its next attempt is woken.
        if work.isReading {
            event.signal()
            finishRestoration()
        }
        return true
    }

    /// The bus answers in order: its answer to this call comes after those to all rules and names, and proves that the bus keeps the
    /// connection. An answer to a rule may lead to a request for another rule, and then to one more such call. A call that cannot be sent fails
    /// right here, and so would the next one: its error ends the restoration.
    private func finishRestoration() {
        guard let call = try? DBusMessage.busCall("GetId") else { return }
        callBus(call) { [self] result in
            // A bus that is lost again meanwhile is restored, and reported, anew.
            if let error = result.failure, error.code == .disconnected || error.code == .closed { return }
            let wasSent = result.failure.map { $0.name != nil || $0.code == .timedOut } ?? true
            enum Next {
                case wait, nothing
                case tell([DBusError], [EventHandler])
            }
            let next = state.withLock { state -> Next in
                guard let failures = state.restorationFailures else { return .nothing }
                if wasSent, state.rules.hasRequests { return .wait }
                state.restorationFailures = nil
                state.backoff.restored(at: .now)
                return .tell(failures + [result.failure].compactMap(\.self), Array(state.eventHandlers.values))
            }
            switch next {
            case .wait: finishRestoration()
            case .nothing: break
            case .tell(let failures, let handlers): for handler in handlers { handler(.restored(failures: failures)) }
            }
        }
    }

    // MARK: End

    /// The last thing that the reading thread does.
    func endInOrder() {
        let socket = state.withLock { state in
            defer { state.closing = nil }
            return state.closing
        }
        socket?.finish(by: .now + ProcessExit.timeout)
    }

    /// What a handler that ends the process owes the bus: this thread alone writes what the socket did not take.
    func writeAtExit(by deadline: ContinuousClock.Instant) {
        guard !isForeign else { return }
        let socket = state.withLock { state in
            if case .connected(let socket) = state.phase { socket } else { state.closing }
        }
        _ = socket?.writeAll(by: deadline)
    }
}

extension DBusConnection {
    /// Finds out, on a thread of its own, whether the bus takes a new connection. A bus that is stopped is waited for.
    ///
    /// - Parameter found: called on the reading thread, unless the connection was closed.
    func probeBus(_ found: @escaping @Sendable (Bool) -> Void) {
        let core = core
        let thread = QuietThread.start("dbus-probe") { [weak self] in
            let probe = try? BusSocket(address: try core.resolvedAddress())
            let isServed = probe != nil
            self?.perform { found(isServed) }
        }
        if thread == nil { perform { found(false) } }
    }

    /// About how many bytes the bus has not read of what was sent; `nil` where there is no bus, or the kernel does not say.
    var unreadBytes: Int? { core.connectedSocket?.unreadBytes }

    /// Leaves the bus as if it were lost, and comes back by a new connection. What the bus has not read is lost. Called on the reading thread.
    func leaveBus() {
        guard let socket = core.connectedSocket else { return }
        // Now, and not when nobody holds it any more: until then the bus would keep this connection's names.
        socket.shutDown()
        core.lost(socket)
    }
}
