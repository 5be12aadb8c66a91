import Basics
import DBus
import Dispatch
import Synchronization

/// A client of an MQTT 5 server with its own thread. It connects, and reconnects after each loss, until it is closed or
/// freed.
///
/// No state of one connection survives into the next: the server drops the subscriptions (Clean Start), and
/// unacknowledged messages are lost. At ``MQTTEvent/connected`` the owner must subscribe and publish again.
package final class MQTTClient: Sendable {
    private let loop: MQTTLoop

    /// Starts the client.
    ///
    /// - Parameter handler: receives each event on the client's thread. While it blocks, the client reads nothing from
    ///   the server.
    /// - Throws: ``MQTTError/Reason/noResources(_:)``.
    package init(_ options: MQTTOptions, handler: @escaping @Sendable (MQTTEvent) -> Void) throws(MQTTError) {
        loop = try MQTTLoop(options, handler)
        guard QuietThread.start("mqtt", { [loop] in loop.run() }) != nil else {
            throw MQTTError(.noResources("no thread"), attempted: loop.attempted)
        }
    }

    deinit { loop.close() }

    /// Queues a message and returns before the server has it.
    ///
    /// - Throws: ``MQTTError/Reason/full``, ``MQTTError/Reason/notConnected``.
    package func publish(_ message: MQTTMessage) throws(MQTTError) { try loop.submit(.publish(message)) }

    /// Subscribes to topics. The server sends their retained messages at once. Throws as ``publish(_:)``.
    ///
    /// - Parameter isAcknowledged: whether each message is acknowledged (QoS 1), and so may be delivered twice.
    ///   mosquitto reads one packet of each client in turn, so a client of many publishers acknowledges too slowly.
    package func subscribe(to topics: [String], isAcknowledged: Bool = true) throws(MQTTError) {
        try loop.submit(.subscribe(topics, isAcknowledged: isAcknowledged))
    }

    /// Unsubscribes from topics. Throws as ``publish(_:)``.
    package func unsubscribe(from topics: [String]) throws(MQTTError) { try loop.submit(.unsubscribe(topics)) }

    /// Disconnects in order: queued messages are sent, and the server discards the will. Does not wait.
    package func close() { loop.close() }

    /// Disconnects in order, and blocks this thread until the client has ended, for at most two seconds.
    package func closeAndWait() {
        loop.close()
        _ = loop.ended.wait(timeout: .now() + .seconds(2))
    }
}

/// The client's thread and its commands. The thread keeps this object alive.
final class MQTTLoop: Sendable {
    enum Command: Sendable {
        case publish(MQTTMessage)
        case subscribe([String], isAcknowledged: Bool)
        case unsubscribe([String])

        var bytes: Int {
            switch self {
            case .publish(let message): message.payload.count + message.topic.utf8.count
            case .subscribe(let topics, _), .unsubscribe(let topics): topics.reduce(0) { $0 + $1.utf8.count }
            }
        }
    }

    private struct State {
        var isConnected = false
        var isClosed = false
        var commands: [Command] = []
        /// The total of commands and unacknowledged messages.
        var pending = (messages: 0, bytes: 0)
        /// Whether `publish` has thrown `full` since the last ``MQTTEvent/hasRoom``.
        var wasFull = false
    }

    private static let connectTimeout = Duration.seconds(30)

    private let options: MQTTOptions
    private let handler: @Sendable (MQTTEvent) -> Void
    private let state = Locked(State())
    private let event: EventDescriptor
    /// Signalled when the thread ends.
    let ended = DispatchSemaphore(value: 0)

    init(_ options: MQTTOptions, _ handler: @escaping @Sendable (MQTTEvent) -> Void) throws(MQTTError) {
        self.options = options
        self.handler = handler
        do throws(OutOfDescriptors) {
            event = try EventDescriptor("talk to the MQTT server")
        } catch {
            throw MQTTError(.noResources("\(error)"), attempted: "connect to \(options.host):\(options.port)")
        }
    }

    var attempted: String { "connect to \(options.host):\(options.port)" }

    // MARK: From any thread

    func submit(_ command: Command) throws(MQTTError) {
        let (count, capacity) = (command.bytes, options.capacity)
        let reason: MQTTError.Reason? = state.withLock { state in
            guard state.isConnected, !state.isClosed else { return .notConnected }
            guard state.pending.messages < capacity.messages, state.pending.bytes + count <= capacity.bytes else {
                state.wasFull = true
                return .full
            }
            state.pending.messages += 1
            state.pending.bytes += count
            state.commands.append(command)
            return nil
        }
        if let reason { throw MQTTError(reason, attempted: "publish to \(options.host):\(options.port)") }
        event.signal()
    }

