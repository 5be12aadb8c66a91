import Basics
import DBus
import FoundationEssentials
import Glibc
package import MQTTClient
@_spi(Extensions) package import NotifyCenterTestKit
import Synchronization

/// A fleet for tests and the demonstration: certificates, a real mosquitto with TLS on this machine, and the controller
/// on a private bus. All of it ends with this object.
package final class FleetStage: Sendable {
    package struct Outcome: Sendable {
        package let status: Int32
        package let lines: [String]
        package let errors: String
    }

    package static let fleet = "clinic"

    package let directory: TemporaryDirectory
    package let bus: PrivateBus
    package let port: UInt16
    private let engine = Locked<ChildProcess?>(nil)
    private let controller = Locked<ChildProcess?>(nil)

    package static let root = "/" + #filePath.split(separator: "/").dropLast(4).joined(separator: "/")

    /// Creates the authority and the certificates of server and controller, and starts the server.
    ///
    /// - Parameters:
    ///   - isSimulation: whether connections with the certificate `simulation` may act for all devices.
    ///   - options: the options of the controller's bus.
    ///   - names: the agents to enrol.
    package init(
        isSimulation: Bool = false,
        bus options: PrivateBus.Options = .init(),
        enrolling names: [String] = []
    ) async throws {
        directory = try TemporaryDirectory("fleet")
        bus = try PrivateBus(options)
        port = try freePort()
        try await succeed("authority", path("pki"))
        try await succeed("certify", path("pki"), "localhost", "--server")
        try await succeed("certify", path("pki"), "controller")
        for name in ["store", "controller"] {
            try FileManager.default.createDirectory(atPath: path(name), withIntermediateDirectories: true)
        }
        if isSimulation { try await succeed("certify", path("pki"), "simulation") }
        try writeEngineFiles(isSimulation: isSimulation)
        try configure("controller")
        try await startEngine()
        for name in names { try await enrol(name) }
    }

    /// Returns a stage whose controller runs and lists these devices, which are enrolled.
    package static func serving(_ names: String...) async throws -> FleetStage {
        let stage = try await FleetStage(enrolling: names)
        try await stage.startController()
        _ = try await stage.fleet(["device", "add"] + names)
        return stage
    }

    package func path(_ name: String) -> String { "\(directory.path)/\(name)" }

    package struct StageFailure: Error, CustomStringConvertible {
        package let description: String

        package init(_ description: String) { self.description = description }
    }

    // MARK: Certificates and files

    /// Creates a certificate and the configuration of an agent with this name.
    ///
    /// - Parameter more: further members of the configuration.
    package func enrol(_ name: String, more: String = "") async throws {
        try await succeed("certify", path("pki"), name)
        try configure(name, more: more)
        try FileManager.default.createDirectory(atPath: path("\(name)-state"), withIntermediateDirectories: true)
    }

    /// Certifies a client's key again for this number of days.
    package func certify(_ name: String, days: Int) async throws {
        let script = """
            cd "$0"; export FLEET_FOLDER="$0" FLEET_NAMES=DNS:localhost
            openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
            exec openssl ca -batch -notext -config settings -extensions client -subj "/CN=$1" -days "$2" \\
                -in "$1.csr" -out "$1.pem" -outdir issued
            """
        let process = try ChildProcess("sh", ["-e", "-c", script, path("pki"), name, "\(days)"])
        guard await process.exitStatus() == 0 else { throw StageFailure("openssl: \(process.errorText)") }
    }

    package func files(_ name: String) -> MQTTOptions.Certificates {
        MQTTOptions.Certificates(
            authority: path("pki/authority.pem"),
            certificate: path("pki/\(name).pem"),
            key: path("pki/\(name).key")
        )
    }

    private func configure(_ name: String, more: String = "") throws {
        let files = files(name)
        try Data(
            """
            {"fleet": "clinic", "name": "\(name)", "host": "localhost", "port": \(port), "authority": "\(files.authority)",
             "certificate": "\(files.certificate)", "key": "\(files.key)"\(more)}
            """.utf8
        ).write(to: URL(filePath: path("\(name).json")))
    }

    /// Writes the example files for administrators, adapted to this port and directory.
    private func writeEngineFiles(isSimulation: Bool) throws {
        let read = { (name: String) in
            String(decoding: try Data(contentsOf: URL(filePath: "\(Self.root)/Examples/\(name)")), as: UTF8.self)
        }
        let rights = isSimulation ? "\nuser simulation\ntopic readwrite sd/1/clinic/#\n" : ""
        try Data((try read("acl") + rights).utf8).write(to: URL(filePath: path("acl")))
        var text = try read("mosquitto.conf")
            .replacing("listener 8883", with: "listener \(port) 127.0.0.1")
            .replacing("/etc/mosquitto/fleet/server", with: path("pki/localhost"))
            .replacing("/etc/mosquitto/fleet/acl", with: path("acl"))
            .replacing("/etc/mosquitto/fleet/", with: path("pki/"))
        if isSimulation {
            // The simulation has many connections with one certificate.
            text = text.replacing("use_username_as_clientid true", with: "use_username_as_clientid false")
        }
        text += "\npersistence_location \(path("store/"))\n"
        // If root starts mosquitto, it switches to its own user, who may not read the keys.
        if geteuid() == 0 { text += "\nuser root\n" }
        try Data(text.utf8).write(to: URL(filePath: path("mosquitto.conf")))
    }

    // MARK: Server and controller

    package func startEngine() async throws {
        let process = try ChildProcess("mosquitto", ["-c", path("mosquitto.conf")])
        engine.withLock { $0 = process }
        try await eventually("mosquitto serves") {
            guard process.isRunning else { throw StageFailure("mosquitto ended: \(process.errorText)") }
            return process.errorText.contains("running")
        }
    }

    /// Kills the server.
    ///
    /// - Parameter losesData: whether its saved data is deleted too.
    package func killEngine(losesData: Bool = false) async throws {
        if let process = engine.withLock({ $0 }) {
            process.kill()
            _ = await process.exitStatus()
        }
        guard losesData else { return }
        try? FileManager.default.removeItem(atPath: path("store/mosquitto.db"))
    }

    /// Makes the server read its access list again.
    package func reloadEngine() { if let process = engine.withLock({ $0 }) { kill(process.identifier, SIGHUP) } }

    package func suspendEngine(_ isSuspended: Bool) {
        let process = engine.withLock { $0 }
        if isSuspended { process?.suspend() } else { process?.resume() }
    }

    /// The resident memory, in bytes.
    package var engineMemory: Int { get throws { try engine.withLock { $0 }?.memory().resident ?? 0 } }
    package var controllerMemory: Int { get throws { try controller.withLock { $0 }?.memory().resident ?? 0 } }

    package func startController() async throws {
        let process = try await ChildProcess.service(
            ChildProcess.built("shared-device-controller"),
            ["--bus", bus.address, "--configuration", path("controller.json"), "--state", path("controller")]
        )
        controller.withLock { $0 = process }
    }

    package func killController() async {
        guard let process = controller.withLock({ $0 }) else { return }
        process.kill()
        _ = await process.exitStatus()
    }

    /// The running server and controller.
    package var processes: [(name: String, identifier: Int32)] {
        [("mosquitto", engine.withLock { $0 }), ("controller", controller.withLock { $0 })].compactMap {
            name,
            process in
            process.map { (name, $0.identifier) }
        }
    }

    package var controllerText: String { controller.withLock { $0 }?.errorText ?? "" }

    package func startAgent(_ name: String, bus: String) async throws -> ChildProcess {
        try await ChildProcess.service(
            ChildProcess.built("shared-device-agent"),
            ["--bus", bus, "--configuration", path("\(name).json"), "--state", path("\(name)-state")]
        )
    }

    package func fleet(_ words: String...) async throws -> Outcome { try await fleet(words) }

    /// Runs the command, which has to succeed, and returns the lines of its output.
    @discardableResult
    package func succeed(_ words: String...) async throws -> [String] { try await succeed(words) }

    @discardableResult
    package func succeed(_ words: [String]) async throws -> [String] {
        let outcome = try await fleet(words)
        guard outcome.status == 0 else { throw StageFailure("fleet \(words): \(outcome)") }
        return outcome.lines
    }

    /// Starts the command.
    package func start(_ words: [String]) throws -> ChildProcess {
        try ChildProcess(
            ChildProcess.built("shared-device"),
            ["fleet"] + words,
            environment: ["NOTIFY_CENTER_BUS": bus.address]
        )
    }

    package func fleet(_ words: [String]) async throws -> Outcome {
        let process = try start(words)
        let status = await process.exitStatus()
        return Outcome(status: status, lines: process.lines, errors: process.errorText)
    }

    /// Orders a sign-out without waiting for the devices, and returns the order's number.
    package func order(_ target: String...) async throws -> UInt64 {
        let outcome = try await fleet(["sign-out", "--reason", "x", "--wait", "0", "--json"] + target)
        let line = outcome.lines.first { $0.contains("\"order\"") } ?? ""
        guard let number = UInt64(line.filter(\.isNumber)) else { throw StageFailure("no order: \(outcome)") }
        return number
    }

    // MARK: Clients of a test

    package func options(identifier: String, certificate: String, port: UInt16? = nil) -> MQTTOptions {
        MQTTOptions(
            host: "localhost",
            port: port ?? self.port,
            clientIdentifier: identifier,
            certificates: files(certificate)
        )
    }

    /// A client with this certificate.
    ///
    /// - Parameter change: modifies the options.
    package func client(
        _ certificate: String,
        identifier: String? = nil,
        change: (inout MQTTOptions) -> Void = { _ in }
    ) throws -> Client {
        var options = options(identifier: identifier ?? certificate, certificate: certificate)
        options.firstDelay = .milliseconds(50)
        change(&options)
        return try Client(options)
    }

    /// A connected client with this certificate and these subscriptions.
    package func connected(_ certificate: String, to topics: [String] = []) async throws -> Client {
        let client = try self.client(certificate)
        try await eventually("\(certificate) is connected") { client.isConnected }
        if !topics.isEmpty { try client.subscribe(to: topics) }
        return client
    }

    /// A client of a server, which records its events.
    package struct Client: Sendable {
        private final class Events: Sendable {
            let all = Locked<[MQTTEvent]>([])
        }

        package let connection: MQTTClient
        private let events: Events

        package init(_ options: MQTTOptions) throws {
            let events = Events()
            self.events = events
            connection = try MQTTClient(options) { event in events.all.withLock { $0.append(event) } }
        }

        package func publish(_ message: MQTTMessage) throws { try connection.publish(message) }
        package func subscribe(to topics: [String]) throws { try connection.subscribe(to: topics) }

        package var all: [MQTTEvent] { events.all.withLock { $0 } }
        package var isConnected: Bool { all.contains { if case .connected = $0 { true } else { false } } }
        package var messages: [MQTTMessage] {
            all.compactMap { if case .message(let message) = $0 { message } else { nil } }
        }
        package var refusals: [MQTTError] { all.compactMap { if case .refused(let error) = $0 { error } else { nil } } }
        package var losses: [MQTTError] { all.compactMap { if case .lost(let error) = $0 { error } else { nil } } }
    }
}
