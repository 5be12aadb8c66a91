import ArgumentParser
package import DBusTransport
import Dispatch
package import Fleet
import FleetService
import Glibc
import MQTTClient
import ProjectVersion
import Synchronization

@main
struct SharedDeviceControllerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-controller",
        abstract: "Gives a fleet of shared devices its orders, and keeps what they report.",
        discussion: """
            Serves org.notifycenter.SharedDeviceFleet1, which “shared-device fleet” asks. Prints “ready” when it owns that name; ends with \
            SIGTERM or SIGINT.
            Exit status: 0 ended as asked; 64 wrong usage; 69 no bus, or another controller serves it; 78 configuration, key or state \
            directory cannot be used.
            """,
        version: ProjectVersion.line(of: "shared-device-controller")
    )

    @OptionGroup var program: FleetProgram

    func run() async throws { try await program.serve(ControllerService.self, role: "controller") }
}

/// A fleet's controller: keeps orders and reports, publishes, and answers the command. All of it happens on one queue, which decides by
/// ``ControllerState``.
package final class ControllerService: FleetService {
    /// What the queue changes, and others read.
    private struct Core {
        var state: ControllerState
        /// Why the disk does not take reports.
        var problem: String?
        /// When the controller's own certificate ends, in seconds since 1970.
        var certificateEnd: Double?
    }

    /// How often reports are stored, in seconds.
    private static let beat = 0.25
    /// How often the certificate is looked at, in seconds: it may be renewed.
    private static let certificateInterval = 60.0
    /// Reports of one transaction.
    private static let batch = 5000

    private let configuration: FleetConfiguration
    private let log: @Sendable (String) -> Void
    private let queue = DispatchQueue(label: "controller")
    private let core: Locked<Core>
    /// The queue's alone: nobody waits for this lock, and those who read the state do not wait for the disk.
    private let store: Locked<ControllerStore>
    private let client = Locked<MQTTClient?>(nil)
    /// Of the client's thread.
    private let limiter = Locked(ReportLimiter())
    private let connection: DBusConnection
    private let object = Locked<Observation?>(nil)

    /// - Throws: ``FleetRefusal`` for a state directory that cannot be used; `DBusError` where there is no such bus.
    package convenience init(
        _ configuration: Result<FleetConfiguration, FleetRefusal>,
        stateDirectory: String,
        bus: Bus,
        log: @escaping @Sendable (String) -> Void
    ) throws {
        let configuration = try configuration.get()
        if let objection = FleetFiles.objection(toKey: configuration.key) { throw FleetRefusal(objection) }
        try self.init(configuration, stateDirectory: stateDirectory, bus: bus, log: log)
    }

    /// The same, with a configuration whose key nobody has looked at.
    package init(
        _ configuration: FleetConfiguration,
        stateDirectory: String,
        bus: Bus,
        log: @escaping @Sendable (String) -> Void
    ) throws {
        self.configuration = configuration
        self.log = log
        let store = try ControllerStore(directory: stateDirectory)
        core = Locked(Core(state: try store.load()))
        self.store = Locked(store)
        connection = try DBusConnection.open(bus)
    }

    /// Takes the bus name and connects to the server.
    ///
    /// - Throws: `DBusError` where another controller has the name; `MQTTError` where the system grants no thread.
    package func start() async throws {
        let interface = ControllerInterface(service: self, connection: connection)
        let exported = try connection.export(
            [interface.description],
            at: FleetProtocol.path,
            limits: ControllerInterface.limits,
            admit: interface.admit
        )
        object.withLock { $0 = exported }
        try await connection.requestName(FleetProtocol.busName)
        var options = MQTTOptions(configuration)
        options.receiveMaximum = 1000
        options.receiveBuffer = nil
        // Under the lock: the first event finds the client in its place.
        try client.withLock { [options] client throws(MQTTError) in
            client = try MQTTClient(options) { [weak self] event in self?.take(event) }
        }
        lookAtCertificate()
        beat()
    }

    /// Reads when the certificate ends, and again after a while. The log has each day on which it is near.
    private func lookAtCertificate(warned: String? = nil) {
        queue.async { [self] in
            let end = CertificateTerm.end(of: configuration)
            core.withLock { $0.certificateEnd = end }
            let warning = Self.certificateWarning(end)
            if let warning, warning != warned { log(warning) }
            queue.asyncAfter(deadline: .now() + Self.certificateInterval) { [weak self] in
                self?.lookAtCertificate(warned: warning)
            }
        }
    }

    /// What there is to say of the controller's own certificate; `nil` where it holds for long.
    static func certificateWarning(_ end: Double?) -> String? {
        guard let end, CertificateTerm.isNear(end, now: wall) else { return nil }
        return "the controller's certificate \(CertificateTerm.words(end, now: wall)); enrol the controller again"
    }

    /// When the controller's own certificate ends, in seconds since 1970.
    var certificateEnd: Double? { core.withLock { $0.certificateEnd } }

    package var isAlive: Bool { queue.sync { true } }

    /// Ends the connection, and stores what was reported.
    package func stop() async {
        await withCheckedContinuation { continuation in
            // Not on the queue, which the client's thread waits for.
            DispatchQueue.global().async { [self] in
                client.withLock { $0 }?.closeAndWait()
                queue.sync { storeReports() }
                continuation.resume()
            }
        }
    }

    // MARK: The server

    /// Called on the client's thread, which waits until the event is handled: so nothing piles up.
    func take(_ event: MQTTEvent) {
        switch event {
        case .connected:
            log("connected to \(configuration.host):\(configuration.port)")
            queue.sync {
                core.withLock { $0.state.connected() }
                let topics = configuration.topics.forController
                do throws(MQTTError) {
                    // Without acknowledgements: what they would bring again, the server keeps.
                    try client.withLock { $0 }?.subscribe(to: topics, isAcknowledged: false)
                } catch {
                    log("\(error)")
                }
                publish()
            }
        case .lost(let error):
            log("\(error)")
            update { $0.disconnected() }
        case .accepted(let topic): accepted(topic)
        case .refused(let error): refused(error)
        case .hasRoom: queue.sync { publish() }
        case .message(let message): receive(message)
        }
    }

    /// Changes the state, on the queue, as all changes are: ``change(_:)`` puts back what it took while the disk writes. The queue never waits for
    /// the client's thread.
    private func update<Value: Sendable>(_ body: @Sendable (inout ControllerState) -> Value) -> Value {
        queue.sync { core.withLock { body(&$0.state) } }
    }

    private func accepted(_ topic: String) {
        // Most of the time there is nothing to be said.
        guard core.withLock({ $0.state.hasRefusals }), let topic = configuration.topics.topic(topic) else { return }
        update { $0.accepted(topic) }
    }

    /// An order comes again until the server takes it, and whoever asks for it is told. The log has the first of many.
    private func refused(_ error: MQTTError) {
        let topic = error.topic.flatMap(configuration.topics.topic)
        let isNews =
            topic.map { topic in update { $0.refused(topic, error.description, now: Self.wall) } } ?? true
        if isNews { log("\(error)") }
    }

    private func receive(_ message: MQTTMessage) {
        // A topic of the fleet's is short: what the limiter remembers of it, too.
        guard let topic = configuration.topics.topic(message.topic) else { return update { $0.foreign() } }
        switch limiter.withLock({ $0.admit(message.topic, now: Self.uptime) }) {
        case .read: break
        case .passedOver: return
        case .firstPassedOver:
            log(
                "\(message.topic.suffix(100)): too much for an agent; the rest of these \(Int(ReportLimiter.window)) s is not read"
            )
            return update { $0.foreign() }
        }
        let event: FleetEvent?
        let problem: FleetMessageError?
        do throws(FleetMessageError) {
            (event, problem) = (try FleetEvent(parsing: message.payload), nil)
        } catch {
            (event, problem) = (nil, error)
        }
        queue.sync {
            core.withLock { core in
                guard let event else { return core.state.foreign() }
                let sent = message.isRetained ? nil : event.time
                core.state.received(topic, event.message, sent: sent, now: Self.wall)
            }
            publish()
        }
        // An empty payload is how a kept message is taken away.
        if let problem, !message.payload.isEmpty { log("\(message.topic.suffix(100)): \(problem)") }
    }

    /// On the queue: hands the server what it has to be told, as far as there is room.
    private func publish() {
        guard let client = client.withLock({ $0 }) else { return }
        while let (topic, content) = core.withLock({ $0.state.nextMessage(now: Self.wall) }) {
            let event = FleetEvent(
                content,
                source: "/fleet/\(configuration.topics.fleet)",
                identifier: Self.identifier(topic, content),
                time: Self.wall
            )
            let isHeartbeat = topic == .heartbeat
            let message = MQTTMessage(
                topic: configuration.topics.text(topic),
                payload: event.bytes,
                isRetained: !isHeartbeat,
                isAcknowledged: !isHeartbeat,
                contentType: FleetEvent.contentType
            )
            do throws(MQTTError) {
                try client.publish(message)
            } catch {
                // Later: when there is room, or with the next connection.
                return core.withLock { $0.state.notPublished(topic) }
            }
        }
    }

    /// On the queue: has the server send once more what may have been lost on the way. Nothing is lost where it does not: the next time comes.
    private func askAgain() {
        let (reports, presence, isLooking) = core.withLock { core in
            let reports = core.state.nextReportsWanted(now: Self.wall, lookingAt: ControllerAnswers.slice)
            let presence = core.state.nextPresenceWanted(now: Self.wall, lookingAt: ControllerAnswers.slice)
            return (reports, presence, core.state.isLooking)
        }
        // Behind the reports that have come meanwhile.
        if isLooking { queue.async { [weak self] in self?.askAgain() } }
        let topics = configuration.topics
        if let reports { askAgain(for: reports, topics.forController) { topics.text(.reported(device: $0)) } }
        if let presence { askAgain(for: presence, [topics.allPresence]) { topics.text(.presence(device: $0)) } }
    }

    private func askAgain(for wanted: MessagesWanted, _ all: [String], of topic: (String) -> String) {
        guard let client = client.withLock({ $0 }) else { return }
        do throws(MQTTError) {
            switch wanted {
            case .all: try client.subscribe(to: all, isAcknowledged: false)
            case .devices(let names):
                // One's own subscription brings what the server has kept of this device, and not that of 100,000 others.
                let topics = names.map(topic)
                try client.subscribe(to: topics, isAcknowledged: false)
                try client.unsubscribe(from: topics)
            }
        } catch {
            log("\(error)")
        }
    }

    private static func identifier(_ topic: FleetTopic, _ content: FleetMessage) -> String {
        switch content {
        case .desired(let order): "order-\(order.number)"
        default: "heartbeat-\(UInt64(max(0, uptime * 1000)))"
        }
    }

    // MARK: Time

    private func beat() {
        queue.asyncAfter(deadline: .now() + Self.beat) { [weak self] in
            guard let self else { return }
            storeReports()
            publish()
            // Who looks already goes on by itself.
            if !core.withLock({ $0.state.isLooking }) { askAgain() }
            beat()
        }
    }

    private func storeReports() {
        let devices = core.withLock { $0.state.takeUnstored(atMost: Self.batch) }
        guard !devices.isEmpty else { return }
        var problem: String?
        do throws(FleetRefusal) {
            try store.withLock { store throws(FleetRefusal) in try store.store(devices) }
        } catch {
            // They come again from the devices; what counts for an order is in memory.
            problem = error.description
        }
        let isNews = core.withLock { [problem] core in
            defer { core.problem = problem }
            return core.problem != problem
        }
        if isNews, let problem { log(problem) }
    }

    static var wall: Double { seconds(CLOCK_REALTIME) }
    static var uptime: Double { seconds(CLOCK_BOOTTIME) }

    private static func seconds(_ clock: clockid_t) -> Double {
        var time = timespec()
        clock_gettime(clock, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    // MARK: The command

    /// What is known, with the reason why the disk does not take it.
    func read<Value: Sendable>(_ body: @Sendable (ControllerState, String?) -> Value) -> Value {
        core.withLock { body($0.state, $0.problem) }
    }

    /// Changes the state, stores it, and then publishes.
    ///
    /// - Throws: ``FleetRefusal``. Where the disk did not take it, nothing has changed.
    func change<Value: Sendable>(
        _ body: @escaping @Sendable (inout ControllerState) throws(FleetRefusal) -> (ControllerRecord, Value)
    ) async throws(FleetRefusal) -> Value {
        let result: Result<Value, FleetRefusal> = await withCheckedContinuation { continuation in
            queue.async { [self] in
                let result = Result { () throws(FleetRefusal) in
                    var changed = core.withLock { $0.state }
                    let (record, value) = try body(&changed)
                    let devices = changed.devices
                    try store.withLock { store throws(FleetRefusal) in
                        try store.store(record, devices: devices)
                    }
                    // Nobody else changes it meanwhile: this is the queue.
                    core.withLock { [changed] in $0.state = changed }
                    return value
                }
                publish()
                continuation.resume(returning: result)
            }
        }
        return try result.get()
    }

    /// How long a question that waits for a change leaves the state alone: to count 100,000 devices takes a while.
    static let pause = Duration.milliseconds(250)
}
