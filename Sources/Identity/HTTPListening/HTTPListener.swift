package import DBusTransport
import Glibc
import Synchronization

/// Responds to HTTP/1.1 requests on one thread: one request a connection, with bounds of size, time and count. A slow or silent client delays no
/// other client. It speaks no TLS.
///
/// Not FlyingFox 0.25: it imports Foundation, which brings ICU along, and bounds a request's time but not how many connections are open.
package final class HTTPListener: Sendable {
    /// The bounds of one listener.
    package struct Limits: Sendable {
        /// Connections at a time. If all places are taken, a client that has no request yet, or has hung up, gives its place to the next one.
        package var connections = 32
        /// How long a request may take to arrive, and its response to be taken.
        package var patience: Duration = .seconds(5)
        /// How long the handler may take; `nil` for any time.
        package var handling: Duration? = .seconds(30)

        package init() {}
    }

    /// Which clients are served, and what is said if the system has no room for them. Both are called on the listener's thread.
    package struct Door: Sendable {
        /// Whether a connection may stay, before anything of it is read and before it takes a place.
        package var permits: @Sendable (CInt) -> Bool = { _ in true }
        /// Is called once if clients wait because the process or the system has no free descriptor, with the reason.
        package var lacksDescriptors: @Sendable (String) -> Void = { _ in }
        /// Whether another process uses the listening socket too, so that it is closed without being shut down.
        package var isShared = false

        package init() {}
    }

    /// Returns the response; `nil` ends the connection without one. Its task is cancelled when the listener closes, or its time is over.
    package typealias Handler = @Sendable (ReceivedRequest) async -> ListenerResponse?

    private let mailbox: Mailbox
    private let ended: AsyncStream<Void>

    /// Begins to listen, and takes ownership of the socket, also if it throws.
    ///
    /// - Parameter descriptor: a socket that listens.
    /// - Throws: `DBusError`: `noResources`.
    package convenience init(
        adopting descriptor: CInt,
        limits: Limits = Limits(),
        door: Door = Door(),
        handler: @escaping Handler
    ) throws(DBusError) {
        try self.init(adopting: descriptor, limits, door, handler) { QuietThread.start("http-listener", $0) != nil }
    }

    /// - Parameter start: runs the listener on a thread of its own; returns whether there is one.
    init(
        adopting descriptor: CInt,
        _ limits: Limits,
        _ door: Door,
        _ handler: @escaping Handler,
        on start: (@escaping @Sendable () -> Void) -> Bool
    ) throws(DBusError) {
        do throws(DBusError) {
            mailbox = try Mailbox()
        } catch {
            _ = Glibc.close(descriptor)
            throw error
        }
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
        ended = stream
        let isStarted = start { [mailbox] in
            var loop = ListenerLoop(
                listener: descriptor,
                limits: limits,
                door: door,
                mailbox: mailbox,
                handler: handler
            )
            loop.run()
            continuation.finish()
        }
        guard isStarted else {
            let reason = String(cString: strerror(errno))
            _ = Glibc.close(descriptor)
            throw DBusError(.noResources, message: "no thread: \(reason)", attempted: "listen for HTTP")
        }
    }

    deinit { mailbox.close() }

    /// Closes the socket, cancels the handlers, and returns when the responses that they still have are sent.
    package func close() async {
        mailbox.close()
        for await _ in ended {}
    }
}

/// Hands responses, and the wish to close, to the listener's thread.
private final class Mailbox: Sendable {
    typealias Response = (connection: UInt64, response: ListenerResponse?)

    private let event: EventDescriptor
    private let state = Locked<(responses: [Response], isClosing: Bool)>(([], false))

    init() throws(DBusError) { event = try EventDescriptor("listen for HTTP") }

    var descriptor: CInt { event.descriptor }

    func respond(_ response: ListenerResponse?, to connection: UInt64) {
        state.withLock { $0.responses.append((connection, response)) }
        event.signal()
    }

    func close() {
        state.withLock { $0.isClosing = true }
        event.signal()
    }

    /// Returns the responses since the last call.
    func take() -> (responses: [Response], isClosing: Bool) {
        event.clear()
        return state.withLock { state in
            defer { state.responses = [] }
            return state
        }
    }
}

/// The connections of a listener. Its thread owns it.
private struct ListenerLoop {
    private enum Phase {
        case reading(RequestParser)
        case handling(Task<Void, Never>)
        case writing(ArraySlice<UInt8>)
        /// The response is sent. A socket that is closed with unread data takes the response back, so the rest of the request is read first.
        case draining(left: Int)
    }

    /// The other end's address without its port; of IPv6 the network, because one host may have all addresses of it.
    private struct Peer: Hashable {
        var (isNetwork, address): (Bool, UInt64) = (false, 0)

