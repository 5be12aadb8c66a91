import Basics
import CDBus
import Glibc
import Synchronization

/// One libdbus connection. Its deallocation closes it. The library polls the descriptor, never libdbus, which would
/// hold its I/O path while it sleeps (architecture, D3).
///
/// Calls that may touch the socket run under ``access`` and return at once: a call that finds the connection lost frees
/// its watches, which the reading thread must not be using at that time.
final class BusSocket: Sendable {
    // Unsafe: the pointer is constant, and libdbus locks its connections (dbus_threads_init_default).
    nonisolated(unsafe) private let connection: OpaquePointer
    private let watches = WatchList()
    private let reader = MessageReader()
    private let access = Locked(())
    private let process = ForkedChild.Process()
    let uniqueName: String

    /// Work that the connecting thread does during its wait for the bus.
    struct OtherWork {
        /// Readable if there is work.
        let descriptor: CInt
        /// Does the work, and makes the descriptor unreadable. Returns whether the connection is still wanted.
        let perform: () -> Bool
    }

    /// Connects to the bus and registers this process (Hello). Waits until `limit`, and at most 25 seconds.
    init(
        address: String,
        opener: BusOpener = BusOpener(),
        by limit: ContinuousClock.Instant? = nil,
        meanwhile other: OtherWork? = nil
    ) throws(DBusError) {
        let attempted = "connect to the bus at \(address)"
        try BusAddress.check(address, attempted)
        guard onLibdbus({ dbus_threads_init_default() != 0 }) else { throw DBusMessage.outOfMemory(attempted) }
        let deadline = min(.now + Self.connectTimeout, limit ?? .now + Self.connectTimeout)
        let connection = try opener.open(address, by: deadline, meanwhile: other, attempted)
        // Without this, libdbus ends the process when the bus is lost.
        dbus_connection_set_exit_on_disconnect(connection, 0)
        // Without this, libdbus stops reading while the process holds messages of 63 MiB (architecture, D4).
        dbus_connection_set_max_received_size(connection, .max)
        guard watches.attach(to: connection) else {
            BusSocket.discard(connection)
            throw DBusMessage.outOfMemory(attempted)
        }
        do throws(DBusError) {
            try watches.authenticate(connection, by: deadline, other, attempted)
            uniqueName = try watches.introduce(connection, reader, by: deadline, other, attempted)
        } catch {
            if watches.isSocketIntact() { BusSocket.discard(connection) }
            throw error
        }
        self.connection = connection
    }

    /// How long an attempt to connect waits for a stopped bus.
    static let connectTimeout: Duration = .seconds(25)

    deinit {
        // In a forked child a thread of the parent may have held libdbus's lock, so the copy leaks.
        guard process.isCurrent else { return }
        // If the program has reused the number, libdbus would close its file. So the connection leaks.
        guard watches.isSocketIntact() else { return }
        BusSocket.discard(connection)
    }

    /// Ends the connection in both directions.
    func shutDown() {
        let descriptor = standing.descriptor
        if descriptor >= 0 { shutdown(descriptor, CInt(SHUT_RDWR)) }
    }

    static func discard(_ connection: OpaquePointer) {
        onLibdbus {
            dbus_connection_close(connection)
            dbus_connection_unref(connection)
        }
    }

    /// The state of the socket after a libdbus call.
    struct Standing: Sendable {
        /// False once the bus is gone, or the program has closed the socket. libdbus has no watches then.
        let isConnected: Bool
        /// Whether libdbus holds messages that the socket did not accept.
        let hasUnsentMessages: Bool
        /// The descriptor to poll; negative if there is none.
        let descriptor: CInt
    }

    var standing: Standing {
        access.withLock { _ in
            _ = watches.isSocketIntact()
            return watches.standing
        }
    }

    /// About how many sent bytes the bus has not read; `nil` if the kernel does not report it.
    var unreadBytes: Int? {
        access.withLock { _ in
            guard watches.isSocketIntact() else { return nil }
            var inSocket: CInt = 0
            // SIOCOUTQ
            guard ioctl(watches.standing.descriptor, UInt(TIOCOUTQ), &inSocket) == 0 else { return nil }
            return Int(inSocket) + Int(dbus_connection_get_outgoing_size(connection))
        }
    }

