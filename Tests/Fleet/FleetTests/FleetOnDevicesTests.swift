import Fleet
import FleetStage
import Foundation
import NotifyCenterTestKit
import SharedDeviceTestKit
import Testing

/// Real devices, each with bus, broker and apps, a real mosquitto with TLS, the controller and the command.
@Suite("A fleet of real devices")
struct FleetOnDevicesTests {
    private static let apps = ["point-of-sale", "flight-briefing"].map { name in
        TestApp(
            "org.notifycenter.example.\(name)",
            executable: TestApp.built(name),
            arguments: ["--stay", "--bus", "{bus}", "--data", "{data}"]
        )
    }

    private static let ada: Marker = "Ada <ada>"

    /// Has each app keep something of Ada's.
    private static func work(_ device: TestDevice) async throws {
        for app in device.apps {
            try await app.line { $0.contains("signed in: Ada") }
            try app.write("work")
            try await eventually("\(app.identifier) keeps something") { try !app.findings(of: [ada]).isEmpty }
        }
    }

    @Test("FL-3, FL-13: an order signs a device out, and it is done when the receipts of its apps have come back")
    func signsOut() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("ward-1")
        try await stage.startController()
        let device = try await TestDevice(apps: Self.apps)
        let agent = try await stage.startAgent("ward-1", bus: device.bus.address)
        _ = try await stage.fleet("device", "add", "ward-1", "--group", "wards")
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        try await Self.work(device)

        let outcome = try await stage.fleet("sign-out", "--all", "--reason", "closing time", "--wait", "60")
        #expect(outcome.status == 0, "\(outcome)\n\(stage.controllerText)\n\(agent.errorText)")
        #expect(outcome.lines.first?.hasPrefix("recorded: order ") == true)
        #expect(outcome.lines.last == "  1 clean")
        #expect(try device.apps.allSatisfy { try $0.findings(of: [Self.ada]).isEmpty })

        // The next order finds nobody.
        let again = try await stage.fleet("sign-out", "--group", "wards", "--reason", "again", "--json")
        #expect(again.status == 0)
        #expect(again.lines.joined().contains("\"nobody\" : 1"), "\(again)")
    }

    @Test("an agent and a broker that are killed carry an order out when they are back, and nobody counts before")
    func killed() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("ward-1")
        try await stage.startController()
        let device = try await TestDevice(apps: Self.apps)
        let agent = try await stage.startAgent("ward-1", bus: device.bus.address)
        _ = try await stage.fleet("device", "add", "ward-1")
        try await eventually("the device has reported") {
            try await stage.fleet("devices", "--json").lines.joined().contains("reportedAt")
        }
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        try await Self.work(device)

        agent.kill()
        _ = await agent.exitStatus()
        let away = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "1")
        #expect(away.status == 75, "\(away)")
        #expect(away.lines.contains { $0.hasPrefix("ward-1") && $0.contains("unreachable") }, "\(away)")

        await device.killBroker()
        let again = try await stage.startAgent("ward-1", bus: device.bus.address)
        try await eventually("the agent says that the broker is away") {
            try await stage.fleet("devices").lines.contains { $0.contains("ward-1") && $0.contains("broker") }
        }
        #expect(try await stage.fleet("status").status == 75)

        try await device.restartBroker()
        try await eventually("the order is carried out") { try await stage.fleet("status").status == 0 }
        #expect(try device.apps.allSatisfy { try $0.findings(of: [Self.ada]).isEmpty })
        withExtendedLifetime(again) {}
    }
}
