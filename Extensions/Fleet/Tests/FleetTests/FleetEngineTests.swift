import DeviceStorage
import Fleet
import FleetStage
import Foundation
import MQTTClient
import NotifyCenterTestKit
import Testing

/// Uses the controller, the command and a real mosquitto with TLS. Honest and hostile devices are clients of the test.
@Suite("A fleet's MQTT server and hostile clients")
struct FleetEngineTests {
    static func payload(_ message: FleetMessage, id: String = "1") -> [UInt8] {
        FleetEvent(message, source: "/test", identifier: id, time: Date().timeIntervalSince1970).bytes
    }

    static func report(seen: UInt64, sequence: UInt64) -> [UInt8] {
        var report = DeviceReport()
        (report.seen.all, report.mode, report.sequence) = (seen, "shared", sequence)
        report.result = .init(order: seen, outcome: .nobody, ended: 7)
        return payload(.reported(report))
    }

    static func reported(_ device: String, _ payload: [UInt8]) -> MQTTMessage {
        MQTTMessage(topic: "sd/1/clinic/dev/\(device)/reported", payload: payload, isRetained: true)
    }

    static func orders(_ heard: FleetStage.Heard) -> [FleetOrder] {
        heard.messages.compactMap { message in
            guard case .desired(let order)? = try? FleetEvent(parsing: message.payload).message else { return nil }
            return order
        }
    }

    /// A connected client with the subscriptions of a device.
    static func device(_ name: String, on stage: FleetStage) async throws -> (MQTTClient, FleetStage.Heard) {
        let (client, heard) = try stage.client(name)
        try await eventually("\(name) is connected") { heard.isConnected }
        let topics = try #require(FleetTopics(fleet: "clinic"))
        try client.subscribe(to: topics.forDevice(name))
        return (client, heard)
    }

    @Test("FL-8: a device cannot write another's topics or receive its orders")
    func foreignTopics() async throws {
        let stage = try await FleetStage()
        for name in ["a", "b"] { try await stage.enrol(name) }
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a", "b")
        let (a, heardByA) = try await Self.device("a", on: stage)
        let (b, heardByB) = try await Self.device("b", on: stage)
        try a.subscribe(to: ["sd/1/clinic/dev/b/desired", "sd/1/clinic/dev/b/reported", "#"])
        try a.publish(Self.reported("b", Self.report(seen: .max >> 12, sequence: 9)))
        try a.publish(MQTTMessage(topic: "sd/1/clinic/all/desired", payload: [], isRetained: true))
        try await eventually("both are refused") {
            heardByA.refusals.filter { $0.reason == .refused(code: 0x87) }.count == 2
        }
        _ = try await stage.fleet("sign-out", "--device", "b", "--reason", "x", "--wait", "0")
        try await eventually("b has its order") { !Self.orders(heardByB).isEmpty }
        // The server keeps the order of messages, so anything for a has arrived by now.
        _ = try await stage.fleet("sign-out", "--device", "a", "--reason", "x", "--wait", "0")
        try await eventually("a has its order") { !Self.orders(heardByA).isEmpty }
        #expect(heardByA.messages.allSatisfy { $0.topic == "sd/1/clinic/dev/a/desired" || $0.topic.contains("/all/") })
        let devices = try await stage.fleet("devices", "--json")
        #expect(!devices.lines.joined().contains("reportedAt"), "\(devices)")
        withExtendedLifetime(b) {}
    }

    @Test("FL-8: an auditor reads the topics of devices and writes none")
    func auditor() async throws {
        let stage = try await FleetStage()
        for name in ["a", "auditor"] { try await stage.enrol(name) }
        let (auditor, heard) = try stage.client("auditor")
        try await eventually("the auditor is connected") { heard.isConnected }
        try auditor.subscribe(to: ["sd/1/clinic/#"])
        let topics = ["dev/auditor/reported", "dev/auditor/presence", "dev/a/reported", "all/desired", "all/heartbeat"]
        for topic in topics { try auditor.publish(MQTTMessage(topic: "sd/1/clinic/\(topic)", payload: [])) }
        try await eventually("each is refused") { heard.refusals.count == topics.count }
        #expect(heard.refusals.allSatisfy { $0.reason == .refused(code: 0x87) })
        let (a, heardByA) = try stage.client("a")
        try await eventually("a is connected") { heardByA.isConnected }
        try a.publish(Self.reported("a", Self.report(seen: 1, sequence: 1)))
        try await eventually("the auditor hears the report") { !heard.messages.isEmpty }
        #expect(heard.messages.map(\.topic) == ["sd/1/clinic/dev/a/reported"])
    }

    @Test("a certificate that claims another's client identifier disconnects no client")
    func foreignIdentifier() async throws {
        let stage = try await FleetStage()
        for name in ["a", "b"] { try await stage.enrol(name) }
        let (b, heardByB) = try await Self.device("b", on: stage)
        let (thief, heard) = try stage.client("a", identifier: "b")
        try await eventually("the thief is connected") { heard.isConnected }
        try thief.publish(Self.reported("b", []))
        try await eventually("the thief is refused") { !heard.refusals.isEmpty }
        try b.publish(Self.reported("b", Self.report(seen: 1, sequence: 1)))
        #expect(heardByB.losses.isEmpty && heardByB.refusals.isEmpty)
    }

