import Basics
import CLinux
import Glibc
import Synchronization

/// Keeps the child of a fork away from its parent's connections.
///
/// A child inherits the sockets without the reading thread, and locks that other threads of the parent held. Its writes
/// would mix with the parent's, and the bus would not see the parent's end while the child holds a socket.
///
/// So this type replaces each inherited socket by a dead end in the child before `fork` returns. In the child of a
/// process that had used a bus, no connection works, neither an inherited nor a new one. Until it calls exec, such a
/// child can only post, by ``ForkedPoster``.
public enum ForkedChild {
    /// The number of forks between this process and its first ancestor that used a bus; 0 without such a fork.
    static var generation: UInt { CLinux_forkGeneration() }

    /// Whether this process is a forked child of a process that had used a bus.
    public static var isCurrent: Bool { generation > 0 }

    /// Whether a thread was inside libdbus at the fork, so that the locks of libdbus may be held forever.
    static var isTorn: Bool { CLinux_isForkTorn() != 0 }

    /// Notes that this process uses a bus, before the first lock is taken for it. Returns ``isCurrent``.
    public static func useBus() -> Bool { CLinux_useBus() > 0 }

    /// - Throws: ``DBusError/Code/closed`` in a forked child.
    public static func check(_ attempted: @autoclosure () -> String) throws(DBusError) {
        if useBus() { throw .forked(attempted()) }
    }

    /// The process that created an object. The object must not be used in a forked child.
    public struct Process: Sendable {
        private let generation = ForkedChild.generation

        public init() {}

        public var isCurrent: Bool { generation == ForkedChild.generation }
    }

    /// Does the work of the fork handlers in a child that was made without fork(3). No effect otherwise.
    public static func notice() { if CLinux_noticeFork() != 0 { begin() } }

    private static let places = 256
    /// The sockets of all connections; ``OwnedDescriptor/none`` in free places. With more than 256, the rest stay open
    /// in a child. Unsafe: the pointer is constant, and its contents are atomic. Never freed.
    nonisolated(unsafe) private static let sockets = {
        let sockets = UnsafeMutablePointer<Atomic<UInt64>>.allocate(capacity: places)
        for index in 0..<places { (sockets + index).initialize(to: Atomic(OwnedDescriptor.none.bits)) }
        return sockets
    }()
    /// One end of a pair whose other end is closed: reads report the end, and writes fail.
    private static let deadEnd = Atomic<UInt64>(OwnedDescriptor.none.bits)
    private static let isPrepared = Atomic<Bool>(false)

    /// Notes a socket until ``remove(_:)``.
    static func add(_ socket: OwnedDescriptor) {
        if !isPrepared.exchange(true, ordering: .acquiringAndReleasing) {
            prepare()
            ProcessExit.prepare()
            ForkedPoster.rehearse()
        }
        replace(.none, with: socket)
    }

    static func remove(_ socket: OwnedDescriptor) { replace(socket, with: .none) }

    private static func replace(_ old: OwnedDescriptor, with new: OwnedDescriptor) {
        for index in 0..<places {
            let (isDone, _) = sockets[index]
                .compareExchange(expected: old.bits, desired: new.bits, ordering: .acquiringAndReleasing)
            if isDone { return }
        }
    }

    /// Whether the condition holds for all sockets. Takes no lock and no memory, unlike a `for` loop of a debug build.
    static func allSockets(satisfy condition: (OwnedDescriptor) -> Bool) -> Bool {
        var index = 0
        while index < places {
            let socket = OwnedDescriptor(bits: sockets[index].load(ordering: .acquiring))
            guard socket == .none || condition(socket) else { return false }
            index += 1
        }
        return true
    }

    private static func prepare() {
        _ = StandardDescriptors.leavingFree { makeDeadEnd() }
        pthread_atfork(nil, nil) { ForkedChild.begin() }
    }

    /// Async-signal-safe. Returns ``OwnedDescriptor/none`` if the system grants no descriptor.
    private static func makeDeadEnd() -> OwnedDescriptor {
        guard let (end, other) = OwnedDescriptor.pair() else { return .none }
        other.close()
        deadEnd.store(end.bits, ordering: .releasing)
        return end
    }

    /// The dead end, or a new one if this process has closed it, as services do with all inherited descriptors.
    private static func usableDeadEnd() -> OwnedDescriptor {
        let end = OwnedDescriptor(bits: deadEnd.load(ordering: .acquiring))
        return end.isIntact ? end : makeDeadEnd()
    }

    /// Runs in the child. Async-signal-safe.
    private static func begin() {
        ProcessExit.unsentSockets.store(0, ordering: .relaxed)
        var deadEnd: OwnedDescriptor?
        var index = 0
        while index < places {
            // Removed: the child may close it and reuse its number for a file that its own children inherit.
            let socket = OwnedDescriptor(
                bits: sockets[index].exchange(OwnedDescriptor.none.bits, ordering: .acquiringAndReleasing)
            )
            index += 1
            // The program may have closed it and reused the number before the fork.
            guard socket.isIntact else { continue }
            let end = deadEnd ?? usableDeadEnd()
            deadEnd = end
            if end.number >= 0, dup2(end.number, socket.number) >= 0 {
                _ = fcntl(socket.number, F_SETFD, FD_CLOEXEC)
            } else {
                close(socket.number)
            }
        }
    }
}

/// Calls libdbus where it may take one of its global locks. Forks by other threads wait until `body` returns, so that a
/// child finds the locks free. `body` waits only for locks of ``BusSocket``, which are taken inside this call.
@inline(__always)
func onLibdbus<Result: ~Copyable, Failure: Error>(_ body: () throws(Failure) -> Result) throws(Failure) -> Result {
    CLinux_holdOffFork(CLINUX_CALL)
    defer { CLinux_allowFork(CLINUX_CALL) }
    return try body()
}