    /// The identifier that the bus sent when it admitted this connection.
    var busIdentifier: String? {
        accessing {
            guard let identifier = dbus_connection_get_server_id(connection) else { return nil }
            defer { dbus_free(identifier) }
            return String(cString: identifier)
        }
    }

    /// Calls libdbus with ``access`` held.
    private func accessing<Result: Sendable, Failure: Error>(
        _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try onLibdbus { () throws(Failure) in try access.withLock { _ throws(Failure) in try body() } }
    }

    /// How many bytes libdbus may queue for a bus that does not read. Beyond that every send fails.
    static let unsentLimit = 64 * 1024 * 1024

    /// Sends from any thread. libdbus writes at once what the socket accepts. The standing tells if the bus is gone.
    ///
    /// - Throws: ``DBusError/Code/limitsExceeded`` if the bus has left ``unsentLimit`` bytes unread;
    ///   ``DBusError/Code/noResources`` for lack of memory.
    func send(
        _ message: borrowing DBusMessage,
        serial: UInt32,
        attempted: @autoclosure () -> String
    ) throws(DBusError) -> Standing {
        if message.serial == 0 { message.setSerial(serial) }
        return try accessing { () throws(DBusError) in
            if watches.hasUnsentMessages, dbus_connection_get_outgoing_size(connection) > Self.unsentLimit {
                let message = "the bus has not read the \(Self.unsentLimit) bytes that were sent before"
                let remedy = "find out why the bus daemon does not read"
                throw DBusError(.limitsExceeded, message: message, attempted: attempted(), remedy: remedy)
            }
            guard watches.isSocketIntact() else { return watches.standing }
            guard !watches.hasPeerHungUp else { return watches.standing(isConnected: false) }
            guard dbus_connection_send(connection, message.pointer, nil) != 0 else {
                throw DBusMessage.outOfMemory(attempted())
            }
            watches.noteUnsentMessages()
            return watches.standing
        }
    }

    enum Writing { case done, busGone, timedOut }

    /// Waits until libdbus has written its queue: a slow bus slows its senders, and does not fill their memory.
    func writeAll(by deadline: ContinuousClock.Instant) -> Writing {
        while true {
            let standing = standing
            guard standing.isConnected else { return .busGone }
            guard standing.hasUnsentMessages else { return .done }
            guard ContinuousClock.now < deadline else { return .timedOut }
            let events = pollOnce(standing.descriptor, CShort(POLLOUT), until: deadline)
            // libdbus does not report a failed write; only a reader notices the end.
            if events & CShort(POLLHUP | POLLERR | POLLNVAL) != 0 { return .busGone }
            if events != 0 { transfer(events) }
        }
    }

    /// Reads and writes as far as the descriptor is ready, without waiting. Called on the reading thread.
    func transfer(_ events: CShort) {
        accessing { if watches.isSocketIntact() { watches.transfer(events, reader) } }
    }

    enum Next: ~Copyable {
        /// A message. `last` is the state of the socket if the buffer is empty now.
        case message(MessageReader.Arrival, last: Standing?)
        /// The buffer has no complete message.
        case none(Standing)
    }

    /// The next message from the buffer. Called on the reading thread; `judge` gets each header once.
    func next(_ judge: (borrowing MessageHeader) -> MessageReader.Verdict) -> Next {
        let arrival = reader.next(judge)
        if reader.isCorrupt { shutDown() }
        guard let arrival else { return .none(standing) }
        return .message(arrival, last: reader.isEmpty ? standing : nil)
    }

    /// Lets the bus read everything sent before it sees the end, and waits for it until `deadline` at most. After a
    /// plain `close` with unread data, the kernel reports an error, and dbus-daemon drops the data.
    func finish(by deadline: ContinuousClock.Instant) {
        guard writeAll(by: deadline) == .done else { return }
        let standing = standing
        guard standing.isConnected else { return }
        shutdown(standing.descriptor, CInt(SHUT_WR))
        readToEnd(by: deadline)
    }