    @Test(
        "FL-10: without TLS or with an untrusted certificate there is no connection"
    )
    func certificates() async throws {
        let stage = try await FleetStage()
        for name in ["a", "b"] { try await stage.enrol(name) }
        try await stage.revoke("a")
        try await stage.killEngine()
        try await stage.startEngine()
        let (revoked, heard) = try stage.client("a")
        try await eventually("the revoked one is refused") { heard.losses.count >= 2 }
        #expect(!heard.isConnected)
        try await eventually("it is told that the certificate is the reason") {
            heard.losses.contains { if case .untrusted = $0.reason { true } else { false } }
        }

        var options = MQTTOptions(host: "localhost", port: stage.port, clientIdentifier: "b", certificates: nil)
        options.firstDelay = .milliseconds(50)
        let bare = FleetStage.Heard()
        let nobody = try MQTTClient(options) { bare.add($0) }
        try await eventually("without TLS there is nothing") { bare.losses.count >= 2 }
        #expect(!bare.isConnected)

        let other = try await FleetStage()
        let files = stage.files("b")
        var wrong = MQTTOptions(host: "localhost", port: other.port, clientIdentifier: "b", certificates: files)
        wrong.firstDelay = .milliseconds(50)
        let misled = FleetStage.Heard()
        let client = try MQTTClient(wrong) { misled.add($0) }
        try await eventually("the wrong server is not trusted") { !misled.losses.isEmpty }
        #expect(!misled.isConnected)
        withExtendedLifetime((revoked, nobody, client)) {}
    }

    @Test(
        "FL-8, FL-10: mosquitto_pub needs a certificate and writes only its topics",
        .enabled(if: FleetEngineTests.hasOtherClient, "mosquitto_pub is not there: apt-get install mosquitto-clients")
    )
    func otherProgram() async throws {
        let stage = try await FleetStage()
        for name in ["a", "b", "auditor"] { try await stage.enrol(name) }
        let (auditor, heard) = try stage.client("auditor")
        try await eventually("the auditor is connected") { heard.isConnected }
        try auditor.subscribe(to: ["sd/1/clinic/dev/+/reported"])
        let files = stage.files("a")
        func publish(
            _ text: String,
            for device: String,
            _ words: [String] = []
        ) async throws -> (status: Int32, errors: String) {
            let common = ["-V", "mqttv5", "-h", "localhost", "-p", "\(stage.port)", "--cafile", files.authority]
            let message = ["-q", "1", "-r", "-t", "sd/1/clinic/dev/\(device)/reported", "-m", text]
            let process = try ChildProcess("mosquitto_pub", common + message + words)
            let status = await process.exitStatus(within: .seconds(60))
            return (status, process.errorText)
        }
        let bare = try await publish("bare", for: "a")
        #expect(bare.status != 0, "\(bare)")
        let certified = ["--cert", files.certificate, "--key", files.key]
        let foreign = try await publish("foreign", for: "b", certified)
        #expect(foreign.errors.lowercased().contains("not authorized"), "\(foreign)")
        // The same message with the right certificate and topic shows that nothing else was wrong.
        let own = try await publish("own", for: "a", certified)
        #expect(own.status == 0 && own.errors.isEmpty, "\(own)")
        try await eventually("the auditor hears it") { !heard.messages.isEmpty }
        #expect(heard.messages.map { String(decoding: $0.payload, as: UTF8.self) } == ["own"])
    }

    /// Whether an MQTT client of another project is installed.
    static var hasOtherClient: Bool {
        ["/usr/bin", "/usr/local/bin"].contains {
            FileManager.default.isExecutableFile(atPath: "\($0)/mosquitto_pub")
        }
    }

    @Test(
        "FL-10: a device's certificate or one of another host is not the server's",
        arguments: ["a", "other.example"]
    )
    func falseServer(name: String) async throws {
        let stage = try await FleetStage()
        try await stage.enrol("b")
        if name == "a" {
            try await stage.enrol("a")
        } else {
            #expect(try await stage.fleet("certify", stage.path("pki"), name, "--server").status == 0)
        }
        try await stage.killEngine()
        for kind in ["pem", "key"] {
            let file = try Data(contentsOf: URL(filePath: stage.path("pki/\(name).\(kind)")))
            try file.write(to: URL(filePath: stage.path("pki/localhost.\(kind)")))
        }
        try await stage.startEngine()
        let (client, heard) = try stage.client("b")
        try await eventually("it is not trusted") { heard.losses.count >= 2 }
        #expect(!heard.isConnected)
        withExtendedLifetime(client) {}
    }

