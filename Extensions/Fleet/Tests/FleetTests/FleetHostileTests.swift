import Basics
import DBus
import Fleet
import FleetLoad
import FleetStage
import Foundation
import Glibc
import MQTTClient
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit
import Synchronization
import Testing

/// Attacks and overload: floods, clients that never read, replayed orders, and kills at every message.
@Suite("A fleet under attack", .serialized)
struct FleetHostileTests {
    private static let app = TestApp(
        "org.notifycenter.example.point-of-sale",
        executable: TestApp.built("point-of-sale"),
        arguments: ["--stay", "--bus", "{bus}", "--data", "{data}"]
    )

    @Test("FL-3: replayed and reordered orders do not end a later session")
    func replayed() async throws {
        let stage = try await FleetStage(enrolling: ["ward-1"])
        let device = try await TestDevice()
        // This test acts as the controller, or as an attacker with its certificate or the server.
        let controller = try await stage.connected("controller", to: ["sd/1/clinic/dev/+/reported"])
        let agent = try await stage.startAgent("ward-1", bus: device.bus.address)
        let epoch = { controller.reports.last?.session }
        func order(_ topic: FleetTopic, _ number: UInt64, session: UInt64? = nil) throws {
            let order = FleetOrder(number: number, session: session, reason: "x")
            try controller.publish(.fleet(topic, .desired(order)))
        }
        try await device.signIn("ada")
        try await eventually("ada's session is reported") { epoch() != nil }
        let first = try #require(epoch())
        try order(.allDesired, 100)
        try await eventually("ada is signed out") { controller.reports.last?.seen.all == 100 && epoch() == nil }
        try await device.signIn("grace")
        try await eventually("grace's session is reported") { epoch().map { $0 > first } ?? false }
        let second = epoch()
        for _ in 0..<100 {
            for number: UInt64 in [100, 99, 1] { try order(.allDesired, number) }
        }
        // The server keeps the order of messages, so once this order is seen, the agent has handled the earlier ones.
        try order(.desired(device: "ward-1"), 101, session: first)
        try await eventually("the last order is seen") { controller.reports.last?.seen.own == 101 }
        #expect(controller.reports.last?.result == .init(order: 101, outcome: .sessionOver, ended: (second ?? 0) - 1))
        #expect(epoch() == second && agent.isRunning, "grace is still signed in: \(agent.errorText)")
    }

    /// The process that is killed, right after an acknowledged message passed.
    enum Victim: String, CaseIterable {
        case engine, agent, controller, broker
    }

    @Test("FL-1, FL-3: after any kill the order is carried out and never counted early", arguments: Victim.allCases)
    func killedAtEachMessage(victim: Victim) async throws {
        let stage = try await FleetStage.serving("ward-1")
        try await stage.enrol("auditor")
        let device = try await TestDevice(apps: [Self.app])
        var agent = try await stage.startAgent("ward-1", bus: device.bus.address)
        try await device.waitUntilRunning()
        let auditor = try stage.client("auditor")
        // The order and the reports that follow it.
        for message in 1...2 {
            let mark = device.apps[0].lines.count
            try await device.signIn("ada")
            try await device.apps[0].line(after: mark) { $0.contains("signed in: Ada") }
            try device.apps[0].write("work")
            try await eventually("something is kept") { try !device.apps[0].findings(of: ["Ada <ada>"]).isEmpty }
            try await eventually("the auditor is connected") { (try? auditor.subscribe(to: ["sd/1/clinic/#"])) != nil }
            try await eventually("the session is reported") { auditor.reports.last?.session != nil }
            let before = auditor.messages.count
            let words = ["sign-out", "--all", "--reason", "x", "--wait", "0"]
            #expect(try await stage.fleet(words).status != EX_NOPERM)
            try? await eventually("the message went by", within: .seconds(3)) {
                auditor.messages.dropFirst(before).count { !$0.isRetained && $0.isAcknowledged } >= message
            }
            switch victim {
            case .engine:
                try await stage.killEngine(losesData: true)
                try await stage.startEngine()
            case .agent:
                agent.kill()
                _ = await agent.exitStatus()
                agent = try await stage.startAgent("ward-1", bus: device.bus.address)
            case .controller:
                await stage.killController()
                try await stage.startController()
            case .broker: try await device.restartBroker()
            }
            try await eventually("the order is carried out") {
                let isDone = try await stage.fleet("status").status == 0
                let isClean = try device.apps[0].findings(of: ["Ada <ada>"]).isEmpty
                #expect(!isDone || isClean, "done, and not clean")
                return isDone && isClean
            }
        }
    }

    @Test("a device that never reads costs the server and other devices nothing")
    func neverReads() async throws {
        let stage = try await FleetStage.serving("a", "b")
        let topics = try #require(FleetTopics(fleet: "clinic"))
        let isOver = DispatchSemaphore(value: 0)
        let isConnected = Counter()
        let deaf = try MQTTClient(stage.options(identifier: "a", certificate: "a")) { event in
            if case .connected = event { isConnected.add() }
            // From the first message on it reads nothing.
            if case .message = event { isOver.wait() }
        }
        defer { for _ in 0..<1000 { isOver.signal() } }
        try await eventually("a is connected") { isConnected.value > 0 }
        try deaf.subscribe(to: topics.forDevice("a"))
        let b = try await stage.device("b")
        var number: UInt64 = 0
        for _ in 0..<20 { number = try await stage.order("--all") }
        try await eventually("b has the last order") { b.orders.contains { $0.number == number } }
        #expect(try stage.engineMemory < 64 << 20)
        withExtendedLifetime(deaf) {}
    }

