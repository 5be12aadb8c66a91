import DBus
import DeviceConfiguration
import Foundation
import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("Enforced cleanup of several apps at a time")
struct EnforcementUnderWayTests {
    private static let orders = Participant(app: "org.example.orders", user: 1000)
    private static let till = Participant(app: "org.example.till", user: 1000)

    /// Two apps are overdue and handed to the enforcer. Ada is signed out.
    private struct Scene {
        let device: VirtualDevice
        let desk: VirtualDevice.App
        let orders: VirtualDevice.App
        let till: VirtualDevice.App
        let enforcer: VirtualDevice.App
        let session: UInt64

        init(requiresProof: Bool = false) throws {
            device = VirtualDevice(CleanupPolicy(.enforced), requiresProof: requiresProof)
            device.use(
                try AppManifest.enforced("org.example.desk"),
                try AppManifest.enforced("org.example.orders"),
                try AppManifest.enforced("org.example.till")
            )
            desk = device.app("org.example.desk")
            orders = device.app("org.example.orders")
            till = device.app("org.example.till")
            session = try device.signIn("ada", by: desk)
            for app in [orders, till] { _ = try device.session(for: app) }
            try device.signOut(by: desk)
            try device.finish(desk)
            for app in [orders, till] { device.quit(app) }
            let unit = requiresProof ? AppCleanup.enforcementUnit : nil
            enforcer = device.app(nil, user: 0, unit: unit, isAdministrator: true)
            device.advance(by: .seconds(60))
            #expect(
                try device.askOverdue(enforcer).map(\.participant) == [
                    EnforcementUnderWayTests.orders, EnforcementUnderWayTests.till,
                ]
            )
        }

        func isHeld() -> Bool { device.refusalOfSignIn("grace", by: desk)?.code == .cleanupPending }

        func expectHeld(_ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
            #expect(isHeld(), comment, sourceLocation: sourceLocation)
        }

        func expectFree(sourceLocation: SourceLocation = #_sourceLocation) {
            #expect(!isHeld(), sourceLocation: sourceLocation)
        }

        func progress(_ participant: Participant) throws -> CleanupReport.Progress? {
            try device.round(session, by: desk)?.apps.first { $0.identifier == participant.app }?.progress
        }

