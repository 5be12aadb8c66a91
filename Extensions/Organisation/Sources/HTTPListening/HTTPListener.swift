import Basics
package import DBus
import Glibc
import Synchronization

/// An HTTP/1.1 server on one thread. Each connection serves one request. Sizes, times and the number of connections are
/// limited. A slow or silent client delays no other client. There is no TLS.
///
/// Not FlyingFox 0.25: it imports Foundation, which loads ICU, and limits a request's time but not the number of open
/// connections.
package final class HTTPListener: Sendable {
    package struct Options: Sendable {
        /// The most open connections. If all are in use, the next client displaces a client that has sent no request
        /// yet or has hung up.
        package var connections = 32
        /// The time limit for receiving a request, and for sending its response.
        package var patience: Duration = .seconds(5)
        /// The time limit of the handler; `nil` for none.
        package var handling: Duration? = .seconds(30)
        /// Whether to keep a connection. Called on the listener's thread, before anything is read and before the
        /// connection counts.
        package var permits: @Sendable (CInt) -> Bool = { _ in true }
        /// Called once on the listener's thread, with the reason, if clients have to wait because the process or the
        /// system has no free descriptor.
        package var lacksDescriptors: @Sendable (String) -> Void = { _ in }
        /// Whether another process uses the listening socket, too. It is then closed without a shutdown.
        package var isShared = false

        package init() {}
    }

    /// Returns the response; `nil` ends the connection without one. The task is cancelled when the listener closes, or
    /// after the time limit.
    package typealias Handler = @Sendable (ReceivedRequest) async -> ListenerResponse?

    private let mailbox: Mailbox
    private let ended: AsyncStream<Void>

    /// Starts to listen. Takes ownership of the socket, even if it throws.
    ///
    /// - Throws: `DBusError`: `noResources`.
    package convenience init(
        adopting descriptor: CInt,
        options: Options = Options(),
        handler: @escaping Handler
    ) throws(DBusError) {
        try self.init(adopting: descriptor, options, handler) { QuietThread.start("http-listener", $0) != nil }
    }

    /// - Parameter start: Runs the listener on a new thread, and returns whether that thread was started.
    init(
        adopting descriptor: CInt,
        _ options: Options,
        _ handler: @escaping Handler,
        on start: (@escaping @Sendable () -> Void) -> Bool
    ) throws(DBusError) {
        do {
            mailbox = try Mailbox()
        } catch {
            _ = Glibc.close(descriptor)
            throw DBusError(error)
        }
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
        let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
        ended = stream
        let isStarted = start { [mailbox] in
            var loop = ListenerLoop(listener: descriptor, options: options, mailbox: mailbox, handler: handler)
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

    /// Closes the socket, cancels the handlers, and returns after their last responses are sent.
    package func close() async {
        mailbox.close()
        for await _ in ended {}
    }
}

/// Passes responses and the request to close to the listener's thread.
private final class Mailbox: Sendable {
    typealias Response = (connection: UInt64, response: ListenerResponse?)

    private let event: EventDescriptor
    private let state = Locked<(responses: [Response], isClosing: Bool)>(([], false))

    init() throws(OutOfDescriptors) { event = try EventDescriptor("listen for HTTP") }

    var descriptor: CInt { event.descriptor }

    func respond(_ response: ListenerResponse?, to connection: UInt64) {
        state.withLock { $0.responses.append((connection, response)) }
        event.signal()
    }

    func close() {
        state.withLock { $0.isClosing = true }
        event.signal()
    }

    func take() -> (responses: [Response], isClosing: Bool) {
        event.clear()
        return state.withLock { state in
            defer { state.responses = [] }
            return state
        }
    }
}

/// The connections of a listener. Owned by its thread.
private struct ListenerLoop {
    enum Phase {
        case reading(RequestParser)
        case handling(Task<Void, Never>)
        case writing(ArraySlice<UInt8>)
        /// The response is sent. The rest of the request is still read, because closing a socket with unread data
        /// discards the response.
        case draining(left: Int)
    }

    /// The client's address without its port. For IPv6 only the network, because one host may use all its addresses.
    struct Peer: Hashable {
        var (isNetwork, address): (Bool, UInt64) = (false, 0)

        init(_ address: sockaddr_storage) {
            withUnsafeBytes(of: address) { bytes in
                let isVersion6 = CInt(address.ss_family) == AF_INET6
                // An IPv4 address on an IPv6 socket has the form ::ffff:1.2.3.4.
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

    struct Connection {
        let descriptor: CInt
        let peer: Peer
        var phase: Phase
        var deadline: ContinuousClock.Instant?
        /// POLLRDHUP (poll(2)), which Swift's Glibc lacks.
        private static let endOfInput: Int16 = 0x2000
        /// Whether the client has stopped sending while its request is handled.
        var hasHungUp = false

        /// Whether the connection may be dropped for the next client, with its priority: highest if the response is
        /// sent, then if no client waits for it.
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

    /// The most connections accepted in one turn. Half of the limit, so that new connections do not displace each
    /// other.
    private var acceptedAtOnce: Int { max(1, options.connections / 2) }
    /// The pause in accepting while no descriptor is free. The waiting connection would wake the thread continuously.
    private static let shortagePause = Duration.milliseconds(250)

    var listener: CInt
    let options: HTTPListener.Options
    let mailbox: Mailbox
    let handler: HTTPListener.Handler
    var connections: [UInt64: Connection] = [:]
    /// The number of connections of each peer.
    var places: [Peer: Int] = [:]
    /// Ended connections whose cancelled handlers have not returned yet.
    var abandoned: Set<UInt64> = []
    var lastNumber: UInt64 = 0
    var pausedUntil: ContinuousClock.Instant?
    var hasToldShortage = false
    var buffer = [UInt8](repeating: 0, count: 16 << 10)

    /// Runs until the listener is closed and the last response is sent.
    mutating func run() {
        while listener >= 0 || connections.values.contains(where: { $0.yields == nil }) {
            turn()
            let news = mailbox.take()
            for (number, response) in news.responses {
                if let response { write(response, to: number) } else { end(number) }
                // Also for a connection that has already ended: its handler has returned.
                abandoned.remove(number)
            }
            if news.isClosing, listener >= 0 { stopAccepting() }
        }
        for number in Array(connections.keys) { end(number) }
    }

    private mutating func stopAccepting() {
        // A child process that is being started may have a copy of the descriptor, which would keep the address in use.
        if !options.isShared { shutdown(listener, CInt(SHUT_RDWR)) }
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

    private mutating func turn() {
        if let end = pausedUntil, end <= .now { pausedUntil = nil }
        let numbers = Array(connections.keys)
        // While all places are taken, further clients wait in the kernel's queue.
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

    /// Whether another connection can be accepted, if necessary by dropping another. Abandoned handlers are limited to
    /// the number of connections, so there are at most twice as many handlers.
    private var isOpen: Bool {
        guard abandoned.count < options.connections else { return false }
        return connections.count < options.connections || connections.values.contains { $0.yields != nil }
    }

    /// The connection to drop for the next client: one of the peer with the most connections, so that a flood from one
    /// address only displaces its own. Among these by priority, then the oldest.
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

    /// - Returns: Whether there may be further connections.
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
        guard options.permits(descriptor) else {
            close(descriptor)
            return true
        }
        // Swift has no accept4. A child process that starts in between gets no copy of the descriptor (ProgramStart).
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        while connections.count >= options.connections, let first = firstToGo {
            // Its request may have arrived since the last poll. If all connections have requests, the limit is exceeded
            // by one.
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
            deadline: .now + options.patience
        )
        // A request that has already arrived protects the connection from being dropped.
        proceed(lastNumber)
        return true
    }

    private mutating func pause(_ reason: String) {
        pausedUntil = .now + Self.shortagePause
        guard !hasToldShortage else { return }
        hasToldShortage = true
        options.lacksDescriptors(reason)
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

    /// A client that has only shut down its own direction may still wait for the response.
    private mutating func hangUp(_ number: UInt64, _ events: Int16) {
        if events & Int16(POLLHUP | POLLERR) != 0 { end(number) } else { connections[number]?.hasHungUp = true }
    }

    private mutating func handle(_ request: ReceivedRequest, _ number: UInt64) {
        let (mailbox, handler) = (mailbox, handler)
        let deadline = options.handling.map { ContinuousClock.now + $0 }
        connections[number]?.deadline = deadline
        connections[number]?.phase = .handling(Task { mailbox.respond(await handler(request), to: number) })
    }

    private mutating func write(_ response: ListenerResponse, to number: UInt64) {
        guard let connection = connections[number] else { return }
        let deadline = ContinuousClock.now + options.patience
        connections[number]?.deadline = deadline
        write(response.bytes[...], number, connection.descriptor)
    }

    private mutating func write(_ bytes: ArraySlice<UInt8>, _ number: UInt64, _ descriptor: CInt) {
        // MSG_NOSIGNAL: no SIGPIPE if the client has disconnected.
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

    /// - Returns: The number of bytes read, 0 at the end or after an error; `nil` if there are none yet.
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
        // A descriptor is free again.
        pausedUntil = nil
    }
}
