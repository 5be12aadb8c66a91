import Glibc
import Synchronization

/// Posts for the forked child of a process that had used a bus (``ForkedChild``). It has a connection of the child's
/// own to each bus, without a reading thread: the thread that posts waits until the bus has read the post, so that
/// the child may end at once.
package enum ForkedPoster {
    /// How long a post waits for the bus, and for other threads' posts.
    static let patience: Duration = .seconds(10)

    private struct Entry: Sendable {
        let address: String
        let link: ChildLink
    }

    private static let entries = PerProcess<[Entry]>([])

    /// Sends a signal. On return the bus has read it. A connection that the bus has ended is replaced by another one;
    /// receivers may then get the signal twice.
    ///
    /// - Throws: ``DBusError/Code/noBus``, also after ``patience`` if a stopped bus has to be connected to;
    ///   ``DBusError/Code/disconnected``; ``DBusError/Code/timedOut`` after ``patience``: the bus may still get the signal
    ///   then; ``DBusError/Code/noResources``;
    ///   ``DBusError/Code/closed`` if the fork came when libdbus was in use.
    package static func send(_ message: consuming DBusMessage, to address: String) throws(DBusError) {
        _ = try link(to: address).exchange(message)
    }

    /// Calls a method, and returns the values of the answer.
    ///
    /// - Throws: as ``send(_:to:)``, and ``DBusError/Code/refused`` with the error of the peer.
    package static func call(_ message: consuming DBusMessage, at address: String) throws(DBusError) -> [DBusValue] {
        let attempted = ConnectionCore.attempt(message)
        let answer = try link(to: address).exchange(message)
        let arguments = try answer.arguments()
        guard let name = answer.errorName else { return arguments }
        let text = arguments.first?.stringValue ?? "no reason was given"
        throw .answer(name: name, message: text, details: [:], attempted: attempted)
    }

    /// Asked before a message is made.
    ///
    /// - Throws: ``DBusError/Code/closed`` if libdbus may wait for ever in this process.
    package static func check() throws(DBusError) {
        guard ForkedChild.isTorn else { return }
        throw DBusError(
            .closed,
            message: "this process was forked while another thread, or an interrupted function, was in libdbus",
            attempted: "post in a forked child",
            remedy: "call exec, or fork before the first use of the bus"
        )
    }

    /// Has the runtime make the types that a post in a child uses. Called before a fork: in the child, another thread may
    /// have held the runtime's locks.
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

/// A child's own connection to one bus. One thread at a time uses it.
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

    /// Sends a message, and waits for its answer; after a signal, for an answer of the bus itself.
    func exchange(_ message: consuming DBusMessage) throws(DBusError) -> DBusMessage {
        // From before the lock on: it is held by threads that wait as long.
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

    /// - Returns: `nil` where the bus is gone.
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
