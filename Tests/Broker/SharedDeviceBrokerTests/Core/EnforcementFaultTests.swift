import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("Enforced cleanup: failures, restarts and waivers in the middle of it")
struct EnforcementFaultTests {
    private static let orders = Participant(app: "org.example.orders", user: 1000)

    @Test("a failed enforcement stays owed, is reported, and is retried with back-off")
    func failure() throws {
        let scene = try EnforcementScene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        device.advance(by: .seconds(60))
        for pause in [5, 10, 20, 40, 60, 60] {
            try device.expectOverdue(1, by: enforcer)
            try device.enforced(Self.orders, [scene.session], problem: "the disk is read-only", by: enforcer)
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

    @Test("an app claimed by an enforcer that exits goes to the next one")
    func killed() throws {
        let scene = try EnforcementScene()
        let first = scene.enforcer
        #expect(try scene.handOver(to: first).count == 1)
        scene.device.quit(first)
        scene.expectHeld()
        try scene.device.expectOverdue(1, by: scene.enforcer)
    }

    @Test(
        "a restarted broker waits for the enforcer's report under any policy",
        arguments: [nil, CleanupPolicy.strict, .advisory]
    )
    func brokerRestart(policy: CleanupPolicy?) throws {
        let scene = try EnforcementScene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        try scene.handOver(to: enforcer)
        if let policy { device.configure { $0.cleanup = policy } }
        device.restart()
        for app in [scene.orders, enforcer, scene.desk] { device.reconnect(app) }
        scene.expectHeld("the program may be deleting")
        #expect(throws: Refusal.isEnforced) {
            try device.report(.finished, of: scene.session, by: scene.orders)
        }
        #expect(try device.askOverdue(enforcer, underWay: [Self.orders]).isEmpty)
        scene.expectHeld()
        device.quit(scene.orders)
        #expect(try device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        try scene.expectProgress(.enforced)
        scene.expectFree()
    }

    @Test(
        "an unclaimed cleanup is handed out again if due, or else returned to the app",
        arguments: [nil, CleanupPolicy.strict, .advisory],
        [false, true]
    )
    func notUnderWay(policy: CleanupPolicy?, restarts: Bool) throws {
        let scene = try EnforcementScene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        try scene.handOver(to: enforcer)
        if let policy { device.configure { $0.cleanup = policy } }
        if restarts {
            device.restart()
            for app in [scene.orders, enforcer, scene.desk] { device.reconnect(app) }
        }
        // The enforcer did not receive the first response.
        let again = try device.askOverdue(enforcer)
        guard policy == nil else {
            #expect(again.isEmpty)
            try device.report(.finished, of: scene.session, by: scene.orders)
            try scene.expectProgress(.finished)
            return #expect(!scene.isHeld())
        }
        #expect(again.map(\.participant) == [Self.orders] && again.first?.sessions == [scene.session])
        #expect(throws: Refusal.isEnforced) {
            try device.report(.finished, of: scene.session, by: scene.orders)
        }
    }

    @Test("the bus starts an app for its cleanup only after the enforcer's report")
    func noStart() throws {
        let device = VirtualDevice(CleanupPolicy(.enforced))
        let cleanup = #""cleanup": {"by": "app", "delete": ["/var/lib/orders"]}"#
        let name = #""busName": "org.example.Orders""#
        let text = #"{"id": "org.example.orders", "user": 1000, "executable": "/usr/bin/app", \#(name), \#(cleanup)}"#
        device.use(
            try AppManifest(json: Data(text.utf8), file: "app.json"),
            try AppManifest.enforced("org.example.desk")
        )
        device.service = .failed("it hangs")
        let (desk, orders) = (device.app("org.example.desk"), device.app("org.example.orders"))
        let session = try device.signIn("ada", by: desk)
        _ = try device.session(for: orders)
        try device.signOut(by: desk)
        try device.finish(desk)
        device.quit(orders)
        device.advance(by: .seconds(60))
        let enforcer = device.app(nil, user: 0, isAdministrator: true)
        try device.expectOverdue(1, by: enforcer)
        let before = device.startedServices.count
        #expect(before > 0)
        device.advance(by: .seconds(600))
        #expect(device.startedServices.count == before)
        try device.enforced(Self.orders, [session], problem: "the disk is read-only", by: enforcer)
        device.advance(by: .seconds(1))
        #expect(device.startedServices.count == before + 1)
        for _ in 0..<20 {
            device.advance(by: .seconds(5))
            let next = device.app(nil, user: 0, isAdministrator: true)
            _ = try device.askOverdue(next)
            device.quit(next)
        }
        #expect(device.startedServices.count <= before + 4)
    }

    @Test("an enforcer that exits during a broker restart holds up no sign-in")
    func goneAtRestart() throws {
        let scene = try EnforcementScene()
        let (device, enforcer) = (scene.device, scene.enforcer)
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
        let scene = try EnforcementScene()
        scene.device.advance(by: .seconds(60))
        scene.device.diskMode = .holds
        let question = scene.device.send(scene.enforcer, .overdue(patience: .seconds(60)))
        scene.device.expectUnanswered(question)
        scene.device.diskMode = .commits
        scene.device.finishWriting()
        scene.device.advance(by: .seconds(1))
        #expect(try scene.device.overdue(question).count == 1)
    }

    @Test(
        "a waiver or a new policy does not admit a user before the enforcer's report",
        arguments: [false, true]
    )
    func meanwhile(restarts: Bool) throws {
        let scene = try EnforcementScene()
        let enforcer = scene.enforcer
        try scene.handOver(to: enforcer)
        let waiver = Request.Call.waive(app: "org.example.orders", user: nil, session: nil, reason: "by hand")
        try scene.device.ask(scene.device.administrator, waiver)
        scene.device.configure { $0.cleanup = .advisory }
        if restarts {
            scene.device.restart()
            for app in [scene.orders, enforcer, scene.desk] { scene.device.reconnect(app) }
        }
        scene.expectHeld()
        scene.device.quit(scene.orders)
        #expect(try scene.device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        try scene.expectProgress(.waived)
        #expect(scene.device.disk.entries(.completed, of: scene.session).count == 1)
        try scene.device.signIn("grace", by: scene.desk)
    }

    @Test("without an enforcer the debt stays, and device information and log say so")
    func noProgram() throws {
        let scene = try EnforcementScene()
        scene.device.advance(by: .seconds(3600))
        scene.expectHeld()
        let problem = try scene.device.ask(scene.desk, .deviceInformation)["enforcementProblem"]?.stringValue
        #expect(problem?.contains(AppCleanup.enforcementUnit) == true)
        #expect(scene.device.notes.contains("not enforced"))
        let enforcer = scene.enforcer
        _ = try scene.device.askOverdue(enforcer)
        #expect(try scene.device.ask(scene.desk, .deviceInformation)["enforcementProblem"] == nil)
    }
}