        @discardableResult
        func report(_ participant: Participant, problem: String? = nil) throws -> [String] {
            try device.enforced(participant, [session], problem: problem, by: enforcer)
        }
    }

    @Test("a failed cleanup is retried while the enforcer works on another app")
    func other() throws {
        let scene = try Scene()
        let device = scene.device
        try scene.report(Self.till, problem: "the disk is read-only")
        let question = device.send(scene.enforcer, .overdue(underWay: [Self.orders], patience: .seconds(60)))
        device.advance(by: .seconds(4))
        device.expectUnanswered(question)
        device.advance(by: .seconds(1))
        #expect(try device.overdue(question).map(\.participant) == [Self.till])
        try scene.report(Self.till)
        #expect(try scene.progress(Self.till) == .enforced)
        scene.expectHeld()
        try scene.report(Self.orders)
        scene.expectFree()
    }

    @Test("an app reported as failed during a pending request is handed out again")
    func staleQuestion() throws {
        let scene = try Scene()
        let device = scene.device
        let both: Set = [Self.orders, Self.till]
        let question = device.send(scene.enforcer, .overdue(underWay: both, patience: .seconds(60)))
        try scene.report(Self.till, problem: "the disk is read-only")
        device.advance(by: .seconds(5))
        #expect(try device.overdue(question).map(\.participant) == [Self.till])
    }

    @Test("an app reported done during a pending request is no longer in progress")
    func reportedMeanwhile() throws {
        let scene = try Scene()
        let device = scene.device
        let both: Set = [Self.orders, Self.till]
        let question = device.send(scene.enforcer, .overdue(underWay: both, patience: .seconds(60)))
        for participant in both { try scene.report(participant) }
        device.expectUnanswered(question)
        // The enforcer asked before it read the response to its report.
        #expect(try device.askOverdue(scene.enforcer, underWay: both).isEmpty)
        scene.expectFree()
    }

    @Test("a hand-over whose response was lost is repeated without an announcement")
    func lostAnswer() throws {
        let scene = try Scene()
        let announcements = scene.device.announcements
        let again = try scene.device.askOverdue(scene.enforcer, underWay: [Self.orders])
        #expect(again.map(\.participant) == [Self.till])
        scene.device.expectAnnouncements(announcements)
    }

    @Test("an abandoned request takes no work from the enforcer's current one")
    func abandonedQuestion() throws {
        let scene = try Scene()
        let device = scene.device
        try scene.report(Self.till, problem: "the disk is read-only")
        let call = Request.Call.overdue(underWay: [Self.orders], patience: .seconds(60))
        let (first, second) = (device.send(scene.enforcer, call), device.send(scene.enforcer, call))
        device.expectRefused(first, .requestAbandoned)
        device.advance(by: .seconds(5))
        #expect(try device.overdue(second).map(\.participant) == [Self.till])
    }

    @Test("a restarted broker accepts reports on claimed work and hands out the rest again")
    func restart() throws {
        let scene = try Scene()
        let device = scene.device
        device.restart()
        for app in [scene.desk, scene.enforcer] { device.reconnect(app) }
        let orders = device.app("org.example.orders")
        #expect(throws: Refusal.isEnforced) { try device.report(.finished, of: scene.session, by: orders) }
        #expect(try device.askOverdue(scene.enforcer, underWay: [Self.orders]).map(\.participant) == [Self.till])
        #expect(throws: Refusal.isEnforced) { try device.session(for: orders) }
        try scene.report(Self.till)
        scene.expectHeld("the program is still at the orders app")
        try scene.report(Self.orders)
        scene.expectFree()
    }

    @Test("an app waived during its enforcement is not in progress after the report")
    func waived() throws {
        let scene = try Scene()
        let device = scene.device
        let waiver = Request.Call.waive(app: Self.orders.app, user: nil, session: nil, reason: "by hand")
        try device.ask(device.administrator, waiver)
        try scene.report(Self.orders)
        #expect(try device.askOverdue(scene.enforcer, underWay: [Self.orders, Self.till]).isEmpty)
        try scene.report(Self.till)
        scene.expectFree()
    }

    @Test("after losing the bus the broker waits for the enforcer's reports, not forever")
    func outage() throws {
        let scene = try Scene()
        let device = scene.device
        let question = device.send(
            scene.enforcer,
            .overdue(underWay: [Self.orders, Self.till], patience: .seconds(60))
        )
        device.feed(.busLost(mark: CleanupLedger.newMark()))
        device.expectRefused(question, .requestAbandoned)
        device.feed(.busRestored)
        for app in [scene.desk, scene.enforcer] { device.reconnect(app) }
        // The app runs again and tries to clean up itself, but the enforcer may still be deleting.
        let orders = device.app("org.example.orders")
        #expect(throws: Refusal.isEnforced) { try device.report(.finished, of: scene.session, by: orders) }
        scene.expectHeld()
        #expect(try device.askOverdue(scene.enforcer, underWay: [Self.orders, Self.till]).isEmpty)
        for participant in [Self.orders, Self.till] { try scene.report(participant) }
        scene.expectFree()
    }

    @Test("losing the bus after a restart, before the enforcer asks, keeps all claims")
    func outageAfterStart() throws {
        let scene = try Scene()
        let device = scene.device
        device.restart()
        device.feed(.busLost(mark: CleanupLedger.newMark()))
        #expect(device.state.ledger.connections.contains(scene.enforcer.connection))
        device.feed(.busRestored)
        for app in [scene.desk, scene.enforcer] { device.reconnect(app) }
        for name in [Self.orders.app, Self.till.app] {
            let app = device.app(name)
            #expect(throws: Refusal.isEnforced) { try device.report(.finished, of: scene.session, by: app) }
        }
        scene.expectHeld("the program may still delete")
        #expect(try device.askOverdue(scene.enforcer, underWay: [Self.orders, Self.till]).isEmpty)
        for participant in [Self.orders, Self.till] { try scene.report(participant) }
        scene.expectFree()
    }

    @Test("an enforcer keeps its role after an outage even if its process is not found")
    func secondLook() throws {
        let scene = try Scene(requiresProof: true)
        let device = scene.device
        device.feed(.busLost(mark: CleanupLedger.newMark()))
        device.feed(.busRestored)
        let unseen = Caller(
            connection: scene.enforcer.connection,
            credentials: AppCredentials(user: 0, executable: "", unit: nil),
            process: nil,
            isAdministrator: true
        )
        device.feed(.arrived(unseen))
        for participant in [Self.orders, Self.till] { try scene.report(participant) }
        device.reconnect(scene.desk)
        scene.expectFree()
    }

    @Test("if the enforcer exits during an outage, its apps are free for the next one")
    func outageOfAll() throws {
        let scene = try Scene()
        let device = scene.device
        device.feed(.busLost(mark: CleanupLedger.newMark()))
        #expect(device.state.ledger.claims.count == 2)
        device.quit(scene.enforcer)
        device.feed(.busRestored)
        #expect(device.state.ledger.claims.isEmpty)
        device.reconnect(scene.desk)
        scene.expectHeld()
        #expect(try device.askOverdue(device.app(nil, user: 0, isAdministrator: true)).count == 2)
    }

    @Test("a claimed app goes to no other enforcer until the first one disconnects")
    func twoPrograms() throws {
        let scene = try Scene()
        let device = scene.device
        device.restart()
        let second = device.app(nil, user: 0, isAdministrator: true)
        for app in [scene.desk, scene.enforcer, second] { device.reconnect(app) }
        try device.expectOverdue(0, by: second)
        #expect(throws: Refusal.notHandedOver) { try device.enforced(Self.orders, [scene.session], by: second) }
        try scene.report(Self.orders)
        scene.expectHeld()
        device.quit(scene.enforcer)
        #expect(try device.askOverdue(second).map(\.participant) == [Self.till])
        try device.enforced(Self.till, [scene.session], by: second)
        scene.expectFree()
    }
}
