package import DBusTransport
import Glibc
import Synchronization

/// Answers HTTP/1.1 requests of strangers on one thread: one request a connection, everything of it bounded. A client that is slow, or says nothing,
/// delays no other one. TLS is what stands before it: a proxy of the administrator's.
///
/// Not FlyingFox 0.25: it imports Foundation, which brings ICU along, and bounds a request's time but not how many connections are open.
package final class HTTPListener: Sendable {
    /// What one listener takes.
    package struct Limits: Sendable {
        package var connections = 32
        /// How long a client has to itself to send its request. Later its place is the next client's, where there is no other.
        package var undisturbed: Duration = .milliseconds(100)
        /// How long a request may take to arrive, and its answer to be taken.
        package var patience: Duration = .seconds(5)
        /// How long the handler may take.
        package var handling: Duration = .seconds(30)

        package init() {}
    }

    package typealias Handler = @Sendable (ReceivedRequest) async -> ListenerResponse

    private let stop: EventSignal

    /// Begins to listen. The socket belongs to the listener from here on, and is closed when it ends, or does not begin.
    ///
    /// - Parameter descriptor: a socket that listens.
    /// - Throws: `DBusError`: `noResources`.
    package convenience init(
        adopting descriptor: CInt,
        limits: Limits = Limits(),
        handler: @escaping Handler
    ) throws(DBusError) {
        try self.init(adopting: descriptor, limits, handler) { QuietThread.start("http-listener", $0) != nil }
    }

    /// - Parameter start: runs the listener on a thread of its own; whether there is one.
    init(
        adopting descriptor: CInt,
        _ limits: Limits,
        _ handler: @escaping Handler,
        on start: (@escaping @Sendable () -> Void) -> Bool
    ) throws(DBusError) {
        do throws(DBusError) {
            stop = try EventSignal()
        } catch {
            _ = Glibc.close(descriptor)
            throw error
        }
        let loop = ListenerLoop(descriptor, limits, stop, handler)
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
        guard start({ loop.run() }) else {
            let reason = String(cString: strerror(errno))
            _ = Glibc.close(descriptor)
            throw DBusError(.noResources, message: "no thread: \(reason)", attempted: "listen for HTTP")
        }
    }

    deinit { stop.end() }

    /// Ends it, and returns when the socket is closed: another one may be opened at the same address then.
    package func close() async {
        await withCheckedContinuation { continuation in stop.end { continuation.resume() } }
    }
}

/// Wakes the listener's thread, with answers or for its end.
final class EventSignal: Sendable {
    private struct State {
        var answers: [(UInt64, ListenerResponse)] = []
        var isEnded = false
        /// Whether the thread has closed the socket, and whom it tells so.
        var (isClosed, closed): (Bool, [@Sendable () -> Void]) = (false, [])
    }

    private let event: EventDescriptor
    private let state = Locked(State())

    init() throws(DBusError) { event = try EventDescriptor("listen for HTTP") }

    var descriptor: CInt { event.descriptor }

    func answer(_ connection: UInt64, _ response: ListenerResponse) {
        state.withLock { $0.answers.append((connection, response)) }
        event.signal()
    }

    /// - Parameter closed: is called when the socket is closed.
    func end(closed: (@Sendable () -> Void)? = nil) {
        let isClosed = state.withLock { state in
            state.isEnded = true
            if let closed, !state.isClosed { state.closed.append(closed) }
            return state.isClosed
        }
        if isClosed { closed?() }
        event.signal()
    }

    /// The socket is closed.
    func hasClosed() {
        let closed = state.withLock { state in
            defer { (state.isClosed, state.closed) = (true, []) }
            return state.closed
        }
        for tell in closed { tell() }
    }

    /// The answers since the last call; `nil` at the end.
    func take() -> [(UInt64, ListenerResponse)]? {
        event.clear()
        return state.withLock { state in
            defer { state.answers = [] }
            return state.isEnded ? nil : state.answers
        }
    }
}

/// The listener's thread.
///
/// Unchecked: after `run` has begun, its thread alone touches what changes.
private final class ListenerLoop: @unchecked Sendable {
    private enum Phase {
        case reading(RequestParser)
        case handling(Task<Void, Never>)
        case writing(ArraySlice<UInt8>)
        /// The client still sends what nobody wants; a close would make its system forget the answer.
        case draining(left: Int)
    }

    private struct Connection {
        let descriptor: CInt
        let beganAt: ContinuousClock.Instant
        var phase: Phase
        var deadline: ContinuousClock.Instant

        /// Whether the next client may have its place, and before whose: nobody loses anything where the answer is sent.
        var order: Int? {
            switch phase {
            case .draining: 0
            case .reading: 1
            case .handling, .writing: nil
            }
        }

        /// What is waited for.
        var events: Int16 {
            switch phase {
            case .reading, .draining: Int16(POLLIN)
            // The end of the connection is told in any case.
            case .handling: 0
            case .writing: Int16(POLLOUT)
            }
        }
    }

    private let listener: CInt
    private let limits: HTTPListener.Limits
    private let signal: EventSignal
    private let handler: HTTPListener.Handler
    private var connections: [UInt64: Connection] = [:]
    private var next: UInt64 = 0
    private var buffer = [UInt8](repeating: 0, count: 16 << 10)

