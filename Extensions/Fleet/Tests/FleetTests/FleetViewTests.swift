import DBus
import DBusService
import Fleet
import FleetStage
import Foundation
import MQTTClient
import NotifyCenterTestKit
import Testing

/// The command's output about a whole fleet while it changes.
@Suite("The operator's view of a fleet")
struct FleetViewTests {
    @Test("--json prints the order at once, and --watch each change until all are done")
    func watched() async throws {
        let stage = try await FleetStage.serving("a")
        let a = try await stage.device("a")
        let outcome = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "0", "--json")
        let line = outcome.lines.first ?? ""
        #expect(line.hasPrefix("{\"recorded\": ") && line.hasSuffix("}"), "\(outcome)")
        let first = try #require(UInt64(line.filter(\.isNumber)))
        let words = ["status", "--watch", "--json"]
        let (all, one) = (try stage.start(words), try stage.start(words + ["--order", "\(first)"]))
        func shows(_ process: ChildProcess, _ order: UInt64, _ words: String) -> Bool {
            process.lines.contains { $0.contains("\"order\":\(order)") && $0.contains(words) }
        }
        try await eventually("both show who is not done") {
            shows(all, first, "\"unknown\":1") && shows(one, first, "\"unknown\":1")
        }
        try await eventually("the order is there") { !a.orders.isEmpty }
        try a.publish(.report(of: "a", seen: first, sequence: 1))
        #expect(await one.exitStatus() == 0)
        #expect(shows(one, first, "\"nobody\":1"))
        try await eventually("the other command shows it, too") { shows(all, first, "\"nobody\":1") }
        let second = try await stage.order("--all")
        try await eventually("the other command shows the next order") { shows(all, second, "\"undoneCount\":1") }
        #expect(all.isRunning && zip(all.lines, all.lines.dropFirst()).allSatisfy { $0 != $1 }, "\(all.lines)")
        all.kill()
    }

    @Test("metrics count the last order's devices and tell if the controller is missing")
    func metrics() async throws {
        let stage = try await FleetStage.serving("a", "b")
        #expect(try await !stage.fleet("metrics").lines.contains { $0.contains("_order") })
        let a = try await stage.device("a")
        let order = try await stage.order("--all")
        try a.publish(.report(of: "a", seen: order, sequence: 1))
        let expected: Set = [
            #"shared_device_fleet_order_devices{state="nobody"} 1"#,
            #"shared_device_fleet_order_devices{state="unknown"} 1"#,
            #"shared_device_fleet_devices{listed="yes"} 2"#, "shared_device_fleet_connected 1",
        ]
        try await eventually("one is done") {
            let lines = try await stage.fleet("metrics").lines
            return expected.isSubset(of: lines) && lines.last == "# EOF"
        }
        let file = stage.path("fleet.prom")
        #expect(try await stage.fleet("metrics", "--output", file).status == 0)
        #expect(try String(contentsOfFile: file, encoding: .utf8).contains("order \(order)\n"))
        await stage.killController()
        let away = try await stage.fleet("metrics")
        #expect(away.status == 0 && away.lines.contains("shared_device_fleet_up 0"), "\(away)")
    }

    /// Runs the command with a substitute for the controller that has these methods.
    private static func run(
        _ words: [String],
        _ answers: [FleetProtocol.Method: @Sendable ([String: DBusValue]) -> [String: DBusValue]]
    ) async throws -> ChildProcess {
        let bus = try PrivateBus()
        let connection = try DBusConnection.open(bus.bus)
        let methods = answers.map { method, answer in
            DBusInterface.Method(method.rawValue, in: [.init("request", "a{sv}")], out: [.init("answer", "a{sv}")]) {
                [.fields(answer($0.arguments.first?.fieldsValue ?? [:]))]
            }
        }
        let interface = DBusInterface(FleetProtocol.interface, methods: methods)
        let object = try connection.export([interface], at: FleetProtocol.path)
        try await connection.requestName(FleetProtocol.busName)
        let process = try ChildProcess(ChildProcess.built("shared-device"), ["fleet"] + words + ["--bus", bus.address])
        #expect(await process.exitStatus() == 0, "\(process.errorText)")
        withExtendedLifetime((bus, object)) {}
        return process
    }

    /// The output of `fleet devices` for devices with these fields, named ward-0 and so on.
    private static func devices(
        _ devices: [[String: DBusValue]],
        isConnected: Bool = true,
        _ words: String...
    ) async throws -> ChildProcess {
        let named = devices.enumerated().map { index, fields in
            DBusValue.fields(fields.merging(["device": .string("ward-\(index)"), "isListed": .boolean(true)]) { $1 })
        }
        return try await run(
            ["devices"] + words,
            [.getDevices: { _ in ["devices": .array(named, of: "a{sv}"), "isConnected": .boolean(isConnected)] }]
        )
    }

    @Test("sign-out gives devices time to respond before the first count")
    func firstCount() async throws {
        // The device's report arrives between the first request and the second.
        let words = ["sign-out", "--all", "--reason", "x", "--wait", "60"]
        let process = try await Self.run(
            words,
            [
                .signOut: { _ in ["order": .uint64(7), "isConnected": .boolean(true)] },
                .getOrder: { request in
                    let isFirst = request["revision"] == nil
                    return [
                        "order": .uint64(7), "revision": .uint64(isFirst ? 1 : 2), "isConnected": .boolean(true),
                        "total": .uint64(1), "undoneCount": .uint64(isFirst ? 1 : 0),
                        "counts": .fields([isFirst ? "unreachable" : "nobody": .uint64(1)]),
                    ]
                },
            ]
        )
        #expect(process.lines == ["recorded: order 7", "  1 nobody"])
    }

    @Test("a device is shown as online only while the controller is connected", arguments: [true, false])
    func networkUnknown(isConnected: Bool) async throws {
        let fields: [[String: DBusValue]] = [["isOnline": .boolean(true)]]
        let table = try await Self.devices(fields, isConnected: isConnected)
        let text = try await Self.devices(fields, isConnected: isConnected, "--json").lines.joined(separator: "\n")
        for text in [table.lines.joined(separator: "\n"), text] {
            #expect(text.contains("ward-0") && text.contains("online") == isConnected, "\(text)")
        }
        #expect(table.lines.joined().contains("unknown") == !isConnected && !text.contains("unknown"))
        #expect(table.errorText.contains("does not reach the MQTT server") == !isConnected)
    }

    @Test("the session is shown as last reported, unless the broker did not respond")
    func signedIn() async throws {
        let cases: [(mode: String, session: UInt64?, isOnline: Bool, expected: String)] = [
            ("shared", 7, true, "online session 7 0"), ("shared", nil, true, "online no account 0"),
            ("shared", 7, false, "away session 7 at the last report 0"),
            ("shared", nil, false, "away no account at the last report 0"), ("unknown", nil, true, "online unknown -"),
            ("unknown", nil, false, "away unknown -"),
        ]
        // Impossible times are not shown.
        let times: [Double] = [.nan, .infinity, -.infinity, 1e300, -1e300, -.nan]
        let fields = zip(cases, times).map { one, time -> [String: DBusValue] in
            var fields: [String: DBusValue] = [
                "isOnline": .boolean(one.isOnline), "mode": .string(one.mode), "owes": .uint64(0),
                "clockOffset": .double(time), "reportedAt": .double(time),
            ]
            fields["session"] = one.session.map { .uint64($0) }
            return fields
        }
        let lines = try await Self.devices(fields).lines.map { $0.split(separator: " ").joined(separator: " ") }
        for (index, one) in cases.enumerated() {
            #expect(lines.contains { $0.contains("ward-\(index) \(one.expected) never") }, "\(lines)")
        }
        let text = try await Self.devices(fields, "--json").lines.joined()
        #expect(text.components(separatedBy: "\"listed\" : true").count == cases.count + 1, "\(text)")
        #expect(text.components(separatedBy: "\"owes\" : 0").count == 5, "of the four whose broker responds: \(text)")
        let shown = lines.filter { $0.hasPrefix("ward-") } + [text]
        #expect(!shown.contains { $0.contains("clock") }, "\(shown)")
    }

    @Test("on a terminal --watch shows the counts and as many devices as fit")
    func onTerminal() async throws {
        let stage = try await FleetStage()
        try await stage.startController()
        _ = try await stage.fleet(["device", "add"] + (10..<50).map { "ward-\($0)" })
        _ = try await stage.order("--all")
        // A terminal of ten rows that shows the program's output once a full screen has arrived.
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