        init(_ address: sockaddr_storage) {
            withUnsafeBytes(of: address) { bytes in
                let isVersion6 = CInt(address.ss_family) == AF_INET6
                // An address of IPv4 at a socket of IPv6 has the form ::ffff:1.2.3.4.
                let isMapped =
                    isVersion6 && bytes[8..<18].allSatisfy { $0 == 0 } && bytes[18..<20].allSatisfy { $0 == 255 }
                if isVersion6, !isMapped {
                    (isNetwork, self.address) = (true, bytes.load(fromByteOffset: 8, as: UInt64.self))
                } else if isMapped || CInt(address.ss_family) == AF_INET {
                    self.address = UInt64(bytes.load(fromByteOffset: isMapped ? 20 : 4, as: UInt32.self))
                }
            }
        }
    }

    private struct Connection {
        let descriptor: CInt
        let peer: Peer
        var phase: Phase
        var deadline: ContinuousClock.Instant?
        /// POLLRDHUP (poll(2)), which Swift's Glibc lacks.
        private static let endOfInput: Int16 = 0x2000
        /// Whether the client sends nothing more, while its request is handled.
        var hasHungUp = false

        /// Whether the next client may have its place, and in which order: nothing is lost if the response is sent, or if no client waits for it.
        var yields: Int? {
            switch phase {
            case .draining: 2
            case .handling where hasHungUp: 1
            case .reading: 0
            case .handling, .writing: nil
            }
        }

        var watched: pollfd {
            switch phase {
            case .reading, .draining: pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            case .writing: pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            case .handling: pollfd(fd: hasHungUp ? -1 : descriptor, events: Self.endOfInput, revents: 0)
            }
        }
    }

    /// How many connections are accepted before the others are looked at: few enough that they do not take each other's places.
    private var acceptedAtOnce: Int { max(1, limits.connections / 2) }
    /// How long no connection is accepted if the system has no descriptor for it: it stays in the queue, and would wake this thread all the time.
    private static let shortagePause = Duration.milliseconds(250)

    private var listener: CInt
    private let limits: HTTPListener.Limits
    private let door: HTTPListener.Door
    private let mailbox: Mailbox
    private let handler: HTTPListener.Handler
    private var connections: [UInt64: Connection] = [:]
    /// The number of connections of each peer.
    private var places: [Peer: Int] = [:]
    /// The connections without a place whose handlers, although cancelled, have not returned.
    private var abandoned: Set<UInt64> = []
    private var lastNumber: UInt64 = 0
    private var pausedUntil: ContinuousClock.Instant?
    private var hasToldShortage = false
    private var buffer = [UInt8](repeating: 0, count: 16 << 10)

    init(
        listener: CInt,
        limits: HTTPListener.Limits,
        door: HTTPListener.Door,
        mailbox: Mailbox,
        handler: @escaping HTTPListener.Handler
    ) {
        self.listener = listener
        self.limits = limits
        self.door = door
        self.mailbox = mailbox
        self.handler = handler
    }

    /// Serves until the listener is closed and the last response is sent.
    mutating func run() {
        while listener >= 0 || connections.values.contains(where: { $0.yields == nil }) {
            turn()
            let news = mailbox.take()
            for (number, response) in news.responses {
                if let response { write(response, to: number) } else { end(number) }
                // Also if the connection has just ended: its handler has returned.
                abandoned.remove(number)
            }
            if news.isClosing, listener >= 0 { stopAccepting() }
        }
        for number in Array(connections.keys) { end(number) }
    }

    private mutating func stopAccepting() {
        // A program that is being started at this moment has a copy of the descriptor, and would keep the address.
        if !door.isShared { shutdown(listener, CInt(SHUT_RDWR)) }
        close(listener)
        listener = -1
        for (number, connection) in connections {
            switch connection.phase {
            case .reading: end(number)
            case .handling(let task): task.cancel()
            case .writing, .draining: break
            }
        }
    }

    /// Waits for the next event, and handles it.
    private mutating func turn() {
        if let end = pausedUntil, end <= .now { pausedUntil = nil }
        let numbers = Array(connections.keys)
        // Without room, further clients wait in the kernel's queue.
        let hasRoom = pausedUntil == nil && isOpen
        var watched = [
            pollfd(fd: mailbox.descriptor, events: Int16(POLLIN), revents: 0),
            pollfd(fd: hasRoom ? listener : -1, events: Int16(POLLIN), revents: 0),
        ]
        watched += numbers.compactMap { connections[$0]?.watched }
        let deadline = (connections.values.map(\.deadline) + [pausedUntil]).compactMap { $0 }.min()
        guard poll(&watched, nfds_t(watched.count), deadline.map(milliseconds(until:)) ?? -1) >= 0 else { return }
        for (number, look) in zip(numbers, watched.dropFirst(2)) where look.revents != 0 {
            if case .handling? = connections[number]?.phase { hangUp(number, look.revents) } else { proceed(number) }
        }
        let now = ContinuousClock.now
        for (number, connection) in connections where connection.deadline.map({ $0 <= now }) == true {
            if case .reading = connection.phase { write(ListenerResponse(408), to: number) } else { end(number) }
        }
        if watched[1].revents != 0 { for _ in 0..<acceptedAtOnce where !accept() { break } }
    }

