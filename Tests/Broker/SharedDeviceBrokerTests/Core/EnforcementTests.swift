import DBusTransport
import DeviceConfiguration
import Foundation
import SharedDevice
import SharedDeviceSimulation
import Testing

@testable import SharedDeviceBroker

@Suite("Enforced cleanup: apps that are late")
struct EnforcementTests {
    private static let kiosk = Participant(app: "org.example.kiosk", user: 2000)
    private static let orders = Participant(app: "org.example.orders", user: 1000)

    /// The desk has a receipt for all it owes; the orders app holds the account as well. Ada is signed out.
    private struct Scene {
        let device: VirtualDevice
        let desk: VirtualDevice.App
        let orders: VirtualDevice.App
        let session: UInt64

        init(_ policy: CleanupPolicy = CleanupPolicy(.enforced), requiresProof: Bool = false) throws {
            device = VirtualDevice(policy, requiresProof: requiresProof)
            device.use(
                try AppManifest.enforced("org.example.desk"),
                try AppManifest.enforced("org.example.orders")
            )
            desk = device.app("org.example.desk")
            orders = device.app("org.example.orders")
            session = try device.signIn("ada", by: desk)
            _ = try device.session(for: orders)
            try device.signOut(by: desk)
            try device.finish(desk)
        }

        var enforcer: VirtualDevice.App { device.app(nil, user: 0, isAdministrator: true) }

        /// The deadline passes, and the program asks who is late.
        @discardableResult
        func handOver(to enforcer: VirtualDevice.App) throws -> [Overdue] {
            device.advance(by: .seconds(60))
            return try device.askOverdue(enforcer)
        }

        func isHeld() -> Bool { device.refusalOfSignIn("grace", by: desk)?.code == .cleanupPending }

        func progress() throws -> CleanupReport.Progress? {
            try device.round(session, by: desk)?.apps.first { $0.identifier == "org.example.orders" }?.progress
        }
    }

    // MARK: The deadline

    @Test("an app is handed over when its deadline has passed, and not before; nobody signs in until the report")
    func deadline() throws {
        let scene = try Scene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        let question = device.send(enforcer, .overdue(patience: .seconds(600)))
        device.advance(by: .seconds(59))
        #expect(device.replies[question] == nil)
        device.advance(by: .seconds(1))
        let overdue = try device.overdue(question)
        #expect(overdue.map(\.participant) == [Self.orders] && overdue.first?.sessions == [scene.session])
        #expect(overdue.first?.connections == [scene.orders.connection])
        #expect(scene.isHeld())
        device.quit(scene.orders)
        #expect(try device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        #expect(try scene.progress() == .enforced)
        try device.signIn("grace", by: scene.desk)
    }

    @Test("cleanupTimeout is the deadline; a round does not expire, and what apps report does not extend it")
    func ownDeadline() throws {
        let scene = try Scene(CleanupPolicy(.enforced, timeout: .seconds(5)))
        scene.device.advance(by: .seconds(4))
        try scene.device.report(.begun, of: scene.session, by: scene.orders)
        try scene.device.report(.failed, of: scene.session, by: scene.orders)
        #expect(try scene.device.askOverdue(scene.enforcer).isEmpty)
        scene.device.advance(by: .seconds(1))
        #expect(try scene.device.askOverdue(scene.enforcer).count == 1)
        scene.device.advance(by: .seconds(3600))
        #expect(scene.isHeld())
        #expect(scene.device.disk.entries(.expired).isEmpty)
    }

    @Test("under a strict policy nobody is handed over")
    func strict() throws {
        let scene = try Scene(.strict)
        scene.device.advance(by: .seconds(3600))
        #expect(try scene.device.askOverdue(scene.enforcer).isEmpty)
    }

    @Test("a deadline counts on through a restart of the broker")
    func restart() throws {
        let scene = try Scene()
        scene.device.advance(by: .seconds(50))
        scene.device.restart()
        let enforcer = scene.enforcer
        scene.device.advance(by: .seconds(9))
        #expect(try scene.device.askOverdue(enforcer).isEmpty)
        scene.device.advance(by: .seconds(1))
        #expect(try scene.device.askOverdue(enforcer).count == 1)
    }

