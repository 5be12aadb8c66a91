import ArgumentParser
import Basics
import Cryptography
package import DBus
import DBusService
import Dispatch
package import Fleet
import FleetService
import Glibc
import MQTTClient
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

/// A fleet's controller. All changes run on one queue and are decided by ``ControllerState``.
package final class ControllerService: FleetService {
    /// The data that the queue changes and other threads read.
    private struct Core {
        var state: ControllerState
        /// The reason why reports cannot be stored.
        var problem: String?
        /// When the controller's own certificate ends, in seconds since 1970.
        var certificateEnd: Result<Double, CertificateFileError>?
    }

    /// The interval of storing reports, in seconds.
    private static let beat = 0.25
    /// The interval of rereading the certificate, in seconds: it may be renewed.
    private static let certificateInterval = 60.0
    /// The most reports in one transaction.
    private static let batch = 5000

    private let configuration: FleetConfiguration
    private let log: @Sendable (String) -> Void
    private let queue = DispatchQueue(label: "controller")
    private let core: Locked<Core>
    /// Used on the queue only, so the lock is never contended, and readers of the state do not wait for the disk.
    private let store: Locked<ControllerStore>
    private let client = Locked<MQTTClient?>(nil)
    /// Used on the client's thread only.
    private let limiter = Locked(ReportLimiter())
    private let connection: DBusConnection
    private let object = Locked<Observation?>(nil)

    /// - Throws: ``FleetRefusal`` for unusable files; `DBusError` if there is no such bus.
    package init(
        _ configuration: Result<FleetConfiguration, FleetRefusal>,
        stateDirectory: String,
        bus: Bus,
        checksKey: Bool,
        log: @escaping @Sendable (String) -> Void
    ) throws {
        self.configuration = try configuration.get()
        if checksKey, let objection = FleetFiles.objection(toKey: self.configuration.key) {
            throw FleetRefusal(objection)
        }
        self.log = log
        let store = try ControllerStore(directory: stateDirectory)
        core = Locked(Core(state: try store.load()))
        self.store = Locked(store)
        connection = try DBusConnection.open(bus)
    }

    /// Requests the bus name and connects to the server. Throws `DBusError` if another controller owns the name, and
    /// `MQTTError` if the system provides no thread.
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
        // Inside the lock, so that the first event finds the client.
        try client.withLock { [options] client throws(MQTTError) in
            client = try MQTTClient(options) { [weak self] event in self?.take(event) }
        }
        lookAtCertificate()
        beat()
    }

    /// Reads the certificate's end now and then. Logs a warning on each day near the end.
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

    /// The warning about the controller's own certificate; `nil` if it ends later.
    static func certificateWarning(_ end: Result<Double, CertificateFileError>?) -> String? {
        CertificateTerm.warning(end, ("the controller's certificate", "enrol the controller again"), now: wall)
    }

    var certificateEnd: Result<Double, CertificateFileError>? { core.withLock { $0.certificateEnd } }

    package let needsConfiguration = false
    package var isAlive: Bool { queue.sync { true } }

    /// Disconnects and stores pending reports.
    package func stop() async {
        await withCheckedContinuation { continuation in
            // Not on the queue, because the client's thread waits for the queue.
            DispatchQueue.global().async { [self] in
                client.withLock { $0 }?.closeAndWait()
                queue.sync { storeReports() }
                continuation.resume()
            }
        }
    }

    // MARK: The server

    /// Called on the client's thread, which blocks until the event is handled, so that events do not pile up.
    func take(_ event: MQTTEvent) {
        switch event {
        case .connected:
            log("connected to \(configuration.host):\(configuration.port)")
            queue.sync {
                core.withLock { $0.state.connected() }
                let topics = configuration.topics.forController
                do throws(MQTTError) {
                    // QoS 0: the server retains the messages that an acknowledgement would redeliver.
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

    /// Changes the state on the queue, like all changes: ``change(_:)`` replaces the state with the copy that it took
    /// before the write to the disk. The queue never waits for the client's thread.
    private func update<Value: Sendable>(_ body: @Sendable (inout ControllerState) -> Value) -> Value {
        queue.sync { core.withLock { body(&$0.state) } }
    }

    private func accepted(_ topic: String) {
        // Usually there is no rejection to remove.
        guard core.withLock({ $0.state.hasRefusals }), let topic = configuration.topics.topic(topic) else { return }
        update { $0.accepted(topic) }
    }

    /// Handles a rejected publication, which is repeated. Only the first of several rejections is logged.
    private func refused(_ error: MQTTError) {
        let topic = error.topic.flatMap(configuration.topics.topic)
        let isNews = topic.map { topic in update { $0.refused(topic, error.description, now: Self.wall) } } ?? true
        if isNews { log("\(error)") }
    }

    private func receive(_ message: MQTTMessage) {
        // Only topics of the fleet reach the limiter. They are short, which bounds its memory.
        guard let topic = configuration.topics.topic(message.topic) else { return update { $0.foreign() } }
        switch limiter.withLock({ $0.admit(message.topic, now: Self.uptime) }) {
        case .read: break
        case .passedOver: return
        case .firstPassedOver:
            log(
                "\(message.topic.suffix(100)): too many messages for an agent; the rest of these \(Int(ReportLimiter.window)) s is not read"
            )
            return update { $0.foreign() }
        }
        let event = Result { () throws(FleetRefusal) in try FleetEvent(parsing: message.payload) }
        queue.sync {
            core.withLock { core in
                guard case .success(let event) = event else { return core.state.foreign() }
                let sent = message.isRetained ? nil : event.time
                core.state.received(topic, event.message, sent: sent, now: Self.wall)
            }
            publish()
        }
        // An empty payload removes a retained message.
        if case .failure(let problem) = event, !message.payload.isEmpty {
            log("\(message.topic.suffix(100)): \(problem)")
        }
    }

    /// Publishes pending messages while there is room. Called on the queue.
    private func publish() {
        guard let client = client.withLock({ $0 }) else { return }
        while let (topic, content) = core.withLock({ $0.state.nextMessage(now: Self.wall) }) {
            let isHeartbeat = topic == .heartbeat
            let identifier =
                if case .desired(let order) = content {
                    "order-\(order.number)"
                } else {
                    "heartbeat-\(UInt64(max(0, Self.uptime * 1000)))"
                }
            let source = "/fleet/\(configuration.topics.fleet)"
            let event = FleetEvent(content, source: source, identifier: identifier, time: Self.wall)
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
                // Retried when there is room, or on the next connection.
                return core.withLock { $0.state.notPublished(topic) }
            }
        }
    }

    /// Requests messages that may have been lost, again and again. Called on the queue.
    private func askAgain() {
        let (reports, presence, isLooking) = core.withLock { core in
            let reports = core.state.nextReportsWanted(now: Self.wall, lookingAt: ControllerAnswers.slice)
            let presence = core.state.nextPresenceWanted(now: Self.wall, lookingAt: ControllerAnswers.slice)
            return (reports, presence, core.state.isLooking)
        }
        // Continues after the reports that have arrived in the meantime.
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
                // A separate subscription makes the server send this device's retained message alone.
                let topics = names.map(topic)
                try client.subscribe(to: topics, isAcknowledged: false)
                try client.unsubscribe(from: topics)
            }
        } catch {
            log("\(error)")
        }
    }

    // MARK: Time

    private func beat() {
        queue.asyncAfter(deadline: .now() + Self.beat) { [weak self] in
            guard let self else { return }
            storeReports()
            publish()
            // A search in progress continues by itself.
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
            // Nothing is lost: devices send their reports again, and the progress of orders is in memory.
            problem = error.description
        }
        let isNews = core.withLock { [problem] core in
            defer { core.problem = problem }
            return core.problem != problem
        }
        if isNews, let problem { log(problem) }
    }

    static var wall: Double { seconds(of: CLOCK_REALTIME) }
    static var uptime: Double { seconds(of: CLOCK_BOOTTIME) }

    // MARK: The command

    /// Reads the state, with the reason why reports cannot be stored.
    func read<Value: Sendable>(_ body: @Sendable (ControllerState, String?) -> Value) -> Value {
        core.withLock { body($0.state, $0.problem) }
    }

    /// Changes the state, stores the change, and publishes. If the disk rejects the change, the state is unchanged.
    func change<Value: Sendable>(
        _ body: @escaping @Sendable (inout ControllerState) throws(FleetRefusal) -> (ControllerRecord, Value)
    ) async throws(FleetRefusal) -> Value {
        let result: Result<Value, FleetRefusal> = await withCheckedContinuation { continuation in
            queue.async { [self] in
                let result = Result { () throws(FleetRefusal) in
                    var changed = core.withLock { $0.state }
                    let (record, value) = try body(&changed)
                    let devices = changed.devices
                    try store.withLock { store throws(FleetRefusal) in try store.store(record, devices: devices) }
                    // The state cannot have changed since, because all changes run on this queue.
                    core.withLock { [changed] in $0.state = changed }
                    return value
                }
                publish()
                continuation.resume(returning: result)
            }
        }
        return try result.get()
    }

    /// The polling interval of a request that waits for a change: counting 100,000 devices takes a while.
    static let pause = Duration.milliseconds(250)
}