    /// Whether there is a place for another client, or one that is given to it. The handlers are at most twice as many as the places.
    private var isOpen: Bool {
        guard abandoned.count < limits.connections else { return false }
        return connections.count < limits.connections || connections.values.contains { $0.yields != nil }
    }

    /// The connection that gives its place to the next client: of the peer with the most places, so that a flood from one address takes no place of
    /// another one; the oldest of those.
    private var firstToGo: UInt64? {
        var first: (places: Int, order: Int, number: UInt64)?
        for (number, connection) in connections {
            guard let order = connection.yields else { continue }
            let places = places[connection.peer] ?? 0
            if let first, (places, order, first.number) < (first.places, first.order, number) { continue }
            first = (places, order, number)
        }
        return first?.number
    }

    /// - Returns: whether there may be further connections.
    private mutating func accept() -> Bool {
        guard isOpen else { return false }
        var (storage, length) = (sockaddr_storage(), socklen_t(MemoryLayout<sockaddr_storage>.size))
        let descriptor = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.accept(listener, $0, &length) }
        }
        guard descriptor >= 0 else {
            if [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(errno) { pause(String(cString: strerror(errno))) }
            return errno == ECONNABORTED || errno == EINTR
        }
        guard door.permits(descriptor) else {
            close(descriptor)
            return true
        }
        // Swift has no accept4. A program that is started in between gets none of our descriptors either (ProgramStart).
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        while connections.count >= limits.connections, let first = firstToGo {
            // Its request may have arrived since the last look. If all places are taken by such requests, there is one connection too many.
            proceed(first)
            if connections[first]?.yields != nil { end(first) }
        }
        lastNumber += 1
        let peer = Peer(storage)
        places[peer, default: 0] += 1
        connections[lastNumber] = Connection(
            descriptor: descriptor,
            peer: peer,
            phase: .reading(RequestParser()),
            deadline: .now + limits.patience
        )
        // A request that is there already cannot lose its place to the next client.
        proceed(lastNumber)
        return true
    }

    private mutating func pause(_ reason: String) {
        pausedUntil = .now + Self.shortagePause
        guard !hasToldShortage else { return }
        hasToldShortage = true
        door.lacksDescriptors(reason)
    }

    // MARK: One connection

    private mutating func proceed(_ number: UInt64) {
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
        case .handling: break
        case .writing(let bytes): write(bytes, number, connection.descriptor)
        case .draining(let left):
            guard let count = read(connection.descriptor) else { return }
            guard count > 0, left > count else { return end(number) }
            connections[number]?.phase = .draining(left: left - count)
        }
    }

    /// The client may still wait for the response if it has ended its own direction alone.
    private mutating func hangUp(_ number: UInt64, _ events: Int16) {
        if events & Int16(POLLHUP | POLLERR) != 0 { end(number) } else { connections[number]?.hasHungUp = true }
    }

    private mutating func handle(_ request: ReceivedRequest, _ number: UInt64) {
        let (mailbox, handler) = (mailbox, handler)
        let deadline = limits.handling.map { ContinuousClock.now + $0 }
        connections[number]?.deadline = deadline
        connections[number]?.phase = .handling(Task { mailbox.respond(await handler(request), to: number) })
    }

    private mutating func write(_ response: ListenerResponse, to number: UInt64) {
        guard let connection = connections[number] else { return }
        let deadline = ContinuousClock.now + limits.patience
        connections[number]?.deadline = deadline
        write(response.bytes[...], number, connection.descriptor)
    }

    private mutating func write(_ bytes: ArraySlice<UInt8>, _ number: UInt64, _ descriptor: CInt) {
        // No signal if the client has hung up.
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

    /// - Returns: the number of bytes read, 0 at the end or for an error; `nil` if there are none yet.
    private mutating func read(_ descriptor: CInt) -> Int? {
        let count = buffer.withUnsafeMutableBytes { recv(descriptor, $0.baseAddress, $0.count, 0) }
        if count < 0, errno == EAGAIN || errno == EINTR { return nil }
        return max(0, count)
    }

    private mutating func end(_ number: UInt64) {
        guard let connection = connections.removeValue(forKey: number) else { return }
        let rest = (places[connection.peer] ?? 1) - 1
        places[connection.peer] = rest > 0 ? rest : nil
        switch connection.phase {
        case .handling(let task):
            task.cancel()
            abandoned.insert(number)
        case .draining(let left):
            for _ in 0...(left / buffer.count) where (read(connection.descriptor) ?? 0) == 0 { break }
        case .reading, .writing: break
        }
        close(connection.descriptor)
        // There is a descriptor again.
        pausedUntil = nil
    }
}