    @Test("while somebody is signed in nobody is handed over: the data of the present user would go, too")
    func presentUser() throws {
        let scene = try Scene(.advisory)
        try scene.device.signIn("grace", by: scene.desk)
        scene.device.configure { $0.cleanup = CleanupPolicy(.enforced) }
        scene.device.advance(by: .seconds(3600))
        #expect(try scene.device.askOverdue(scene.enforcer).isEmpty)
        try scene.device.signOut(by: scene.desk)
        try scene.device.finish(scene.desk)
        #expect(try scene.device.askOverdue(scene.enforcer).count == 1)
    }

    // MARK: Who enforces

    @Test("on the system bus only root's unit is handed an app, and takes part in nothing else")
    func whoEnforces() throws {
        let scene = try Scene(requiresProof: true)
        let device = scene.device
        device.advance(by: .seconds(60))
        let unit = AppCleanup.enforcementUnit
        let others = [
            device.app(nil, user: 0, isAdministrator: true), device.app(nil, user: 1000, unit: unit),
            device.app(nil, user: 0, unit: "other.service", isAdministrator: true), scene.orders,
        ]
        for other in others {
            #expect(throws: Refusal.notEnforcing) { try device.askOverdue(other) }
            #expect(throws: Refusal.notEnforcing) {
                try device.enforced(Self.orders, [scene.session], by: other)
            }
        }
        #expect(try scene.progress() == .owed || scene.progress() == .told)
        let enforcer = device.app(nil, user: 0, unit: unit, isAdministrator: true)
        #expect(try device.askOverdue(enforcer).count == 1)
    }

    @Test("on a bus of one user an app is not handed its own cleanup")
    func appItself() throws {
        let scene = try Scene()
        let app = scene.device.app("org.example.orders", isAdministrator: true)
        _ = try scene.device.session(for: app)
        #expect(throws: Refusal.notEnforcing) { try scene.handOver(to: app) }
    }

    @Test("a report counts from whom the app was handed to, and for the sessions for which it was")
    func whoseReport() throws {
        let scene = try Scene()
        let (one, other) = (scene.enforcer, scene.enforcer)
        let device = scene.device
        #expect(throws: Refusal.notHandedOver) { try device.enforced(Self.orders, [scene.session], by: one) }
        device.advance(by: .seconds(60))
        #expect(throws: Refusal.notHandedOver) { try device.enforced(Self.orders, [scene.session], by: one) }
        #expect(try device.askOverdue(one).count == 1)
        #expect(try device.askOverdue(other).isEmpty)
        device.quit(scene.orders)
        for (sessions, reporter) in [([scene.session], other), ([scene.session + 2], one), ([], one)] {
            #expect(throws: Refusal.notHandedOver) { try device.enforced(Self.orders, Set(sessions), by: reporter) }
        }
        #expect(scene.isHeld())
        #expect(try device.enforced(Self.orders, [scene.session], by: one).isEmpty)
        #expect(try scene.progress() == .enforced)
    }

    // MARK: The app

    @Test("as long as a process of the app is on the bus that had the account, the report does not count and names it")
    func processLeft() throws {
        let scene = try Scene()
        let enforcer = scene.enforcer
        try scene.handOver(to: enforcer)
        #expect(
            try scene.device.enforced(Self.orders, [scene.session], by: enforcer) == [scene.orders.connection]
        )
        #expect(try scene.progress() != .enforced && scene.isHeld())
        scene.device.quit(scene.orders)
        #expect(try scene.device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        #expect(!scene.isHeld())
    }

    @Test("a receipt before the app is handed over counts as any other")
    func receiptBefore() throws {
        let scene = try Scene()
        scene.device.advance(by: .seconds(60))
        try scene.device.finish(scene.orders)
        #expect(try scene.device.askOverdue(scene.enforcer).isEmpty)
        #expect(try scene.progress() == .finished)
        #expect(scene.device.disk.entries(.enforced).isEmpty)
    }

    @Test("a receipt while the app is stopped is refused; afterwards it changes nothing, and the app owes nothing")
    func receiptAfter() throws {
        let scene = try Scene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        try scene.handOver(to: enforcer)
        #expect(throws: Refusal.isEnforced) {
            try device.report(.finished, of: scene.session, by: scene.orders)
        }
        #expect(throws: Refusal.isEnforced) { try device.session(for: scene.orders) }
        device.quit(scene.orders)
        // Whoever starts it again meanwhile does not keep the report from counting.
        let again = device.app("org.example.orders")
        #expect(throws: Refusal.isEnforced) { try device.session(for: again) }
        let announcements = device.announcements
        #expect(try device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        #expect(device.announcements > announcements, "the app hears that it may ask again")
        try device.report(.finished, of: scene.session, by: again)
        #expect(try scene.progress() == .enforced)
        let answer = try device.session(for: again)
        #expect(answer.owed.isEmpty && answer.session.account == nil)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.enforced, of: scene.session).count == 1)
        #expect(device.disk.entries(.finished, app: "org.example.orders").isEmpty)
        #expect(device.disk.entries(.completed, of: scene.session).count == 1)
    }

    @Test("an app whose manifest does not say what to delete gets no account, and the refusal says what to add")
    func hole() throws {
        let device = VirtualDevice(CleanupPolicy(.enforced))
        let text = #"{"id": "org.example.bare", "executable": "/usr/bin/app"}"#
        device.use(try AppManifest(json: Data(text.utf8), file: "bare.json"))
        for name in ["org.example.bare", "org.example.unknown", nil] {
            let refusal = device.refusal(device.send(device.app(name), .currentAccount))
            #expect(refusal?.code == .appNotEligible && refusal?.description.contains("\"cleanup\"") == true)
        }
        #expect(device.state.eligibility.warnings.count == 1)
        #expect(device.refusalOfSignIn("ada", by: device.app("org.example.bare"))?.code == .appNotEligible)
    }

    @Test("an adapter that is late is handed over, although no process of it was ever there")
    func adapter() throws {
        let device = VirtualDevice(CleanupPolicy(.enforced))
        let cleanup = #"{"unit": "kiosk.service", "delete": ["/var/lib/kiosk/profile"]}"#
        let text = #"{"id": "org.example.kiosk", "user": 2000, "cleanup": \#(cleanup)}"#
        device.use(
            try AppManifest(json: Data(text.utf8), file: "kiosk.json"),
            try AppManifest.enforced("org.example.desk")
        )
        let desk = device.app("org.example.desk")
        let session = try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        try device.finish(desk)
        device.advance(by: .seconds(60))
        let enforcer = device.administrator
        let overdue = try device.askOverdue(enforcer)
        #expect(overdue.map(\.participant) == [Self.kiosk] && overdue.first?.connections == [])
        #expect(try device.enforced(Self.kiosk, [session], by: enforcer).isEmpty)
        try device.signIn("grace", by: desk)
    }

    // MARK: Faults

    @Test("what cannot be done stays owed, with the reason in status and log, and is tried again at growing intervals")
    func failure() throws {
        let scene = try Scene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        device.advance(by: .seconds(60))
        for pause in [5, 10, 20, 40, 60, 60] {
            #expect(try device.askOverdue(enforcer).count == 1)
            try device.enforced(Self.orders, [scene.session], problem: "the disk is read-only", by: enforcer)
            #expect(scene.isHeld())
            device.advance(by: .seconds(pause - 1))
            #expect(try device.askOverdue(enforcer).isEmpty)
            device.advance(by: .seconds(1))
        }
        let problems = try device.ask(device.administrator, .runningApps)["enforcementProblems"]?.stringsValue
        #expect(problems == ["org.example.orders the disk is read-only"])
        #expect(device.disk.entries(.notEnforced, of: scene.session).count == 6)
        // The app may do it itself between two tries.
        try device.finish(scene.orders)
        #expect(!scene.isHeld())
        #expect(try scene.progress() == .finished)
    }

    @Test("a program that ends without a report leaves the app to the next one")
    func killed() throws {
        let scene = try Scene()
        let first = scene.enforcer
        #expect(try scene.handOver(to: first).count == 1)
        scene.device.quit(first)
        #expect(scene.isHeld())
        #expect(try scene.device.askOverdue(scene.enforcer).count == 1)
    }

    @Test(
        "a broker that starts anew, under another policy, too, refuses the app and lets nobody in until the program has reported",
        arguments: [nil, CleanupPolicy.strict, .advisory]
    )
    func brokerRestart(policy: CleanupPolicy?) throws {
        let scene = try Scene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        try scene.handOver(to: enforcer)
        if let policy { device.configure { $0.cleanup = policy } }
        device.restart()
        for app in [scene.orders, enforcer, scene.desk] { device.reconnect(app) }
        #expect(scene.isHeld(), "the program may be deleting")
        #expect(throws: Refusal.isEnforced) {
            try device.report(.finished, of: scene.session, by: scene.orders)
        }
        #expect(try device.askOverdue(enforcer, underWay: [Self.orders]).isEmpty)
        #expect(scene.isHeld())
        device.quit(scene.orders)
        #expect(try device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        #expect(try scene.progress() == .enforced)
        #expect(!scene.isHeld())
    }

    @Test(
        "what the program is not at is handed over again where that is due still, and otherwise is the app's own again",
        arguments: [nil, CleanupPolicy.strict, .advisory],
        [false, true]
    )
    func notUnderWay(policy: CleanupPolicy?, restarts: Bool) throws {
        let scene = try Scene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        try scene.handOver(to: enforcer)
        if let policy { device.configure { $0.cleanup = policy } }
        if restarts {
            device.restart()
            for app in [scene.orders, enforcer, scene.desk] { device.reconnect(app) }
        }
        // It has not had the answer.
        let again = try device.askOverdue(enforcer)
        guard policy == nil else {
            #expect(again.isEmpty)
            try device.report(.finished, of: scene.session, by: scene.orders)
            #expect(try scene.progress() == .finished)
            return #expect(!scene.isHeld())
        }
        #expect(again.map(\.participant) == [Self.orders] && again.first?.sessions == [scene.session])
        #expect(throws: Refusal.isEnforced) {
            try device.report(.finished, of: scene.session, by: scene.orders)
        }
    }

    @Test("the bus starts no app whose data is being deleted, and starts it afterwards where it owes something still")
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
        #expect(try device.askOverdue(enforcer).count == 1)
        let before = device.startedServices.count
        #expect(before > 0)
        device.advance(by: .seconds(600))
        #expect(device.startedServices.count == before)
        try device.enforced(Self.orders, [session], problem: "the disk is read-only", by: enforcer)
        device.advance(by: .seconds(1))
        #expect(device.startedServices.count == before + 1)
    }

    @Test("a program that is gone when the broker starts anew holds up nobody")
    func goneAtRestart() throws {
        let scene = try Scene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        try scene.handOver(to: enforcer)
        device.restart()
        device.quit(enforcer)
        for app in [scene.orders, scene.desk] { device.reconnect(app) }
        try device.report(.finished, of: scene.session, by: scene.orders)
        #expect(try scene.progress() == .finished)
        #expect(!scene.isHeld())
    }

    @Test("an app is handed over only when the disk has it")
    func disk() throws {
        let scene = try Scene()
        scene.device.advance(by: .seconds(60))
        scene.device.diskMode = .holds
        let question = scene.device.send(scene.enforcer, .overdue(patience: .seconds(60)))
        #expect(scene.device.replies[question] == nil)
        scene.device.diskMode = .commits
        scene.device.finishWriting()
        scene.device.advance(by: .seconds(1))
        #expect(try scene.device.overdue(question).count == 1)
    }

    @Test(
        "a waiver or another policy meanwhile lets nobody in before the report, whether the broker starts anew or not",
        arguments: [false, true]
    )
    func meanwhile(restarts: Bool) throws {
        let scene = try Scene()
        let enforcer = scene.enforcer
        try scene.handOver(to: enforcer)
        let waiver = Request.Call.waive(app: "org.example.orders", user: nil, session: nil, reason: "by hand")
        try scene.device.ask(scene.device.administrator, waiver)
        scene.device.configure { $0.cleanup = .advisory }
        if restarts {
            scene.device.restart()
            for app in [scene.orders, enforcer, scene.desk] { scene.device.reconnect(app) }
        }
        #expect(scene.isHeld())
        scene.device.quit(scene.orders)
        #expect(try scene.device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        #expect(try scene.progress() == .waived)
        #expect(scene.device.disk.entries(.completed, of: scene.session).count == 1)
        try scene.device.signIn("grace", by: scene.desk)
    }

    @Test("without a program that enforces, the debt stays, and device information and log say so")
    func noProgram() throws {
        let scene = try Scene()
        scene.device.advance(by: .seconds(3600))
        #expect(scene.isHeld())
        let problem = try scene.device.ask(scene.desk, .deviceInformation)["enforcementProblem"]?.stringValue
        #expect(problem?.contains(AppCleanup.enforcementUnit) == true)
        #expect(scene.device.notes.contains("not enforced"))
        let enforcer = scene.enforcer
        _ = try scene.device.askOverdue(enforcer)
        #expect(try scene.device.ask(scene.desk, .deviceInformation)["enforcementProblem"] == nil)
    }
}
