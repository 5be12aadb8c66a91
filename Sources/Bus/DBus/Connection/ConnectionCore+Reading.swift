import Basics
import CDBus
import Glibc
import Synchronization

/// A message on the heap, because an array takes no move-only elements.
public final class HeldMessage: Sendable {
    public let message: DBusMessage
    public init(_ message: consuming DBusMessage) { self.message = message }
}

// MARK: - The reading thread

/// The one thread that reads a connection (architecture, D3): it polls the socket and an event descriptor, lets libdbus
/// transfer without waiting, dispatches each message, and restores the connection after a loss of the bus.
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
        guard isReading else {
            throw .noThread("read from the bus")
        }
    }

    private func read() {
        readingThread.store(UInt(pthread_self()), ordering: .relaxed)
        ProcessExit.noteReadingThread(of: self)
        while true {
            let turn = beginTurn()
            for job in turn.jobs { job() }
            turn.tellExpired()
            // A job may have left the bus.
            switch turn.jobs.isEmpty ? turn.phase : state.withLock({ $0.phase }) {
            case .connected(let socket): read(socket, turn)
            case .lost: reconnect()
            case .closed: return endInOrder()
            }
        }
    }

    /// A snapshot of the state for one turn of the loop, taken under one lock.
    private struct Turn {
        let phase: Phase
        let jobs: [Job]
        let alarm: ContinuousClock.Instant?
        let expired: [PendingCall]
        let scheduler: (any CallScheduler)?
        var handlers: [Listener]
        var handlerGeneration: UInt

        func tellExpired() {
            for call in expired { call.waiter(.failure(.noAnswer(call.attempted))) }
        }
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
                scheduler: state.scheduler,
                handlers: state.signalHandlers,
                handlerGeneration: generation
            )
        }
    }

    /// Runs one turn of the loop: dispatches the messages that were read, then sleeps until the next event.
    private func read(_ socket: BusSocket, _ turn: consuming Turn) {
        let standing = deliver(from: socket, &turn)
        guard standing.isConnected else { return lost(socket) }
        let next = turn.scheduler?.carryOut()
        // If another thread sets an earlier alarm, it wakes this thread through the event descriptor.
        let events = poll(standing, until: [next, turn.alarm].compactMap(\.self).min())
        if events != 0 { socket.transfer(events) }
    }

    /// Sleeps until the socket, the event descriptor or a deadline; returns the socket's events.
    func poll(_ standing: BusSocket.Standing?, until deadline: ContinuousClock.Instant?) -> CShort {
        if event.restoreIfClosed(), event.descriptor >= 0 { return 0 }
        let awaitsRoom = standing?.hasUnsentMessages == true
        // Only during the sleep: the next look at the socket finds messages that are queued before it wakes.
        if awaitsRoom { self.awaitsRoom.store(true, ordering: .releasing) }
        defer { if awaitsRoom { self.awaitsRoom.store(false, ordering: .releasing) } }
        var descriptors = (pollfd(), pollfd(fd: event.descriptor, events: CShort(POLLIN), revents: 0))
        // `poll` ignores a negative descriptor.
        descriptors.0.fd = standing?.descriptor ?? -1
        descriptors.0.events = CShort(awaitsRoom ? POLLIN | POLLOUT : POLLIN)
        // Without a descriptor that wakes it, this thread looks for work every second.
        let deadline = event.descriptor < 0 ? min(deadline ?? .now + .seconds(1), .now + .seconds(1)) : deadline
        let timeout = deadline.map(milliseconds(until:)) ?? -1
        withUnsafeMutableBytes(of: &descriptors) { bytes in
            _ = Glibc.poll(bytes.assumingMemoryBound(to: pollfd.self).baseAddress, 2, timeout)
        }
        if descriptors.1.revents != 0 { event.clear() }
        return descriptors.0.revents
    }

    func performJobs() {
        let turn = beginTurn()
        for job in turn.jobs { job() }
        turn.tellExpired()
    }

    // MARK: Messages

    private func deliver(from socket: BusSocket, _ turn: inout Turn) -> BusSocket.Standing {
        while true {
            switch socket.next({ judge($0, from: socket) }) {
            case .none(let standing): return standing
            case .message(let arrival, let last):
                handle(arrival.message, arrival.ticket, from: socket, &turn)
                // Does not ask the socket again: peers that this message woke are sending by now, and this thread would
                // wait for the lock. Code that leaves work for this thread wakes it.
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
            let error = DBusError(
                .limitsExceeded,
                message: "the response has \(header.bytes) bytes, more than this call permits",
                attempted: call.attempted
            )
            call.waiter(.failure(error))
            return false
        }
    }

    /// The largest body of a signal. A notification has at most 1 MiB; somewhat larger ones must still be read to be
    /// counted.
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
        case .methodCall: if let ticket { run(message, ticket, socket) }
        case .unknown: break
        }
    }

    private func answer(_ message: borrowing DBusMessage) {
        let found = state.withLock { state -> PendingCall? in state.calls.answered(by: message) }
        guard let call = found else { return }
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
    /// The approximate size of the message in bytes.
    public var size: Int { headerSize + bodySize }

    /// The approximate size of the message in bytes without its body. The path has no limit below that of the message.
    var headerSize: Int { 256 + pathLength }

    var pathLength: Int { dbus_message_get_path(pointer).map { strlen($0) } ?? 0 }

    /// The approximate size of the body in bytes. The data lies in strings and arrays, and libdbus knows the
    /// length of each array, so the cost does not depend on the size.
    var bodySize: Int {
        var iterator = DBusMessageIter()
        guard dbus_message_iter_init(pointer, &iterator) != 0 else { return 0 }
        return Self.size(&iterator)
    }

    private static func size(_ iterator: inout DBusMessageIter) -> Int {
        var sum = 0
        while true {
            switch dbus_message_iter_get_arg_type(&iterator) {
            case CDBUS_TYPE_INVALID: return sum
            case CDBUS_TYPE_STRING, CDBUS_TYPE_OBJECT_PATH, CDBUS_TYPE_SIGNATURE:
                var start: UnsafePointer<CChar>?
                dbus_message_iter_get_basic(&iterator, &start)
                sum += 5 + (start.map { strlen($0) } ?? 0)
            case CDBUS_TYPE_ARRAY:
                var inner = DBusMessageIter()
                dbus_message_iter_recurse(&iterator, &inner)
                sum += 8 + Int(CDBus_arrayLength(&inner))
            case CDBUS_TYPE_STRUCT, CDBUS_TYPE_VARIANT:
                var inner = DBusMessageIter()
                dbus_message_iter_recurse(&iterator, &inner)
                sum += 8 + size(&inner)
            default: sum += 8
            }
            dbus_message_iter_next(&iterator)
        }
    }
}
