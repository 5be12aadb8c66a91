import DBusTransport
import Fleet
import FleetStage
import Foundation
import MQTTClient
import NotifyCenterTestKit
import Testing

/// The command's answers about a whole fleet, while it changes.
@Suite("What an operator sees of a fleet")
struct FleetViewTests {
    @Test("--json names the order at once; --watch shows each change of an order until all are done, or of all orders")
    func watched() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("a")
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a")
        let (a, heard) = try await FleetEngineTests.device("a", on: stage)
        func give() async throws -> UInt64 {
            let outcome = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "0", "--json")
            let line = outcome.lines.first ?? ""
            #expect(line.hasPrefix("{\"recorded\": ") && line.hasSuffix("}"), "\(outcome)")
            return try #require(UInt64(line.filter(\.isNumber)))
        }
        func watch(_ words: String...) throws -> ChildProcess {
            try ChildProcess(
                ChildProcess.built("shared-device"),
                ["fleet", "status", "--watch", "--json"] + words,
                environment: ["NOTIFY_CENTER_BUS": stage.bus.address]
            )
        }
        let first = try await give()
        let (all, one) = (try watch(), try watch("--order", "\(first)"))
        func shows(_ process: ChildProcess, _ order: UInt64, _ words: String) -> Bool {
            process.lines.contains { $0.contains("\"order\":\(order)") && $0.contains(words) }
        }
        try await eventually("both show who is not done") {
            shows(all, first, "\"unknown\":1") && shows(one, first, "\"unknown\":1")
        }
        try await eventually("the order is there") { !FleetEngineTests.orders(heard).isEmpty }
        try a.publish(FleetEngineTests.reported("a", FleetEngineTests.report(seen: first, sequence: 1)))
        #expect(await one.exitStatus() == 0)
        #expect(shows(one, first, "\"nobody\":1"))
        try await eventually("so does the other") { shows(all, first, "\"nobody\":1") }
        let second = try await give()
        try await eventually("and the next order") { shows(all, second, "\"undoneCount\":1") }
        #expect(all.isRunning && zip(all.lines, all.lines.dropFirst()).allSatisfy { $0 != $1 }, "\(all.lines)")
        all.kill()
    }

    @Test("metrics count the devices of the last order, and say when no controller answers")
    func metrics() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("a")
        try await stage.startController()
        #expect(try await !stage.fleet("metrics").lines.contains { $0.contains("_order") })
        _ = try await stage.fleet("device", "add", "a", "b")
        let (a, heard) = try await FleetEngineTests.device("a", on: stage)
        _ = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "0")
        try await eventually("the order is there") { !FleetEngineTests.orders(heard).isEmpty }
        let order = try #require(FleetEngineTests.orders(heard).first)
        try a.publish(FleetEngineTests.reported("a", FleetEngineTests.report(seen: order.number, sequence: 1)))
        try await eventually("one is done") {
            let lines = try await stage.fleet("metrics").lines
            return lines.contains(#"shared_device_fleet_order_devices{state="nobody"} 1"#)
                && lines.contains(#"shared_device_fleet_order_devices{state="unknown"} 1"#)
                && lines.contains(#"shared_device_fleet_devices{listed="yes"} 2"#)
                && lines.contains("shared_device_fleet_connected 1") && lines.last == "# EOF"
        }
        let file = stage.path("fleet.prom")
        #expect(try await stage.fleet("metrics", "--output", file).status == 0)
        #expect(try String(contentsOfFile: file, encoding: .utf8).contains("order \(order.number)\n"))
        await stage.killController()
        let away = try await stage.fleet("metrics")
        #expect(away.status == 0 && away.lines.contains("shared_device_fleet_up 0"), "\(away)")
    }

    @Test("FL-12: the session that sign-out --session names is in the order; one that no message can name is refused")
    func namedSession() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("a")
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "a")
        let (a, heard) = try await FleetEngineTests.device("a", on: stage)
        let words = ["sign-out", "--device", "a", "--reason", "x", "--wait", "0", "--session"]
        let refused = try await stage.fleet(words + ["9007199254740992"])
        #expect(![0, 69, 75].contains(refused.status) && refused.lines.isEmpty, "\(refused)")
        _ = try await stage.fleet(words + ["7"])
        try await eventually("the order is there") { !FleetEngineTests.orders(heard).isEmpty }
        #expect(FleetEngineTests.orders(heard).allSatisfy { $0.session == 7 })
        withExtendedLifetime(a) {}
    }

    @Test(
        "an answer with times that no clock has is shown without them",
        arguments: [.nan, .infinity, -.infinity, 1e300] as [Double]
    )
    func anyTimes(time: Double) async throws {
        let bus = try PrivateBus()
        let device: [String: DBusValue] = [
            "device": .string("ward-1"), "isListed": .boolean(true), "clockOffset": .double(time),
            "reportedAt": .double(time),
        ]
        let controller = try await Self.controller(of: device, isConnected: true, on: bus)
        let forms: [([String], String)] = [([], "never"), (["--json"], "\"listed\" : true")]
        for (words, expected) in forms {
            let process = try ChildProcess(
                ChildProcess.built("shared-device"),
                ["fleet", "devices", "--bus", bus.address] + words
            )
            #expect(await process.exitStatus() == 0, "\(process.errorText)")
            let text = process.lines.joined(separator: "\n")
            #expect(text.contains("ward-1") && text.contains(expected) && !text.contains("clock"), "\(text)")
        }
        withExtendedLifetime((bus, controller)) {}
    }

    @Test(
        "devices are called online only while the controller reaches the MQTT server; otherwise that is unknown",
        arguments: [true, false]
    )
    func networkUnknown(isConnected: Bool) async throws {
        let bus = try PrivateBus()
        let device: [String: DBusValue] = [
            "device": .string("ward-1"), "isListed": .boolean(true), "isOnline": .boolean(true),
        ]
        let controller = try await Self.controller(of: device, isConnected: isConnected, on: bus)
        for words in [[], ["--json"]] as [[String]] {
            let process = try ChildProcess(
                ChildProcess.built("shared-device"),
                ["fleet", "devices", "--bus", bus.address] + words
            )
            #expect(await process.exitStatus() == 0, "\(process.errorText)")
            let text = process.lines.joined(separator: "\n")
            #expect(text.contains("ward-1") && text.contains("online") == isConnected, "\(text)")
            #expect(text.contains("unknown") == (!isConnected && words.isEmpty), "\(text)")
            #expect(process.errorText.contains("does not reach the MQTT server") == !isConnected)
        }
        withExtendedLifetime((bus, controller)) {}
    }

    @Test(
        "who is signed in is said as of the last report where the device is away, and not at all where its broker is mute",
        arguments: [
            ("shared", 7, true, "online session 7 0"), ("shared", nil, true, "online nobody 0"),
            ("shared", 7, false, "away session 7 at the last report 0"),
            ("shared", nil, false, "away nobody at the last report 0"), ("unknown", nil, true, "online unknown -"),
            ("unknown", nil, false, "away unknown -"),
        ] as [(String, UInt64?, Bool, String)]
    )
    func signedIn(mode: String, session: UInt64?, isOnline: Bool, expected: String) async throws {
        let bus = try PrivateBus()
        var device: [String: DBusValue] = [
            "device": .string("ward-1"), "isListed": .boolean(true), "isOnline": .boolean(isOnline),
            "mode": .string(mode), "owes": .uint64(0),
        ]
        if let session { device["session"] = .uint64(session) }
        let controller = try await Self.controller(of: device, isConnected: true, on: bus)
        for words in [[], ["--json"]] as [[String]] {
            let process = try ChildProcess(
                ChildProcess.built("shared-device"),
                ["fleet", "devices", "--bus", bus.address] + words
            )
            #expect(await process.exitStatus() == 0, "\(process.errorText)")
            let text = process.lines.joined(separator: " ").split(separator: " ").joined(separator: " ")
            if words.isEmpty {
                #expect(text.contains("ward-1 \(expected) never"), "\(text)")
            } else {
                #expect(text.contains("\"owes\" : 0") == (mode == "shared"), "\(text)")
            }
        }
        withExtendedLifetime((bus, controller)) {}
    }

    /// A controller that answers with this device alone, as long as what is returned is kept.
    private static func controller(
        of device: [String: DBusValue],
        isConnected: Bool,
        on bus: PrivateBus
    ) async throws -> (DBusConnection, Observation) {
        let connection = try DBusConnection.open(bus.bus)
        let method = DBusInterface.Method(
            FleetProtocol.Method.getDevices.rawValue,
            in: [.init("request", "a{sv}")],
            out: [.init("answer", "a{sv}")]
        ) { _ in
            [.fields(["devices": .array([.fields(device)], of: "a{sv}"), "isConnected": .boolean(isConnected)])]
        }
        let object = try connection.export(
            [DBusInterface(FleetProtocol.interface, methods: [method])],
            at: FleetProtocol.path
        )
        try await connection.requestName(FleetProtocol.busName)
        return (connection, object)
    }

    @Test("on a terminal --watch shows the counts, as many devices as there is room for, and how many more")
    func onTerminal() async throws {
        let stage = try await FleetStage()
        try await stage.startController()
        _ = try await stage.fleet(["device", "add"] + (10..<50).map { "ward-\($0)" })
        _ = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "0")
        // A terminal of ten rows, which shows what the program writes until there is a whole screen of it.
        let terminal = """
            import fcntl, os, pty, select, struct, subprocess, sys, termios
            controller, terminal = pty.openpty()
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 80, 0, 0))
            child = subprocess.Popen(sys.argv[1:], stdout=terminal)
            shown = b""
            while b" more" not in shown and select.select([controller], [], [], 30)[0]: shown += os.read(controller, 65536)
            child.kill()
            sys.stdout.buffer.write(shown)
            """
        let screen = try ChildProcess(
            "python3",
            ["-c", terminal, ChildProcess.built("shared-device"), "fleet", "status", "--watch"],
            environment: ["TERM": "xterm", "NO_COLOR": "1", "NOTIFY_CENTER_BUS": stage.bus.address]
        )
        #expect(await screen.exitStatus() == 0, "\(screen.errorText)")
        let lines = screen.lines.map { $0.filter { $0 != "\r" } }
        #expect(lines.count == 9 && lines.first?.contains("order ") == true, "\(lines)")
        #expect(lines.dropFirst().first == "40 unknown" && lines.last == "… and 35 more", "\(lines)")
        #expect(lines.count { $0.hasPrefix("ward-") } == 5, "\(lines)")
    }
}