    private func readToEnd(by deadline: ContinuousClock.Instant) {
        while true {
            let descriptor = standing.descriptor
            guard descriptor >= 0, discardInput(of: descriptor) == EAGAIN, .now < deadline else { return }
            _ = pollOnce(descriptor, CShort(POLLIN), until: deadline)
        }
    }
}

/// The watches of one connection. libdbus adds, removes and toggles them inside the library's calls, with the socket's
/// `access` held; all other access holds it too.
private final class WatchList: @unchecked Sendable {
    private struct Watch {
        let pointer: OpaquePointer
        let events: CShort
        /// As libdbus last reported: asking each time costs more than the rest of a send.
        var isEnabled: Bool
    }

    // Unchecked: accessed only with the socket's `access` held.
    private var watches: [Watch] = []
    /// Whether the program has closed the socket, so that the libdbus connection must not be touched.
    private var isAbandoned = false
    private var socket = OwnedDescriptor.none
    private var isRemote = false

    var standing: BusSocket.Standing { standing(isConnected: !watches.isEmpty) }

    func standing(isConnected: Bool) -> BusSocket.Standing {
        BusSocket.Standing(isConnected: isConnected, hasUnsentMessages: hasUnsentMessages, descriptor: socket.number)
    }

    /// Whether the bus has ended a TCP connection: the next write would succeed and be lost. One to a local socket
    /// fails.
    var hasPeerHungUp: Bool {
        guard isRemote else { return false }
        return pollOnce(socket.number, Self.hangUpForReading, until: .now) != 0
    }

    /// `POLLRDHUP`, which Swift's Glibc module lacks.
    private static let hangUpForReading: CShort = 0x2000

    /// Whether libdbus may use its socket. Once the program has closed it, the connection counts as lost.
    func isSocketIntact() -> Bool {
        if isAbandoned { return false }
        if socket == .none || socket.isIntact { return true }
        isAbandoned = true
        watches = []
        forgetSocket()
        return false
    }

    /// libdbus enables the watch for writing while it holds messages that the socket did not accept.
    var hasUnsentMessages: Bool { watches.contains { $0.isEnabled && $0.events & CShort(POLLOUT) != 0 } }

    private var isCountedAsUnsent = false

    /// Counts this socket while it holds unsent messages. Called after libdbus returns, which briefly holds every
    /// message: a signal handler that interrupts it may end the process.
    func noteUnsentMessages() {
        guard hasUnsentMessages != isCountedAsUnsent else { return }
        isCountedAsUnsent.toggle()
        ProcessExit.unsentSockets.wrappingAdd(isCountedAsUnsent ? 1 : -1, ordering: .relaxed)
    }

    /// Reads what has arrived, up to a limit, and writes what the socket accepts. libdbus itself reads only the
    /// authentication, and is told of the end when nothing is left to read.
    func transfer(_ ready: CShort, _ reader: MessageReader) {
        defer { noteUnsentMessages() }
        let hasArrived = ready & CShort(POLLIN) != 0
        guard hasArrived, reader.fill(from: socket.number) else { return handle(ready) }
        let others = ready & ~CShort(POLLIN | POLLHUP)
        if others != 0 { handle(others) }
    }

    private func handle(_ ready: CShort) {
        let failures = CShort(POLLHUP | POLLERR | POLLNVAL)
        for watch in watches {
            // Handling one watch may have freed or disabled the other.
            guard watches.contains(where: { $0.pointer == watch.pointer && $0.isEnabled }) else { continue }
            let events = ready & (watch.events | failures)
            if events != 0 { dbus_watch_handle(watch.pointer, Self.flags(events)) }
        }
    }

    // MARK: Connecting, before other threads use the connection

    /// The longest response to Hello in bytes: a name, or an error's text.
    private static let longestGreeting = 64 << 10

