import CDBus
import Glibc
import Synchronization

/// One connection of libdbus. Its end of life closes it.
///
/// The descriptor is polled by us and never by libdbus, which would hold the way to the socket while it sleeps
/// (architecture, D3). Every call that may touch the socket runs under ``access`` and returns at once: libdbus frees the
/// watches of a lost connection inside whichever call finds it lost, and the reading thread must not have one in its hands then.
final class BusSocket: Sendable {
    // The pointer itself is constant, and libdbus locks its connections (dbus_threads_init_default).
    nonisolated(unsafe) private let connection: OpaquePointer
    private let watches = WatchList()
    private let reader = MessageReader()
    private let access = Locked(())
    private let process = ForkedChild.Process()
    /// The name that the bus gave this connection.
    let uniqueName: String

    /// What the thread that connects does beside waiting for the bus.
    struct OtherWork {
        /// Readable when there is something to do.
        let descriptor: CInt
        /// Does it, and makes the descriptor unreadable. Returns whether the connection is still wanted.
        let perform: () -> Bool
    }

    /// Connects to the bus and introduces this process to it (Hello). Waits for the bus, which answers at once unless it is stopped, at most
    /// 25 seconds, and not beyond `limit`.
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
        // Otherwise a lost bus ends the process.
        dbus_connection_set_exit_on_disconnect(connection, 0)
        // Otherwise libdbus stops reading at 63 MiB of messages that somebody still holds (architecture, D4).
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

    /// How long an attempt to connect waits for a bus that is stopped.
    static let connectTimeout: Duration = .seconds(25)

    deinit {
        // In a forked child another thread of the parent's may have held libdbus's lock: the copy is left as it is.
        guard process.isCurrent else { return }
        // Otherwise libdbus would close a file of the program: its copy is left as it is.
        guard watches.isSocketIntact() else { return }
        BusSocket.discard(connection)
    }

    /// Ends the connection for both sides.
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

    /// The state of the socket after a call of libdbus.
    struct Standing: Sendable {
        /// False once the bus is gone, or the program has closed the socket; libdbus has no watches then.
        let isConnected: Bool
        /// Whether libdbus holds messages that the socket did not take.
        let hasUnsentMessages: Bool
        /// What to poll; negative where there is nothing to poll.
        let descriptor: CInt
    }

    var standing: Standing { access.withLock { _ in watches.checkedStanding } }

    /// About how many bytes the bus has not read of what was sent; `nil` where the kernel does not say.
    var unreadBytes: Int? {
        access.withLock { _ in
            guard watches.isSocketIntact() else { return nil }
            var inSocket: CInt = 0
            // SIOCOUTQ
            guard ioctl(watches.standing.descriptor, UInt(TIOCOUTQ), &inSocket) == 0 else { return nil }
            return Int(inSocket) + Int(dbus_connection_get_outgoing_size(connection))
        }
    }

    /// As the bus gave it when it admitted this connection.
    var busIdentifier: String? {
        accessing {
            guard let identifier = dbus_connection_get_server_id(connection) else { return nil }
            defer { dbus_free(identifier) }
            return String(cString: identifier)
        }
    }

    /// Calls libdbus with the way to the socket held.
    private func accessing<Result: Sendable>(_ body: () -> Result) -> Result {
        onLibdbus { access.withLock { _ in body() } }
    }

    /// How many bytes libdbus may hold for a bus that does not read. Beyond them every send fails.
    static let unsentLimit = 64 * 1024 * 1024

    /// Sends, from any thread: libdbus writes at once what the socket takes. Where the bus is gone, the standing says so.
    ///
    /// - Parameter serial: for a message that was never sent.
    /// - Throws: ``DBusError/Code/limitsExceeded`` where the bus has not read ``unsentLimit`` bytes;
    ///   ``DBusError/Code/noResources``, for lack of memory.
    func send(
        _ message: borrowing DBusMessage,
        serial: UInt32,
        attempted: @autoclosure () -> String
    ) throws(DBusError) -> Standing {
        if dbus_message_get_serial(message.pointer) == 0 { dbus_message_set_serial(message.pointer, serial) }
        enum Outcome {
            case queued(Standing)
            case full, outOfMemory
        }
        let outcome = accessing { () -> Outcome in
            if watches.hasUnsentMessages, dbus_connection_get_outgoing_size(connection) > Self.unsentLimit {
                return .full
            }
            guard watches.isSocketIntact() else { return .queued(watches.standing) }
            guard !watches.hasPeerHungUp else { return .queued(watches.standing(isConnected: false)) }
            guard dbus_connection_send(connection, message.pointer, nil) != 0 else { return .outOfMemory }
            watches.noteUnsentMessages()
            return .queued(watches.standing)
        }
        switch outcome {
        case .queued(let standing): return standing
        case .outOfMemory: throw DBusMessage.outOfMemory(attempted())
        case .full:
            throw DBusError(
                .limitsExceeded,
                message: "the bus has not read the \(Self.unsentLimit) bytes that were sent before",
                attempted: attempted(),
                remedy: "find out why the bus daemon does not read"
            )
        }
    }

