import Basics
import Glibc
import Synchronization

/// Posts in the forked child of a process that had used a bus (``ForkedChild``). It has a separate connection to each
/// bus, without a reading thread: the posting thread waits until the bus has read the post, so that the child may end
/// at once.
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
        throw DBusError(
            .closed,
            message: "this process was forked while another thread, or an interrupted function, was in libdbus",
            attempted: "post in a forked child",
            remedy: "call exec, or fork before the first use of the bus"
        )
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
                if message.replySerial == serial, message.mayAnswer(call) { return message }
            case .none(let standing):
                guard standing.isConnected else { return nil }
                guard ContinuousClock.now < deadline else {
                    throw .noAnswer(ConnectionCore.attempt(call))
                }
                let awaited = CShort(standing.hasUnsentMessages ? POLLIN | POLLOUT : POLLIN)
                let events = pollOnce(standing.descriptor, awaited, until: deadline)
                if events != 0 { socket.transfer(events) }
            }
        }
    }
}