    func close() {
        state.withLock { $0.isClosed = true }
        event.signal()
    }

    // MARK: On the thread

    private var isClosed: Bool { state.withLock { $0.isClosed } }

    func run() {
        defer { ended.signal() }
        var delay = ReconnectDelay(first: options.firstDelay)
        while !isClosed {
            let error = serveOneConnection { delay.reset() }
            state.withLock { state in
                (state.isConnected, state.commands, state.pending, state.wasFull) = (false, [], (0, 0), false)
            }
            if isClosed { return }
            handler(.lost(error))
            pause(delay.next(fraction: .random(in: 0...1)))
        }
    }

    /// Serves a connection until it is lost or the client is closed. Returns the reason.
    private func serveOneConnection(accepted: () -> Void) -> MQTTError {
        let session: MosquittoSession
        do throws(MQTTError) {
            session = try MosquittoSession(options)
        } catch {
            return error
        }
        let deadline = ContinuousClock.now + Self.connectTimeout
        while true {
            // Cleared before the wait: later commands signal again.
            event.clear()
            if let error = carryOut(session) { return error }
            if let error = session.wait(for: event.descriptor, milliseconds: 1000) { return error }
            for occurrence in session.takeOccurrences() {
                switch occurrence {
                case .event(let event):
                    if case .connected = event {
                        state.withLock { $0.isConnected = true }
                        accepted()
                    }
                    handler(event)
                case .settled(let bytes): settle(bytes)
                case .ended(let error): return error
                }
            }
            if !session.isAccepted, ContinuousClock.now > deadline {
                return MQTTError(.unreachable("the server does not respond"), attempted: attempted)
            }
        }
    }

    /// Passes the commands to libmosquitto. Returns the reason if the connection has ended.
    private func carryOut(_ session: MosquittoSession) -> MQTTError? {
        let (commands, isClosed) = state.withLock { state in
            defer { state.commands = [] }
            return (state.commands, state.isClosed)
        }
        for command in commands {
            do throws(MQTTError) {
                switch command {
                case .publish(let message): try session.publish(message, bytes: command.bytes)
                case .subscribe(let topics, let isAcknowledged):
                    try session.subscribe(to: topics, isAcknowledged: isAcknowledged)
                    settle(command.bytes)
                case .unsubscribe(let topics):
                    try session.unsubscribe(from: topics)
                    settle(command.bytes)
                }
            } catch {
                settle(command.bytes)
                handler(.refused(error))
            }
        }
        guard isClosed else { return nil }
        session.disconnect()
        return MQTTError(.lost("closed"), attempted: attempted)
    }

    private func settle(_ bytes: Int) {
        let hasRoom = state.withLock { state in
            state.pending.messages -= 1
            state.pending.bytes -= bytes
            // Reports room only when half of the capacity is free, so that many messages cause one event.
            guard state.wasFull, state.pending.messages <= options.capacity.messages / 2 else { return false }
            state.wasFull = false
            return true
        }
        if hasRoom { handler(.hasRoom) }
    }

    /// Waits, or returns early if the client is closed.
    private func pause(_ duration: Duration) {
        let deadline = ContinuousClock.now + duration
        while !isClosed {
            let left = ContinuousClock.now.duration(to: deadline)
            guard left > .zero else { return }
            MosquittoSession.wait(
                for: event.descriptor,
                milliseconds: CInt(clamping: Int64(left / .milliseconds(1)) + 1)
            )
            event.clear()
        }
    }
}

/// The wait before the next attempt: exponential back-off with full jitter, because a fleet loses its server at once.
package struct ReconnectDelay: Sendable, Hashable {
    /// The longest wait, and the longest after an outage of over ten minutes.
    private static let (longest, longestOfAll) = (Duration.seconds(120), Duration.seconds(300))
    private static let longOutage = Duration.seconds(600)

    private let first: Duration
    private var limit: Duration
    private var outage = Duration.zero

    package init(first: Duration = .seconds(1)) {
        self.first = first
        limit = first
    }

    /// The next wait: this fraction, a random number from 0 to 1, of a limit that doubles.
    package mutating func next(fraction: Double) -> Duration {
        let delay = limit * min(max(fraction, 0), 1)
        outage += delay
        limit = min(limit * 2, outage > Self.longOutage ? Self.longestOfAll : Self.longest)
        return delay
    }

    /// Starts again after the server has accepted the client.
    package mutating func reset() { self = ReconnectDelay(first: first) }
}