    enum Writing { case done, busGone, timedOut }

    /// Waits on this thread until libdbus has written its queue: a bus that is slow slows its senders, instead of filling their memory.
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

    /// Reads and writes what the descriptor is ready for, without waiting. Called on the reading thread.
    func transfer(_ events: CShort) {
        accessing { if watches.isSocketIntact() { watches.transfer(events, reader) } }
    }

    enum Next: ~Copyable {
        /// With the state of the socket where nothing more is there of what was read.
        case message(MessageReader.Arrival, last: Standing?)
        /// No message is left of those that were read.
        case none(Standing)
    }

    /// The next message that was read. Called on the reading thread.
    ///
    /// - Parameter judge: asked once about each message, when its header has arrived.
    func next(_ judge: (borrowing MessageHeader) -> MessageReader.Verdict) -> Next {
        let arrival = reader.next(judge)
        if reader.isCorrupt { shutDown() }
        guard let arrival else { return .none(standing) }
        return .message(arrival, last: reader.isEmpty ? standing : nil)
    }

    /// Ends the connection in order: the bus reads all that was written before it sees the end. A plain `close` with unread data in
    /// the socket has the kernel report an error to the bus, and dbus-daemon then drops what it has not read. Waits for the bus, until
    /// `deadline` at most.
    func finish(by deadline: ContinuousClock.Instant) {
        guard writeAll(by: deadline) == .done else { return }
        let standing = standing
        guard standing.isConnected else { return }
        shutdown(standing.descriptor, CInt(SHUT_WR))
        readToEnd(by: deadline)
    }

    private func readToEnd(by deadline: ContinuousClock.Instant) {
        withUnsafeTemporaryAllocation(byteCount: 16_384, alignment: 1) { buffer in
            while true {
                let descriptor = standing.descriptor
                guard descriptor >= 0 else { return }
                let count = recv(descriptor, buffer.baseAddress, buffer.count, CInt(MSG_DONTWAIT))
                if count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR) { return }
                guard ContinuousClock.now < deadline else { return }
                if count < 0 { _ = pollOnce(descriptor, CShort(POLLIN), until: deadline) }
            }
        }
    }
}

/// The watches of one connection. libdbus adds, removes and toggles them inside our calls, that is with the socket's
/// `access` held; everything here runs under it too.
private final class WatchList: @unchecked Sendable {
    private struct Watch {
        let pointer: OpaquePointer
        let events: CShort
        /// As libdbus last told: asking each time costs more than the rest of a send.
        var isEnabled: Bool
    }

    // Unchecked: touched with the socket's `access` held only.
    private var watches: [Watch] = []
    /// Whether the program has closed the socket, so that the connection of libdbus is left as it is.
    private var isAbandoned = false
    /// What they watch.
    private var socket = OwnedDescriptor.none
    private var isRemote = false

    var standing: BusSocket.Standing { standing(isConnected: !watches.isEmpty) }

    func standing(isConnected: Bool) -> BusSocket.Standing {
        BusSocket.Standing(
            isConnected: isConnected,
            hasUnsentMessages: hasUnsentMessages,
            descriptor: socket.number
        )
    }

    /// The standing after ``isSocketIntact()``.
    var checkedStanding: BusSocket.Standing {
        _ = isSocketIntact()
        return standing
    }

    /// Whether the bus has ended a TCP connection. The next write to one succeeds still, and is lost; a write to a local socket fails.
    var hasPeerHungUp: Bool {
        guard isRemote else { return false }
        var entry = pollfd(fd: socket.number, events: Self.hangUpForReading, revents: 0)
        return poll(&entry, 1, 0) > 0
    }

    /// `POLLRDHUP`, which Swift's Glibc module lacks.
    private static let hangUpForReading: CShort = 0x2000

    /// Whether libdbus may read, write and close the number of its socket. Once the program has closed it, the
    /// connection counts as lost.
    func isSocketIntact() -> Bool {
        if isAbandoned { return false }
        if socket == .none || socket.isIntact { return true }
        isAbandoned = true
        watches = []
        forgetSocket()
        return false
    }

