import Dispatch
import Glibc
import Synchronization

/// The one thread that reads a connection (architecture, D3): polls the descriptor and an eventfd, lets libdbus transfer
/// without waiting, hands each message on, and restores the connection when the bus was lost.
struct IOThread {
    private let core: ConnectionCore

    init(_ core: ConnectionCore) { self.core = core }

    /// Starts it; `nil` without a thread left.
    func start() -> pthread_t? { QuietThread.start("dbus-io") { run() } }

    private func run() {
        while true {
            performJobs()
            switch core.state.withLock({ $0.phase }) {
            case .connected(let socket): turn(socket)
            case .lost: reconnect()
            case .closed: return
            }
        }
    }

    private func performJobs() {
        let jobs = core.state.withLock { state in
            defer { state.jobs = [] }
            return state.jobs
        }
        for job in jobs { job() }
    }

    /// One turn of the loop inside a wait on this very thread. What it delivers may be what is waited for, so it asks before
    /// it sleeps.
    func turn(until isDone: () -> Bool) {
        switch core.state.withLock({ $0.phase }) {
        case .connected(let socket): turn(socket, deferring: true, until: isDone)
        // Losing the connection has answered all calls, so the wait is over.
        case .lost, .closed: break
        }
    }

    private func turn(_ socket: BusSocket, deferring: Bool = false, until isDone: () -> Bool = { false }) {
        deliver(from: socket, deferring: deferring)
        if isDone() { return }
        let standing = socket.standing
        guard standing.isConnected else { return lost(socket) }
        // A wait inside of a handler may have swallowed the wake-up for them.
        let mustNotSleep = !deferring && core.state.withLock { $0.hasWorkBetweenMessages }
        let events = poll(standing, timeout: mustNotSleep ? 0 : nil)
        if events != 0 { socket.transfer(events) }
        settle(socket)
    }

    /// Sleeps until the socket, the eventfd or a deadline; returns the socket's events.
    private func poll(_ standing: BusSocket.Standing?, timeout: CInt? = nil) -> CShort {
        var descriptors = (pollfd(), pollfd(fd: core.event.descriptor, events: CShort(POLLIN), revents: 0))
        // A negative descriptor is passed over.
        descriptors.0.fd = standing?.descriptor ?? -1
        descriptors.0.events = CShort(standing?.hasUnsentMessages == true ? POLLIN | POLLOUT : POLLIN)
        let timeout = timeout ?? milliseconds(until: core.state.withLock { $0.alarm })
        withUnsafeMutableBytes(of: &descriptors) { bytes in
            _ = Glibc.poll(bytes.assumingMemoryBound(to: pollfd.self).baseAddress, 2, timeout)
        }
        if descriptors.1.revents != 0 { core.event.clear() }
        return descriptors.0.revents
    }

    private func milliseconds(until deadline: ContinuousClock.Instant?) -> CInt {
        guard let deadline else { return -1 }
        let (seconds, attoseconds) = (deadline - .now).components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        // Rounded up: waking before the deadline would only turn the loop once more.
        return CInt(clamping: min(seconds, 86_400) * 1000 + attoseconds / 1_000_000_000_000_000 + 1)
    }

    /// Tells those whose time is over, and those who waited for the socket to take their message.
    private func settle(_ socket: BusSocket) {
        let (expired, writers) = core.state.withLock { state -> (_, [DispatchSemaphore]) in
            var expired: [PendingCalls<ConnectionCore.CallWaiter>.Call] = []
            if let alarm = state.alarm, alarm <= .now {
                expired = state.calls.expired(at: .now)
                state.alarm = state.calls.nextDeadline
            }
            guard !state.waitingForWrites.isEmpty, !socket.standing.hasUnsentMessages else { return (expired, []) }
            defer { state.waitingForWrites = [] }
            return (expired, state.waitingForWrites)
        }
        for writer in writers { writer.signal() }
        for call in expired {
            let error = DBusError(
                .timedOut,
                message: "no answer in time",
                attempted: call.attempted,
                remedy: "see whether the service hangs, or allow it more time"
            )
            call.waiter(.failure(error))
        }
    }

    // MARK: Messages

    private func deliver(from socket: BusSocket, deferring: Bool) {
        while true {
            if !deferring, let held = core.state.withLock({ $0.deferred.isEmpty ? nil : $0.deferred.removeFirst() }) {
                route(held.message, from: socket)
            } else if let pointer = socket.nextMessage() {
                let message = DBusMessage(adopting: pointer)
                switch message.kind {
                case .methodReturn, .error: answer(message)
                case .signal, .methodCall:
                    guard deferring else {
                        route(message, from: socket)
                        continue
                    }
                    let held = ConnectionCore.HeldMessage(message)
                    core.state.withLock { $0.deferred.append(held) }
                case .unknown: break
                }
            } else {
                return
            }
        }
    }

    private func answer(_ message: borrowing DBusMessage) {
        let (serial, sender) = (message.replySerial, message.sender ?? "")
        guard let call = core.state.withLock({ $0.calls.answered(serial: serial, sender: sender) }) else { return }
        do throws(DBusError) {
            let arguments = try message.arguments()
            guard let name = message.errorName else { return call.waiter(.success(arguments)) }
            let text = arguments.first?.stringValue ?? "no reason was given"
            call.waiter(.failure(.answer(name: name, message: text, attempted: call.attempted)))
        } catch {
            call.waiter(.failure(error))
        }
    }

    private func route(_ message: borrowing DBusMessage, from socket: BusSocket) {
        if case .methodCall = message.kind {
            core.dispatchCall(message, from: socket)
        } else {
            for handler in core.state.withLock({ $0.signalHandlers }) { handler.call(message) }
        }
    }

    // MARK: Losing and finding the bus

    /// Once for each socket, also where a nested wait and the loop around it both find it gone.
    private func lost(_ socket: BusSocket) {
        let told = core.state.withLock { state -> ConnectionCore.State? in
            guard case .connected(let current) = state.phase, current === socket else { return nil }
            let before = state
            state.phase = .lost
            state.waitingForWrites = []
            // Calls among them come from names that the next bus gives to others.
            state.deferred = []
            _ = state.calls.removeAll()
            return before
        }
        guard var told else { return }
        for writer in told.waitingForWrites { writer.signal() }
        for call in told.calls.removeAll() { call.waiter(.failure(.disconnected(call.attempted))) }
        for handler in told.eventHandlers.values { handler(.lost) }
    }

    private func reconnect() {
        var backoff = Backoff()
        while case .lost = core.state.withLock({ $0.phase }) {
            sleep(backoff.next())
            guard let address = try? core.bus.resolvedAddress(), let socket = try? BusSocket(address: address) else {
                continue
            }
            let restoration = core.state.withLock { state -> Restoration? in
                guard case .lost = state.phase else { return nil }
                state.phase = .connected(socket)
                return Restoration(rules: state.rules.reconnected(), names: state.names)
            }
            restoration?.perform(on: core)
        }
    }

    private func sleep(_ duration: Duration) {
        let end = ContinuousClock.now + duration
        // The eventfd cuts it short only when the connection is closed; after other wake-ups it sleeps on.
        while case .lost = core.state.withLock({ $0.phase }), .now < end {
            performJobs()
            _ = poll(nil, timeout: milliseconds(until: end))
        }
    }
}
