import Basics
import Fleet
import FleetStage
import Foundation
import Glibc
import MQTTClient
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

/// Uses real devices, each with bus, broker and apps, a real mosquitto with TLS, the controller and the command.
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

    @Test("FL-3, FL-13: an order waits for the agent, and is done after the apps' receipts")
    func signsOut() async throws {
        let stage = try await FleetStage(enrolling: ["ward-1"])
        try await stage.startController()
        let device = try await TestDevice(apps: Self.apps)
        let agent = try await stage.startAgent("ward-1", bus: device.bus.address)
        _ = try await stage.fleet("device", "add", "ward-1", "--group", "wards")
        try await device.signIn("ada")
        try await device.waitUntilRunning()
        for app in device.apps {
            try await app.line { $0.contains("signed in: Ada") }
            try app.write("work")
            try await eventually("\(app.identifier) keeps something") { try !app.findings(of: [Self.ada]).isEmpty }
        }

        let outcome = try await stage.fleet("sign-out", "--all", "--reason", "closing time", "--wait", "60")
        #expect(outcome.status == 0, "\(outcome)\n\(stage.controllerText)\n\(agent.errorText)")
        #expect(outcome.lines.first?.hasPrefix("recorded: order ") == true)
        #expect(outcome.lines.last == "  1 clean")
        #expect(try device.apps.allSatisfy { try $0.findings(of: [Self.ada]).isEmpty })

        // The next order finds no session.
        let again = try await stage.fleet("sign-out", "--group", "wards", "--reason", "again", "--json")
        #expect(again.status == 0)
        #expect(again.lines.joined().contains("\"nobody\" : 1"), "\(again)")

        // A suspended agent carries out the order when it is resumed.
        try await device.signIn("ada")
        try await eventually("the session is reported") {
            try await stage.fleet("devices").lines.contains { $0.contains("session") }
        }
        agent.suspend()
        let away = try await stage.fleet("sign-out", "--all", "--reason", "x", "--wait", "1")
        #expect(away.status == EX_TEMPFAIL, "\(away)")
        #expect(away.lines.contains { $0.hasPrefix("ward-1") && $0.contains("unreachable") }, "\(away)")
        agent.resume()
        try await eventually("the order is carried out") { try await stage.fleet("status").status == 0 }
    }

    @Test("FL-7: with requiresContact a sign-in without contact is ended at once")
    func contactRequired() async throws {
        let stage = try await FleetStage()
        try await stage.enrol("ward-1", more: #", "contactTimeout": 3600, "requiresContact": true"#)
        let device = try await TestDevice()
        // The server runs, but not the controller.
        let agent = try await stage.startAgent("ward-1", bus: device.bus.address)
        // The agent may be faster than the response to the sign-in.
        do throws(SharedDeviceError) {
            try await device.signIn("ada")
        } catch {
            #expect(error.code == .currentAccountMismatch, "\(error)")
        }
        try await eventually("ada is signed out") { agent.errorText.contains("no contact so far") }
        try await stage.startController()
        _ = try await stage.fleet("device", "add", "ward-1")
        // The controller sends a heartbeat when it connects, which clears the device's problem.
        try await eventually("the controller is heard of") {
            try await stage.fleet("devices", "--json").lines.joined().filter { $0 != " " }.contains(#""problems":[]"#)
        }
        // The report may be from before the sign-in, but the stored contact is not.
        try await eventually("the contact is on the disk") { (try? stage.memory(of: "ward-1"))?.contact != nil }
        try await device.signIn("grace")
        try await eventually("grace's session is reported") {
            try await stage.fleet("devices").lines.contains { $0.contains("session") }
        }
        #expect(agent.errorText.components(separatedBy: "is signed out").count == 2, "\(agent.errorText)")
    }

    @Test(
        "FL-7: without contact, a server or usable files an agent keeps its limit",
        arguments: ["key", "no configuration", "memory", "no server"]
    )
    func unusable(what: String) async throws {
        let stage = try await FleetStage()
        try await stage.enrol("ward-1", more: #", "contactTimeout": 60"#)
        let device = try await TestDevice()
        let begun = try await stage.startAgent("ward-1", bus: device.bus.address)
        try await device.signIn("ada")
        let (configuration, file) = (stage.path("ward-1.json"), stage.path("ward-1-state/agent.json"))
        try await eventually("the session and the limit are on the disk") {
            // The file does not exist at once.
            guard let noted = try? stage.memory(of: "ward-1") else { return false }
            return noted.session != nil && noted.policy?.contactTimeout == 60
        }
        begun.kill()
        _ = await begun.exitStatus()
        // The last contact was long ago.
        var old = try stage.memory(of: "ward-1")
        let long = Moment(uptime: 0, wall: 1000, boot: "of before")
        old.contact = .init(begin: long)
        old.session = old.session.map { .init(epoch: $0.epoch, since: .init(begin: long)) }
        try Data(old.json.text.utf8).write(to: URL(filePath: file))
        let usable = try String(contentsOfFile: configuration, encoding: .utf8)
        switch what {
        case "key": chmod(stage.files("ward-1").key, 0o644)
        case "no configuration": try FileManager.default.removeItem(atPath: configuration)
        case "no server": try await stage.killEngine()
        default: try Data(old.json.text.utf8.prefix(40)).write(to: URL(filePath: file))
        }
        let agent = try await stage.startAgent("ward-1", bus: device.bus.address)
        if what == "memory" {
            // The last contact is no longer known: the session gets its full time from now on, across restarts of the
            // agent.
            try await eventually("the damage is noted") {
                guard let noted = try? stage.memory(of: "ward-1") else { return false }
                return noted.damage != nil && noted.session != nil
            }
            #expect(FileManager.default.fileExists(atPath: file + ".damaged"))
            agent.kill()
            _ = await agent.exitStatus()
            let again = try await stage.startAgent("ward-1", bus: device.bus.address)
            // Standard output and standard error are read separately, so “ready” may arrive first.
            try await eventually("the agent names the remedy") {
                again.errorText.contains("remove it, and start the agent again")
            }
            #expect(try stage.memory(of: "ward-1").session?.epoch == old.session?.epoch)
        } else {
            try await eventually("the session is over") { agent.errorText.contains("no contact for") }
            try await eventually("no account is signed in") { try stage.memory(of: "ward-1").session == nil }
        }
        if what == "no configuration" {
            #expect(agent.isRunning)
            try Data(usable.utf8).write(to: URL(filePath: configuration), options: .atomic)
            #expect(await agent.exitStatus() == 0, "it ends, to be started again")
        }
        guard what != "no server" else { return }
        try await eventually("the agent names the problem") {
            agent.errorText.contains(what == "key" ? "chmod 600" : "receives no orders")
        }
    }
}

extension FleetStage {
    fileprivate func memory(of device: String) throws -> AgentMemory {
        let bytes = [UInt8](try Data(contentsOf: URL(filePath: path("\(device)-state/agent.json"))))
        return try AgentMemory(JSONValue(parsing: bytes, limits: JSONLimits(size: 64 << 10)))
    }
}