    /// libdbus enables the watch for writing while it holds messages that the socket did not take.
    var hasUnsentMessages: Bool { watches.contains { $0.isEnabled && $0.events & CShort(POLLOUT) != 0 } }

    /// Whether ``ProcessExit/unsentSockets`` counts this socket.
    private var isCountedAsUnsent = false

    /// Counts this socket while it holds unsent messages. Not inside libdbus, which holds every message for a moment: a
    /// signal handler that interrupts it may end the process.
    func noteUnsentMessages() {
        guard hasUnsentMessages != isCountedAsUnsent else { return }
        isCountedAsUnsent.toggle()
        ProcessExit.unsentSockets.wrappingAdd(isCountedAsUnsent ? 1 : -1, ordering: .relaxed)
    }

    /// Reads what has arrived already, up to a limit, and writes what the socket takes. libdbus has read the greeting
    /// alone. It is told of the end when nothing is left to read.
    func transfer(_ ready: CShort, _ reader: MessageReader) {
        defer { noteUnsentMessages() }
        let hasArrived = ready & CShort(POLLIN) != 0
        guard hasArrived, reader.fill(from: socket.number) == .done else { return handle(ready) }
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

    // MARK: Connecting, before anybody else uses the connection

    /// The longest answer to Hello: a name, or an error's text.
    private static let longestGreeting = 64 << 10

    /// Waits until the bus knows this process's user.
    func authenticate(
        _ connection: OpaquePointer,
        by deadline: ContinuousClock.Instant,
        _ other: BusSocket.OtherWork?,
        _ attempted: String
    ) throws(DBusError) {
        while onLibdbus({ dbus_connection_get_is_authenticated(connection) == 0 }) {
            guard !watches.isEmpty else {
                throw .notAdmitted("the bus does not admit this process", attempted)
            }
            try wait(by: deadline, other, "admitted this process", attempted)
        }
    }

    /// Says Hello, and returns the name that the bus gives the connection. `dbus_bus_register` would do so, but holds a lock of all of the
    /// process's connections until the bus answers; a bus that is stopped would stop those to other buses.
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
                // Nothing else can come so early: nobody knows the connection's name.
                guard answer.replySerial == serial, answer.mayAnswer(hello) else { continue }
                if let name = answer.errorName {
                    throw .noBus(answer.firstString ?? "no reason was given", name: name, attempted)
                }
                guard let name = answer.firstString else {
                    throw .noBus("its greeting has no name", attempted)
                }
                return name
            }
            guard !watches.isEmpty else { throw .notAdmitted("the bus has hung up", attempted) }
            guard !reader.isCorrupt else { throw .notAdmitted("what it sends is no message", attempted) }
            try wait(by: deadline, other, "answered", attempted, reader)
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

    /// The connection keeps the list alive until it is itself freed.
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
        var family: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        isRemote = getsockopt(socket.number, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family != AF_UNIX
    }

    private func toggle(_ watch: OpaquePointer) {
        guard let index = watches.firstIndex(where: { $0.pointer == watch }) else { return }
        watches[index].isEnabled = dbus_watch_get_enabled(watch) != 0
    }

    /// libdbus takes the watches back before it closes what they watch.
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
    /// Waits until the descriptor is ready for one of the events, there is other work, which is done then, or time is over.
    ///
    /// - Returns: the events that the descriptor is ready for; `nil` if the connection is not wanted any more. A negative descriptor is ready for
    ///   none.
    func whileWaiting(
        for events: CShort,
        of descriptor: CInt,
        until deadline: ContinuousClock.Instant
    ) -> CShort? {
        var entries = (
            pollfd(fd: descriptor, events: events, revents: 0),
            pollfd(fd: self?.descriptor ?? -1, events: CShort(POLLIN), revents: 0)
        )
        let timeout = milliseconds(until: deadline)
        withUnsafeMutableBytes(of: &entries) { bytes in
            _ = poll(bytes.assumingMemoryBound(to: pollfd.self).baseAddress, 2, timeout)
        }
        if entries.1.revents != 0, let self, !self.perform() { return nil }
        return entries.0.revents
    }
}

/// Waits until the descriptor is ready for one of the events; returns those that it is ready for.
func pollOnce(_ descriptor: CInt, _ events: CShort, until deadline: ContinuousClock.Instant) -> CShort {
    var entry = pollfd(fd: descriptor, events: events, revents: 0)
    return poll(&entry, 1, milliseconds(until: deadline)) > 0 ? entry.revents : 0
}