    @Test("FL-11: huge and malformed retained messages have no effect and are counted")
    func hostilePayloads() async throws {
        let stage = try await FleetStage()
        for name in ["a", "b"] { try await stage.enrol(name) }
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a", "b")
        let (a, heard) = try await Self.device("a", on: stage)
        let hostile = [
            Array("{".utf8), [0xFF], Array(repeating: UInt8(ascii: "["), count: 16_000),
            Array(repeating: UInt8(ascii: " "), count: 60_000), Self.payload(.heartbeat(highest: 1)),
            Self.report(seen: (1 << 53) - 1, sequence: (1 << 53) - 1),
        ]
        for payload in hostile { try a.publish(Self.reported("a", payload)) }
        // Above max_packet_size: the client itself does not send it.
        try a.publish(Self.reported("a", Array(repeating: 0x20, count: 70_000)))
        try await eventually("the last one is refused") { !heard.refusals.isEmpty || !heard.losses.isEmpty }
        let (b, _) = try await Self.device("b", on: stage)
        let outcome = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "0", "--json")
        #expect(outcome.status == 75, "\(outcome)")
        let line = outcome.lines.first { $0.contains("\"order\"") } ?? ""
        let number = try #require(UInt64(line.filter(\.isNumber)))
        #expect(number < 1 << 40, "nobody follows a number that leaves no room")
        try b.publish(Self.reported("b", Self.report(seen: number, sequence: 1)))
        try await eventually("b counts") {
            let status = try await stage.fleet("status", "--json")
            return status.lines.joined().contains("\"nobody\" : 1")
        }
        let status = try await stage.fleet("status")
        #expect(status.lines.contains { $0.hasPrefix("a") && $0.contains("refused") }, "\(status)")
    }

    @Test("FL-12: an order that cannot be stored is refused and not published")
    func fullDisk() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("a")
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a")
        let (a, heard) = try await Self.device("a", on: stage)
        // The file now rejects orders, as on a full disk.
        let file = try SQLiteConnection(path: stage.path("controller/fleet.sqlite"), busyTimeout: .seconds(60))
        try file.execute(
            "CREATE TRIGGER full BEFORE INSERT ON fleet_order BEGIN SELECT RAISE(ABORT, 'no space'); END"
        )
        for target in [["--all"], ["--device", "a"]] {
            let outcome = try await stage.fleet(["sign-out", "--reason", "lost", "--wait", "0"] + target)
            #expect(![0, 69, 75].contains(outcome.status) && outcome.lines.isEmpty, "\(outcome)")
        }
        #expect(try await stage.fleet("status").lines.isEmpty, "there is no order")
        try file.execute("DROP TRIGGER full")
        _ = try await stage.fleet("sign-out", "--all", "--reason", "kept", "--wait", "0")
        try await eventually("a has the order") { !Self.orders(heard).isEmpty }
        // The server keeps the order of messages.
        #expect(Set(Self.orders(heard).map(\.reason)) == ["kept"])
        withExtendedLifetime(a) {}
    }

    @Test("FL-12: an order is stored first, and published later after a kill in between")
    func killedBeforePublishing() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("a")
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a")
        try await stage.killEngine(losesData: true)
        try await eventually("the controller knows") { stage.controllerText.contains("connection") }
        for target in [["--all"], ["--device", "a"]] {
            _ = try await stage.fleet(["sign-out", "--reason", "x", "--wait", "0"] + target)
        }
        await stage.killController()
        try await stage.startEngine()
        let (a, heard) = try await Self.device("a", on: stage)
        try await stage.startController()
        try await eventually("both orders are there") { Set(Self.orders(heard)).count == 2 }
        withExtendedLifetime(a) {}
    }

    @Test(
        "an order without a server is recorded, and the exit status says so"
    )
    func outOfReach() async throws {
        let stage = try await FleetStage()
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a")
        try await stage.killEngine()
        try await eventually("the controller knows") { stage.controllerText.contains("connection") }
        let outcome = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "0")
        #expect(outcome.status == 69, "\(outcome)")
        #expect(outcome.lines.first?.hasPrefix("recorded: order") == true)
        #expect(outcome.errors.contains("out of reach"))
        await stage.killController()
        #expect(try await stage.fleet("orders").status == 69)
    }

    @Test("FL-6: an order without permission is reported, and arrives once permitted")
    func notPermitted() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("a")
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a")
        let (a, heard) = try await Self.device("a", on: stage)
        let rights = try String(contentsOfFile: stage.path("acl"), encoding: .utf8)
        func permit(_ text: String) throws {
            try text.write(toFile: stage.path("acl"), atomically: true, encoding: .utf8)
            stage.reloadEngine()
        }
        try permit(rights.replacing("topic readwrite sd/1/clinic/#", with: "topic read sd/1/clinic/#"))
        try await eventually("the order is refused") {
            let outcome = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "2")
            return outcome.status == 69 && outcome.errors.contains("check its access list")
        }
        #expect(try await stage.fleet("status").errors.contains("does not take it"))
        #expect(try await stage.fleet("devices").errors.contains("check its access list"))
        try permit(rights)
        try await eventually("the order arrives on the same connection") { !Self.orders(heard).isEmpty }
        try await eventually("nothing is refused any more") {
            try await !stage.fleet("status").errors.contains("does not take it")
        }
        withExtendedLifetime(a) {}
    }
}
