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
    @Test("FL-8: a device cannot write another's topics, get its orders or take its name")
    func foreignTopics() async throws {
        let stage = try await FleetStage.serving("a", "b")
        let a = try await stage.device("a")
        let b = try await stage.device("b")
        try a.subscribe(to: ["sd/1/clinic/dev/b/desired", "sd/1/clinic/dev/b/reported", "#"])
        try a.publish(.report(of: "b", seen: .max >> 12, sequence: 9))
        try a.publish(.fleet(.allDesired, bytes: []))
        try await eventually("both are refused") { a.refusals.filter { $0.reason == .refused(code: 0x87) }.count == 2 }
        _ = try await stage.order("--device", "b")
        try await eventually("b has its order") { !b.orders.isEmpty }
        // The server keeps the order of messages, so anything for a has arrived by now.
        _ = try await stage.order("--device", "a")
        try await eventually("a has its order") { !a.orders.isEmpty }
        #expect(a.messages.allSatisfy { $0.topic == "sd/1/clinic/dev/a/desired" || $0.topic.contains("/all/") })
        let devices = try await stage.fleet("devices", "--json")
        #expect(!devices.lines.joined().contains("reportedAt"), "\(devices)")
        // A certificate that claims another's client identifier disconnects no client.
        a.connection.closeAndWait()
        let thief = try stage.client("a", identifier: "b")
        try await eventually("the thief is connected") { thief.isConnected }
        try thief.publish(.fleet(.reported(device: "b"), bytes: []))
        try await eventually("the thief is refused") { !thief.refusals.isEmpty }
        try b.publish(.report(of: "b", seen: 1, sequence: 1))
        #expect(b.losses.isEmpty && b.refusals.isEmpty)
    }

    @Test("FL-8: an auditor reads the topics of devices and writes none")
    func auditor() async throws {
        let stage = try await FleetStage(enrolling: ["a", "auditor"])
        let auditor = try await stage.connected("auditor", to: ["sd/1/clinic/#"])
        let topics = ["dev/auditor/reported", "dev/auditor/presence", "dev/a/reported", "all/desired", "all/heartbeat"]
        for topic in topics { try auditor.publish(MQTTMessage(topic: "sd/1/clinic/\(topic)", payload: [])) }
        try await eventually("each is refused") { auditor.refusals.count == topics.count }
        #expect(auditor.refusals.allSatisfy { $0.reason == .refused(code: 0x87) })
        let a = try await stage.connected("a")
        try a.publish(.report(of: "a", seen: 1, sequence: 1))
        try await eventually("the auditor hears the report") { !auditor.messages.isEmpty }
        #expect(auditor.messages.map(\.topic) == ["sd/1/clinic/dev/a/reported"])
    }

    @Test("FL-10: no connection without TLS, or with another authority, device or host")
    func certificates() async throws {
        let stage = try await FleetStage(enrolling: ["b"])
        let bare = try stage.client("b") { $0.certificates = nil }
        try await eventually("without TLS there is nothing") { bare.losses.count >= 2 }
        #expect(!bare.isConnected)
        let other = try await FleetStage()
        let misled = try other.client("b") { $0.certificates = stage.files("b") }
        try await eventually("a server of another authority is not trusted") { !misled.losses.isEmpty }
        #expect(!misled.isConnected)
        // A server with the certificate of a device, then with one of another host.
        for words in [["a"], ["other.example", "--server"]] {
            try await stage.succeed(["certify", stage.path("pki")] + words)
            try await stage.killEngine()
            for kind in ["pem", "key"] {
                let file = try Data(contentsOf: URL(filePath: stage.path("pki/\(words[0]).\(kind)")))
                try file.write(to: URL(filePath: stage.path("pki/localhost.\(kind)")))
            }
            try await stage.startEngine()
            let client = try stage.client("b")
            try await eventually("\(words) is not trusted") { client.losses.count >= 2 }
            #expect(!client.isConnected, "\(words)")
        }
    }

    @Test(
        "FL-10: mosquitto_pub needs a certificate",
        .enabled(
            if: FileManager.default.isExecutableFile(atPath: "/usr/bin/mosquitto_pub"),
            "mosquitto_pub is not there: apt-get install mosquitto-clients"
        )
    )
    func otherProgram() async throws {
        let stage = try await FleetStage(enrolling: ["a"])
        let files = stage.files("a")
        let server = ["-V", "mqttv5", "-h", "localhost", "-p", "\(stage.port)", "--cafile", files.authority]
        let message = ["-q", "1", "-r", "-t", "sd/1/clinic/dev/a/reported", "-m", "text"]
        // The second attempt shows that only the certificate was missing.
        for certificate in [[], ["--cert", files.certificate, "--key", files.key]] {
            let process = try ChildProcess("mosquitto_pub", server + message + certificate)
            let status = await process.exitStatus(within: .seconds(60))
            #expect((status == 0) == !certificate.isEmpty, "\(process.errorText)")
        }
    }

    @Test("FL-11: huge and malformed retained messages have no effect and are counted")
    func hostilePayloads() async throws {
        let stage = try await FleetStage.serving("a", "b")
        let a = try await stage.device("a")
        let topic = FleetTopic.reported(device: "a")
        let hostile: [[UInt8]] = [
            Array("{".utf8), [0xFF], Array(repeating: UInt8(ascii: "["), count: 16_000),
            Array(repeating: UInt8(ascii: " "), count: 60_000),
        ]
        for bytes in hostile { try a.publish(.fleet(topic, bytes: bytes)) }
        try a.publish(.fleet(topic, .heartbeat(highest: 1)))
        try a.publish(.report(of: "a", seen: (1 << 53) - 1, sequence: (1 << 53) - 1))
        // Above max_packet_size: the client itself does not send it.
        try a.publish(.fleet(topic, bytes: Array(repeating: 0x20, count: 70_000)))
        try await eventually("the last one is refused") { !a.refusals.isEmpty || !a.losses.isEmpty }
        let b = try await stage.device("b")
        let number = try await stage.order("--all")
        #expect(number < 1 << 40, "the controller ignores numbers that leave no room")
        try b.publish(.report(of: "b", seen: number, sequence: 1))
        try await eventually("b is counted") {
            try await stage.fleet("status", "--json").lines.joined().contains("\"nobody\" : 1")
        }
        let status = try await stage.fleet("status")
        #expect(status.lines.contains { $0.hasPrefix("a") && $0.contains("refused") }, "\(status)")
    }

    @Test("FL-12: an order that is impossible or cannot be stored is not published")
    func fullDisk() async throws {
        let stage = try await FleetStage.serving("a")
        let a = try await stage.device("a")
        func refuses(_ target: String...) async throws {
            let outcome = try await stage.fleet(["sign-out", "--reason", "lost", "--wait", "0"] + target)
            #expect(![0, 69, 75].contains(outcome.status) && outcome.lines.isEmpty, "\(outcome)")
        }
        try await refuses("--device", "a", "--session", "9007199254740992")
        // The file now rejects orders, as on a full disk.
        let file = try SQLiteConnection(path: stage.path("controller/fleet.sqlite"), busyTimeout: .seconds(60))
        try file.execute("CREATE TRIGGER full BEFORE INSERT ON fleet_order BEGIN SELECT RAISE(ABORT, 'no space'); END")
        try await refuses("--all")
        try await refuses("--device", "a")
        #expect(try await stage.fleet("status").lines.isEmpty, "there is no order")
        try file.execute("DROP TRIGGER full")
        let kept = try await stage.order("--device", "a", "--session", "7")
        try await eventually("a has the order") { !a.orders.isEmpty }
        // The server keeps the order of messages.
        #expect(Set(a.orders.map(\.number)) == [kept] && a.orders.allSatisfy { $0.session == 7 })
    }

    @Test("FL-12: an order without a server is stored, and published after a kill")
    func withoutServer() async throws {
        let stage = try await FleetStage.serving("a")
        try await stage.killEngine(losesData: true)
        try await eventually("the controller knows") { stage.controllerText.contains("connection") }
        for target in [["--all"], ["--device", "a"]] {
            let outcome = try await stage.fleet(["sign-out", "--reason", "x", "--wait", "0"] + target)
            #expect(outcome.status == 69 && outcome.errors.contains("out of reach"), "\(outcome)")
            #expect(outcome.lines.first?.hasPrefix("recorded: order") == true)
        }
        await stage.killController()
        #expect(try await stage.fleet("orders").status == 69)
        try await stage.startEngine()
        let a = try await stage.device("a")
        try await stage.startController()
        try await eventually("both orders are there") { Set(a.orders).count == 2 }
    }

    @Test("FL-6: an order without permission is reported, and arrives once permitted")
    func notPermitted() async throws {
        let stage = try await FleetStage.serving("a")
        let a = try await stage.device("a")
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
        #expect(try await stage.fleet("status").errors.contains("server rejects it"))
        #expect(try await stage.fleet("devices").errors.contains("check its access list"))
        try permit(rights)
        try await eventually("the order arrives on the same connection") { !a.orders.isEmpty }
        try await eventually("nothing is refused any more") {
            try await !stage.fleet("status").errors.contains("server rejects it")
        }
    }
}
