import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Enforced cleanup: failures, restarts and waivers in the middle of it")
struct EnforcementFaultTests {
    private let scene: EnforcementScene
    private let device: VirtualDevice
    private let enforcer: VirtualDevice.App

    init() throws {
        scene = try EnforcementScene()
        device = scene.device
        enforcer = scene.enforcer
    }

    @Test("a failed enforcement stays owed, is reported, and is retried with back-off")
    func failure() throws {
        device.advance(by: .seconds(60))
        for pause in [5, 10, 20, 40, 60, 60] {
            try device.expectOverdue(1, by: enforcer)
            try scene.report(problem: "the disk is read-only", by: enforcer)
            scene.expectHeld()
            device.advance(by: .seconds(pause - 1))
            try device.expectOverdue(0, by: enforcer)
            device.advance(by: .seconds(1))
        }
        let problems = try device.ask(device.administrator, .runningApps)["enforcementProblems"]?.stringsValue
        #expect(problems == ["org.example.orders the disk is read-only"])
        #expect(device.disk.entries(.notEnforced, of: scene.session).count == 6)
        // The app may still clean up between two attempts.
        try device.finish(scene.orders)
        scene.expectFree()
        try scene.expectProgress(.finished)
    }

    @Test(
        "a restarted broker waits for the enforcer's report under any policy",
        arguments: [nil, CleanupPolicy.strict, .advisory]
    )
    func brokerRestart(policy: CleanupPolicy?) throws {
        try scene.handOver(to: enforcer)
        if let policy { device.configure { $0.cleanup = policy } }
        scene.restart(enforcer)
        scene.expectHeld("the enforcer may be deleting")
        scene.expectShutOut(scene.orders)
        #expect(try device.askOverdue(enforcer, underWay: [EnforcementScene.participant]).isEmpty)
        scene.expectHeld()
        device.quit(scene.orders)
        #expect(try scene.report(by: enforcer).isEmpty)
        try scene.expectProgress(.enforced)
        scene.expectFree()
    }

    @Test(
        "an unclaimed cleanup is handed out again if due, or else returned to the app",
        arguments: [nil, CleanupPolicy.strict, .advisory],
        [false, true]
    )
    func notUnderWay(policy: CleanupPolicy?, restarts: Bool) throws {
        try scene.handOver(to: enforcer)
        if let policy { device.configure { $0.cleanup = policy } }
        if restarts { scene.restart(enforcer) }
        // The enforcer did not receive the first response.
        let again = try device.askOverdue(enforcer)
        guard policy == nil else {
            #expect(again.isEmpty)
            try device.report(.finished, of: scene.session, by: scene.orders)
            try scene.expectProgress(.finished)
            return scene.expectFree()
        }
        #expect(again.map(\.participant) == [EnforcementScene.participant] && again.first?.sessions == [scene.session])
        scene.expectShutOut(scene.orders)
    }

    @Test("the bus starts an app for its cleanup only after the enforcer's report")
    func noStart() throws {
        let cleanup = #""busName": "org.example.Orders", "cleanup": {"by": "app", "delete": ["/var/lib/orders"]}"#
        let text = #"{"id": "org.example.orders", "user": 1000, "executable": "/usr/bin/app", \#(cleanup)}"#
        let manifest = try AppManifest(json: Data(text.utf8), file: "app.json")
        device.use(manifest, try AppManifest.enforced("org.example.desk"))
        device.service = .failed("it hangs")
        device.quit(scene.orders)
        device.advance(by: .seconds(60))
        try device.expectOverdue(1, by: enforcer)
        let before = device.startedServices.count
        #expect(before > 0)
        device.advance(by: .seconds(600))
        #expect(device.startedServices.count == before)
        try scene.report(problem: "the disk is read-only", by: enforcer)
        device.advance(by: .seconds(1))
        #expect(device.startedServices.count == before + 1)
        for _ in 0..<20 {
            device.advance(by: .seconds(5))
            let next = device.administrator
            _ = try device.askOverdue(next)
            device.quit(next)
        }
        #expect(device.startedServices.count <= before + 4)
    }

    @Test("an enforcer that exits during a broker restart holds up no sign-in")
    func goneAtRestart() throws {
        try scene.handOver(to: enforcer)
        device.restart()
        device.quit(enforcer)
        for app in [scene.orders, scene.desk] { device.reconnect(app) }
        try device.report(.finished, of: scene.session, by: scene.orders)
        try scene.expectProgress(.finished)
        scene.expectFree()
    }

    @Test("an app is handed to the enforcer only after the claim is committed")
    func disk() throws {
        device.advance(by: .seconds(60))
        device.diskMode = .holds
        let question = device.send(enforcer, .overdue(patience: .seconds(60)))
        device.expectUnanswered(question)
        device.resumeDisk()
        device.advance(by: .seconds(1))
        #expect(try device.overdue(question).count == 1)
    }

    @Test("a waiver or a new policy does not admit a user before the enforcer's report", arguments: [false, true])
    func meanwhile(restarts: Bool) throws {
        try scene.handOver(to: enforcer)
        let waiver = Request.Call.waive(app: "org.example.orders", user: nil, session: nil, reason: "by hand")
        try device.ask(device.administrator, waiver)
        device.configure { $0.cleanup = .advisory }
        if restarts { scene.restart(enforcer) }
        scene.expectHeld()
        device.quit(scene.orders)
        #expect(try scene.report(by: enforcer).isEmpty)
        try scene.expectProgress(.waived)
        #expect(device.disk.entries(.completed, of: scene.session).count == 1)
        try device.signIn("grace", by: scene.desk)
    }

    @Test("without an enforcer the debt stays, and device information and log say so")
    func noProgram() throws {
        device.advance(by: .seconds(3600))
        scene.expectHeld()
        let problem = try device.ask(scene.desk, .deviceInformation)["enforcementProblem"]?.stringValue
        #expect(problem?.contains(AppCleanup.enforcementUnit) == true)
        #expect(device.notes.contains("not enforced"))
        _ = try device.askOverdue(enforcer)
        #expect(try device.ask(scene.desk, .deviceInformation)["enforcementProblem"] == nil)
    }
}