    func authenticate(
        _ connection: OpaquePointer,
        by deadline: ContinuousClock.Instant,
        _ other: BusSocket.OtherWork?,
        _ attempted: String
    ) throws(DBusError) {
        while onLibdbus({ dbus_connection_get_is_authenticated(connection) == 0 }) {
            guard !watches.isEmpty else { throw .notAdmitted("the bus does not admit this process", attempted) }
            try wait(by: deadline, other, "admitted this process", attempted)
        }
    }

    /// Sends Hello, and returns the unique name from the response. `dbus_bus_register` would hold a lock for all
    /// connections of the process until the bus responds. A stopped bus would then stop the connections to other buses.
    func introduce(
        _ connection: OpaquePointer,
        _ reader: MessageReader,
        by deadline: ContinuousClock.Instant,
        _ other: BusSocket.OtherWork?,
        _ attempted: String
    ) throws(DBusError) -> String {
        let hello = try DBusMessage.busCall("Hello")
        var serial: UInt32 = 0
        guard onLibdbus({ dbus_connection_send(connection, hello.pointer, &serial) != 0 }) else {
            throw DBusMessage.outOfMemory(attempted)
        }
        while true {
            while let arrival = reader.next({ $0.bodyBytes <= Self.longestGreeting ? .read(nil) : .passOver }) {
                let answer = arrival.message.sharedReference()
                // Only the bus can send to this connection so early: no peer knows its name.
                guard answer.replySerial == serial, hello.mayBeAnswered(by: answer.sender) else { continue }
                if let name = answer.errorName {
                    throw .noBus(answer.firstString ?? "no reason was given", name: name, attempted)
                }
                guard let name = answer.firstString else {
                    throw .noBus("the response to Hello has no name", attempted)
                }
                return name
            }
            guard !watches.isEmpty else { throw .notAdmitted("the bus has hung up", attempted) }
            guard !reader.isCorrupt else {
                throw .notAdmitted("the bus has sent data that is not a D-Bus message", attempted)
            }
            try wait(by: deadline, other, "responded", attempted, reader)
        }
    }

    private func wait(
        by deadline: ContinuousClock.Instant,
        _ other: BusSocket.OtherWork?,
        _ what: String,
        _ attempted: String,
        _ reader: MessageReader? = nil
    ) throws(DBusError) {
        guard ContinuousClock.now < deadline else { throw .stoppedBus(what, attempted) }
        let events = CShort(hasUnsentMessages ? POLLIN | POLLOUT : POLLIN)
        guard let ready = other.whileWaiting(for: events, of: socket.number, until: deadline) else {
            throw .closed(attempted)
        }
        guard isSocketIntact() else { return }
        onLibdbus { if let reader { transfer(ready, reader) } else { handle(ready) } }
    }

    private static func flags(_ events: CShort) -> UInt32 {
        (events & CShort(POLLIN) != 0 ? DBUS_WATCH_READABLE.rawValue : 0)
            | (events & CShort(POLLOUT) != 0 ? DBUS_WATCH_WRITABLE.rawValue : 0)
            | (events & CShort(POLLHUP) != 0 ? DBUS_WATCH_HANGUP.rawValue : 0)
            | (events & CShort(POLLERR | POLLNVAL) != 0 ? DBUS_WATCH_ERROR.rawValue : 0)
    }

    /// The connection keeps the list alive until it is freed.
    func attach(to connection: OpaquePointer) -> Bool {
        let added = onLibdbus {
            dbus_connection_set_watch_functions(
                connection,
                { watch, data in
                    guard let watch, let data else { return 0 }
                    WatchList.at(data).add(watch)
                    return 1
                },
                { watch, data in
                    guard let watch, let data else { return }
                    WatchList.at(data).remove(watch)
                },
                { watch, data in
                    guard let watch, let data else { return }
                    WatchList.at(data).toggle(watch)
                },
                Unmanaged.passRetained(self).toOpaque(),
                { data in
                    guard let data else { return }
                    Unmanaged<WatchList>.fromOpaque(data).release()
                }
            )
        }
        return added != 0
    }