    init(
        _ listener: CInt,
        _ limits: HTTPListener.Limits,
        _ signal: EventSignal,
        _ handler: @escaping HTTPListener.Handler
    ) {
        self.listener = listener
        self.limits = limits
        self.signal = signal
        self.handler = handler
    }

    func run() {
        while let answers = signal.take() {
            for (number, response) in answers { write(response, to: number) }
            let now = ContinuousClock.now
            for (number, connection) in connections where connection.deadline <= now { late(number, connection) }
            wait()
        }
        for number in Array(connections.keys) { end(number) }
        close(listener)
        signal.hasClosed()
    }

    private func wait() {
        let numbers = Array(connections.keys)
        // With no room, further clients wait in the kernel's queue.
        let hasRoom = connections.count < limits.connections || firstToGo(at: .now) != nil
        var watched = [
            pollfd(fd: signal.descriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: hasRoom ? listener : -1, events: Int16(POLLIN), revents: 0),
        ]
        watched += numbers.compactMap { connections[$0] }.map {
            pollfd(fd: $0.descriptor, events: $0.events, revents: 0)
        }
        let deadline = (connections.values.map(\.deadline) + [hasRoom ? nil : nextRoom].compactMap { $0 }).min()
        guard poll(&watched, nfds_t(watched.count), deadline.map(milliseconds(until:)) ?? -1) > 0 else { return }
        // A request that is there is taken before its place is another client's.
        for (number, look) in zip(numbers, watched.dropFirst(2)) where look.revents != 0 { goOn(number) }
        if watched[1].revents != 0 { accept() }
    }

    /// Who gives its place to the next client: whoever has its answer, or else whose request is not there; the oldest of them, however busy it is.
    private func firstToGo(at now: ContinuousClock.Instant) -> UInt64? {
        let candidates = connections.filter { $0.value.order != nil && $0.value.beganAt + limits.undisturbed <= now }
        return candidates.min { ($0.value.order ?? 0, $0.key) < ($1.value.order ?? 0, $1.key) }?.key
    }

    /// When somebody may have to give its place; `nil` where all wait for their answers.
    private var nextRoom: ContinuousClock.Instant? {
        connections.values.filter { $0.order != nil }.map { $0.beganAt + limits.undisturbed }.min()
    }

    private func accept() {
        if connections.count >= limits.connections {
            guard let first = firstToGo(at: .now) else { return }
            end(first)
        }
        let descriptor = Glibc.accept(listener, nil, nil)
        guard descriptor >= 0 else {
            // Without a free descriptor the client stays in the queue: not asked again at once.
            if errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM { usleep(50_000) }
            return
        }
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        next += 1
        connections[next] = Connection(
            descriptor: descriptor,
            beganAt: .now,
            phase: .reading(RequestParser()),
            deadline: .now + limits.patience
        )
    }

    private func goOn(_ number: UInt64) {
        guard let connection = connections[number] else { return }
        switch connection.phase {
        case .reading(var parser):
            guard let count = read(connection.descriptor) else { return }
            guard count > 0 else { return end(number) }
            switch parser.take(buffer[..<count]) {
            case .incomplete: connections[number]?.phase = .reading(parser)
            case .refused(let status): write(ListenerResponse(status), to: number)
            case .complete(let request): handle(request, number)
            }
        // Readable or not, the client has gone.
        case .handling: end(number)
        case .writing(let bytes): write(bytes, number, connection.descriptor)
        case .draining(let left):
            guard let count = read(connection.descriptor) else { return }
            guard count > 0, left > count else { return end(number) }
            connections[number]?.phase = .draining(left: left - count)
        }
    }

    private func handle(_ request: ReceivedRequest, _ number: UInt64) {
        let (signal, handler) = (signal, handler)
        connections[number]?.deadline = .now + limits.handling
        connections[number]?.phase = .handling(Task { signal.answer(number, await handler(request)) })
    }

    private func late(_ number: UInt64, _ connection: Connection) {
        switch connection.phase {
        case .reading: write(ListenerResponse(408), to: number)
        case .handling, .writing, .draining: end(number)
        }
    }

    private func write(_ response: ListenerResponse, to number: UInt64) {
        guard let connection = connections[number] else { return }
        connections[number]?.deadline = .now + limits.patience
        write(response.bytes[...], number, connection.descriptor)
    }

    private func write(_ bytes: ArraySlice<UInt8>, _ number: UInt64, _ descriptor: CInt) {
        let count = bytes.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
        guard count >= 0 || errno == EAGAIN || errno == EINTR else { return end(number) }
        let rest = bytes.dropFirst(max(0, count))
        guard rest.isEmpty else {
            connections[number]?.phase = .writing(rest)
            return
        }
        shutdown(descriptor, CInt(SHUT_WR))
        connections[number]?.phase = .draining(left: RequestParser.longestBody)
    }

    /// - Returns: how much was read, 0 at the end or for an error; `nil` where nothing is there.
    private func read(_ descriptor: CInt) -> Int? {
        let count = buffer.withUnsafeMutableBytes { recv(descriptor, $0.baseAddress, $0.count, 0) }
        if count < 0, errno == EAGAIN || errno == EINTR { return nil }
        return max(0, count)
    }

    private func end(_ number: UInt64) {
        guard let connection = connections.removeValue(forKey: number) else { return }
        if case .handling(let task) = connection.phase { task.cancel() }
        close(connection.descriptor)
    }
}