    @Test("FL-11: endless reports delay no order and do not make the controller grow")
    func flood() async throws { try await withTaskExecutorPreference(OwnThread()) { try await judgeFlood() } }

    private func judgeFlood() async throws {
        let stage = try await FleetStage.serving("a", "b")
        let hostile = try await stage.connected("a")
        let b = try await stage.device("b")
        let (isOver, sent) = (Counter(), Counter())
        // Ends the flood, also if the test fails.
        defer { isOver.add() }
        let flood = Task { await onThread { Self.reportWithoutEnd(hostile.connection, until: isOver, sent) } }
        try await eventually("the flood is under way") { sent.value > 1000 }
        let begin = ContinuousClock.now
        for _ in 0..<3 {
            let number = try await stage.order("--device", "b")
            try b.publish(.report(of: "b", seen: number, sequence: number))
            try await eventually("b is done") { try await stage.fleet("status").status == 0 }
        }
        #expect(ContinuousClock.now - begin < .seconds(60))
        isOver.add()
        await flood.value
        #expect(try stage.controllerMemory < 128 << 20)
    }

    private static func reportWithoutEnd(_ hostile: MQTTClient, until isOver: Counter, _ sent: Counter) {
        var report = DeviceReport()
        (report.mode, report.sequence) = ("shared", 1)
        report.problems = Array(repeating: String(repeating: "x", count: 200), count: 8)
        while isOver.value == 0 {
            do throws(MQTTError) {
                try hostile.publish(.fleet(.reported(device: "a"), .reported(report)))
                report.sequence += 1
                sent.add()
            } catch {
                // The client takes no more until the server acknowledges.
                usleep(500)
            }
        }
    }

    @Test("a last report that was lost among too many is fetched from the server")
    func lastReportIsLost() async throws {
        let stage = try await FleetStage.serving("a")
        let device = try await stage.connected("a")
        try device.publish(.fleet(.presence(device: "a"), .presence(isOnline: true)))
        let number = try await stage.order("--all")
        // The last of so many reports in one window is not read.
        for sequence: UInt64 in 1...100 {
            try device.publish(.report(of: "a", seen: sequence == 100 ? number : 0, sequence: sequence))
        }
        try await eventually("the excess reports are ignored") {
            stage.controllerText.contains("too many messages for an agent")
        }
        try await eventually("the device is done", within: .seconds(60)) { try await stage.fleet("status").status == 0 }
        #expect(!stage.controllerText.contains("refuses it"), "\(stage.controllerText)")
    }

    private final class Counter: Sendable {
        private let count = Locked(0)
        var value: Int { count.withLock { $0 } }
        func add() { count.withLock { $0 += 1 } }
    }

    /// - Returns: whether the controller has responded, even with a refusal for overload.
    private static func giveOrder(_ controller: ControllerQuestions, refused: Counter) async -> Bool {
        do {
            _ = try await controller.signOutAll()
        } catch {
            guard (error as? DBusError)?.name == "org.freedesktop.DBus.Error.LimitsExceeded" else { return false }
            refused.add()
            try? await Task.sleep(for: .milliseconds(5))
        }
        return true
    }

    @Test("a script that floods orders is limited, and other callers are served")
    func floodOfOrders() async throws {
        let stage = try await FleetStage.serving("a")
        let connections = try (0..<4).map { _ in try ControllerQuestions(bus: stage.bus.address) }
        let refused = Counter()
        var lanes: [Task<Void, Never>] = []
        for lane in 0..<120 {
            let connection = connections[lane % connections.count]
            lanes.append(
                Task.detached { while !Task.isCancelled, await Self.giveOrder(connection, refused: refused) {} }
            )
        }
        try await eventually("some are refused") { refused.value > 100 }
        var waits: [Duration] = []
        for _ in 0..<5 {
            let begin = ContinuousClock.now
            // Connections take turns, so that the flood is limited and this call is not.
            let outcome = try await stage.fleet("sign-out", "--device", "a", "--reason", "x", "--wait", "0")
            #expect(outcome.status == EX_TEMPFAIL, "it does not wait for devices: \(outcome)")
            #expect(outcome.lines.first?.hasPrefix("recorded") == true, "\(outcome)")
            waits.append(.now - begin)
        }
        for lane in lanes { lane.cancel() }
        print("flood of orders: an order by another user took \(waits.sorted())")
        #expect(try stage.controllerMemory < 128 << 20)
    }

    @Test(
        "a caller other than root and the controller's user gets exit status 77",
        .enabled(if: geteuid() == 0, "root alone has several users")
    )
    func notPermitted() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        let stage = try await FleetStage(bus: options)
        try await stage.startController()
        for words in [["orders"], ["sign-out", "--all", "--reason", "x"], ["device", "add", "a"]] {
            let stranger = try ChildProcess(
                as: 65534,
                ChildProcess.built("shared-device"),
                ["fleet"] + words + ["--bus", stage.bus.address]
            )
            #expect(await stranger.exitStatus() == EX_NOPERM, "\(words): \(stranger.errorText)")
        }
        #expect(try await stage.fleet("devices", "--json").lines.joined() == "[]")
    }
}