    private func add(_ watch: OpaquePointer) {
        let flags = dbus_watch_get_flags(watch)
        let events =
            (flags & DBUS_WATCH_READABLE.rawValue != 0 ? CShort(POLLIN) : 0)
            | (flags & DBUS_WATCH_WRITABLE.rawValue != 0 ? CShort(POLLOUT) : 0)
        watches.append(Watch(pointer: watch, events: events, isEnabled: dbus_watch_get_enabled(watch) != 0))
        guard socket == .none else { return }
        socket = OwnedDescriptor(dbus_watch_get_unix_fd(watch))
        ForkedChild.add(socket)
        isRemote = !isLocal(socket.number)
    }

    private func toggle(_ watch: OpaquePointer) {
        guard let index = watches.firstIndex(where: { $0.pointer == watch }) else { return }
        watches[index].isEnabled = dbus_watch_get_enabled(watch) != 0
    }

    /// libdbus removes the watches before it closes their descriptor.
    private func remove(_ watch: OpaquePointer) {
        watches.removeAll { $0.pointer == watch }
        if watches.isEmpty { forgetSocket() }
    }

    private func forgetSocket() {
        guard socket != .none else { return }
        ForkedChild.remove(socket)
        socket = .none
        noteUnsentMessages()
    }

    private static func at(_ data: UnsafeMutableRawPointer) -> WatchList {
        Unmanaged<WatchList>.fromOpaque(data).takeUnretainedValue()
    }
}

extension BusSocket.OtherWork? {
    /// Waits until the descriptor is ready for one of the events, there is other work, which it does, or the deadline.
    ///
    /// - Returns: the events that the descriptor is ready for, none if it is negative; `nil` if the connection is not
    ///   wanted any more.
    func whileWaiting(for events: CShort, of descriptor: CInt, until deadline: ContinuousClock.Instant) -> CShort? {
        let timeout = milliseconds(until: deadline)
        let (ready, hasWork) = pollBoth(descriptor, events, self?.descriptor ?? -1, timeout: timeout)
        if hasWork, let self, !self.perform() { return nil }
        return ready
    }
}

/// Waits until the descriptor is ready for one of the events, or the other one is readable. Ignores a negative
/// descriptor.
func pollBoth(_ one: CInt, _ events: CShort, _ other: CInt, timeout: CInt) -> (ready: CShort, isOtherReady: Bool) {
    var entries = (pollfd(fd: one, events: events, revents: 0), pollfd(fd: other, events: CShort(POLLIN), revents: 0))
    withUnsafeMutableBytes(of: &entries) { bytes in
        _ = poll(bytes.assumingMemoryBound(to: pollfd.self).baseAddress, 2, timeout)
    }
    return (entries.0.revents, entries.1.revents != 0)
}

/// Waits until the descriptor is ready for one of the events; returns the events that it is ready for.
func pollOnce(_ descriptor: CInt, _ events: CShort, until deadline: ContinuousClock.Instant) -> CShort {
    var entry = pollfd(fd: descriptor, events: events, revents: 0)
    return poll(&entry, 1, milliseconds(until: deadline)) > 0 ? entry.revents : 0
}

/// Discards what has arrived at a socket, a part of it if that is much. Allocates nothing: Swift puts at most 1024
/// bytes of temporary memory on the stack. Returns 0 if the peer has ended; otherwise the error, `EAGAIN` if more may
/// arrive.
func discardInput(of socket: CInt) -> CInt {
    withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 1) { buffer in
        var rounds = 0
        while rounds < 256 {
            rounds += 1
            let count = recv(socket, buffer.baseAddress, buffer.count, CInt(MSG_DONTWAIT))
            if count == 0 { return 0 }
            if count < 0, errno != EINTR { return errno }
        }
        return EAGAIN
    }
}

/// Whether the socket's peer is on this machine, as far as the kernel tells.
func isLocal(_ socket: CInt) -> Bool {
    var domain: CInt = 0
    var size = socklen_t(MemoryLayout<CInt>.size)
    return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain == AF_UNIX
}