/// Posts in the forked child of a process that had used a bus (``ForkedChild``), by a separate connection to each bus.
/// The posting thread waits until the bus has read the post, so that the child may end at once.
public enum ForkedPoster {
    /// How long a post waits for the bus and for posts of other threads.
    static let patience: Duration = .seconds(10)

    private struct Entry: Sendable {
        let address: String
        let link: ChildLink
    }

    private static let entries = PerProcess<[Entry]>([])

    /// Sends a signal. On return the bus has read it. If the bus has ended the connection, this reconnects and sends
    /// again; receivers may then get the signal twice.
    ///
    /// - Throws: ``DBusError/Code/noBus``, also after ``patience`` if a stopped bus does not accept a connection;
    ///   ``DBusError/Code/disconnected``; ``DBusError/Code/timedOut`` after ``patience``: the bus may still get the
    ///   signal then; ``DBusError/Code/noResources``; ``DBusError/Code/closed`` if libdbus was in use during the fork.
    public static func send(_ message: consuming DBusMessage, to address: String) throws(DBusError) {
        _ = try link(to: address).exchange(message)
    }

    /// Calls a method, and returns the values of the response.
    ///
    /// - Throws: as ``send(_:to:)``, and ``DBusError/Code/refused`` with the error of the peer.
    public static func call(_ message: consuming DBusMessage, at address: String) throws(DBusError) -> [DBusValue] {
        let attempted = ConnectionCore.attempt(message)
        let answer = try link(to: address).exchange(message)
        let arguments = try answer.arguments()
        guard let name = answer.errorName else { return arguments }
        let text = arguments.first?.stringValue ?? "no reason was given"
        throw .answer(name: name, message: text, details: [:], attempted: attempted)
    }

    /// Called before a message is made.
    ///
    /// - Throws: ``DBusError/Code/closed`` if libdbus may block forever in this process.
    public static func check() throws(DBusError) {
        guard ForkedChild.isTorn else { return }
        let message = "this process was forked while another thread, or an interrupted function, was in libdbus"
        let remedy = "call exec, or fork before the first use of the bus"
        throw DBusError(.closed, message: message, attempted: "post in a forked child", remedy: remedy)
    }

    /// Makes the Swift runtime instantiate the types that a post in a child uses. Called before a fork: in the child,
    /// the runtime's locks may be held by a thread that does not exist there.
    static func rehearse() {
        let link = ChildLink("")
        link.rehearse()
        PerProcess<[Entry]>([]).withLock { $0.append(Entry(address: "", link: link)) }
    }

    private static func link(to address: String) -> ChildLink {
        entries.withLock { entries in
            if let known = entries.first(where: { $0.address == address }) { return known.link }
            let link = ChildLink(address)
            entries.append(Entry(address: address, link: link))
            return link
        }
    }
}

/// A child's connection to one bus. Used by one thread at a time.
private final class ChildLink: Sendable {
    private struct State {
        var socket: BusSocket?
        var lastSerial: UInt32 = 16
    }

    private let address: String
    private let opener = BusOpener()
    private let state = PosixLocked(State())

    init(_ address: String) { self.address = address }

    func rehearse() { state.withLock { $0.lastSerial += 1 } }

    /// Sends a message, and waits for its response. After a signal, waits for a response of the bus itself.
    func exchange(_ message: consuming DBusMessage) throws(DBusError) -> DBusMessage {
        // Taken before the lock, whose holders wait for as long.
        let deadline = ContinuousClock.now + ForkedPoster.patience
        let held = HeldMessage(message)
        return try state.withLock { state throws(DBusError) in
            if let socket = state.socket {
                let answer = try exchange(held.message.copy(), socket, &state.lastSerial, by: deadline)
                if let answer { return answer }
            }
            let socket = try BusSocket(address: address, opener: opener, by: deadline)
            state.socket = socket
            guard let answer = try exchange(held.message.copy(), socket, &state.lastSerial, by: deadline) else {
                state.socket = nil
                throw .disconnected(ConnectionCore.attempt(held.message))
            }
            return answer
        }
    }

    /// - Returns: `nil` if the bus is gone.
    private func exchange(
        _ message: borrowing DBusMessage,
        _ socket: BusSocket,
        _ lastSerial: inout UInt32,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) -> DBusMessage? {
        lastSerial += 1
        let sent = try socket.send(message, serial: lastSerial, attempted: ConnectionCore.attempt(message))
        guard sent.isConnected else { return nil }
        if case .methodCall = message.kind { return try answer(to: message, lastSerial, socket, by: deadline) }
        let question = try DBusMessage.busCall("GetId")
        lastSerial += 1
        _ = try socket.send(question, serial: lastSerial, attempted: ConnectionCore.attempt(message))
        return try answer(to: question, lastSerial, socket, by: deadline)
    }

    private func answer(
        to call: borrowing DBusMessage,
        _ serial: UInt32,
        _ socket: BusSocket,
        by deadline: ContinuousClock.Instant
    ) throws(DBusError) -> DBusMessage? {
        while true {
            switch socket.next({ _ in .read(nil) }) {
            case .message(let arrival, _):
                let message = arrival.message.sharedReference()
                if message.replySerial == serial, call.mayBeAnswered(by: message.sender) { return message }
            case .none(let standing):
                guard standing.isConnected else { return nil }
                guard ContinuousClock.now < deadline else { throw .noAnswer(ConnectionCore.attempt(call)) }
                let awaited = CShort(standing.hasUnsentMessages ? POLLIN | POLLOUT : POLLIN)
                let events = pollOnce(standing.descriptor, awaited, until: deadline)
                if events != 0 { socket.transfer(events) }
            }
        }
    }
}
