import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("Enforced cleanup: apps that are late")
struct EnforcementTests {
    private static let kiosk = Participant(app: "org.example.kiosk", user: 2000)
    private static let orders = Participant(app: "org.example.orders", user: 1000)

    // MARK: The deadline

    @Test("an app is handed over at its deadline, and sign-ins wait for the report")
    func deadline() throws {
        let scene = try EnforcementScene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        let question = device.send(enforcer, .overdue(patience: .seconds(600)))
        device.advance(by: .seconds(59))
        device.expectUnanswered(question)
        device.advance(by: .seconds(1))
        let overdue = try device.overdue(question)
        #expect(overdue.map(\.participant) == [Self.orders] && overdue.first?.sessions == [scene.session])
        #expect(overdue.first?.connections == [scene.orders.connection])
        scene.expectHeld()
        device.quit(scene.orders)
        #expect(try device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        try scene.expectProgress(.enforced)
        try device.signIn("grace", by: scene.desk)
    }

    @Test("cleanupTimeout is a fixed deadline, and the round does not expire")
    func ownDeadline() throws {
        let scene = try EnforcementScene(CleanupPolicy(.enforced, timeout: .seconds(5)))
        scene.device.advance(by: .seconds(4))
        try scene.device.report(.begun, of: scene.session, by: scene.orders)
        try scene.device.report(.failed, of: scene.session, by: scene.orders)
        try scene.device.expectOverdue(0, by: scene.enforcer)
        scene.device.advance(by: .seconds(1))
        try scene.device.expectOverdue(1, by: scene.enforcer)
        scene.device.advance(by: .seconds(3600))
        scene.expectHeld()
        #expect(scene.device.disk.entries(.expired).isEmpty)
    }

    @Test("a strict policy hands no app to the enforcer")
    func strict() throws {
        let scene = try EnforcementScene(.strict)
        scene.device.advance(by: .seconds(3600))
        try scene.device.expectOverdue(0, by: scene.enforcer)
    }

    @Test("a deadline keeps counting across a restart of the broker")
    func restart() throws {
        let scene = try EnforcementScene()
        scene.device.advance(by: .seconds(50))
        scene.device.restart()
        let enforcer = scene.enforcer
        scene.device.advance(by: .seconds(9))
        try scene.device.expectOverdue(0, by: enforcer)
        scene.device.advance(by: .seconds(1))
        try scene.device.expectOverdue(1, by: enforcer)
    }

    @Test("no app is handed over during a session, whose data would be deleted too")
    func presentUser() throws {
        let scene = try EnforcementScene(.advisory)
        try scene.device.signIn("grace", by: scene.desk)
        scene.device.configure { $0.cleanup = CleanupPolicy(.enforced) }
        scene.device.advance(by: .seconds(3600))
        try scene.device.expectOverdue(0, by: scene.enforcer)
        try scene.device.signOut(by: scene.desk)
        try scene.device.finish(scene.desk)
        try scene.device.expectOverdue(1, by: scene.enforcer)
    }

    // MARK: The enforcer

    @Test("on the system bus only root's enforcement unit is handed apps")
    func whoEnforces() throws {
        let scene = try EnforcementScene(requiresProof: true)
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
        try device.expectOverdue(1, by: enforcer)
    }

    @Test("on a bus of one user an app is not handed its own cleanup")
    func appItself() throws {
        let scene = try EnforcementScene()
        let app = scene.device.app("org.example.orders", isAdministrator: true)
        _ = try scene.device.session(for: app)
        #expect(throws: Refusal.notEnforcing) { try scene.handOver(to: app) }
    }

    @Test("a report counts only from the claim's owner and for the claimed sessions")
    func whoseReport() throws {
        let scene = try EnforcementScene()
        let (one, other) = (scene.enforcer, scene.enforcer)
        let device = scene.device
        #expect(throws: Refusal.notHandedOver) { try device.enforced(Self.orders, [scene.session], by: one) }
        device.advance(by: .seconds(60))
        #expect(throws: Refusal.notHandedOver) { try device.enforced(Self.orders, [scene.session], by: one) }
        #expect(try device.askOverdue(one).count == 1 && device.askOverdue(other).isEmpty)
        device.quit(scene.orders)
        for (sessions, reporter) in [([scene.session], other), ([scene.session + 2], one), ([], one)] {
            #expect(throws: Refusal.notHandedOver) { try device.enforced(Self.orders, Set(sessions), by: reporter) }
        }
        scene.expectHeld()
        #expect(try device.enforced(Self.orders, [scene.session], by: one).isEmpty)
        try scene.expectProgress(.enforced)
    }

    // MARK: The app

    @Test("a report is rejected while a process that had the account is still connected")
    func processLeft() throws {
        let scene = try EnforcementScene()
        let enforcer = scene.enforcer
        try scene.handOver(to: enforcer)
        #expect(
            try scene.device.enforced(Self.orders, [scene.session], by: enforcer) == [scene.orders.connection]
        )
        scene.expectHeld()
        #expect(try scene.progress() != .enforced)
        scene.device.quit(scene.orders)
        #expect(try scene.device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        scene.expectFree()
    }

    @Test("a receipt before the hand-over counts as usual")
    func receiptBefore() throws {
        let scene = try EnforcementScene()
        scene.device.advance(by: .seconds(60))
        try scene.device.finish(scene.orders)
        try scene.device.expectOverdue(0, by: scene.enforcer)
        try scene.expectProgress(.finished)
        #expect(scene.device.disk.entries(.enforced).isEmpty)
    }

    @Test("a receipt during enforcement is refused, and a later one changes nothing")
    func receiptAfter() throws {
        let scene = try EnforcementScene()
        let (device, enforcer) = (scene.device, scene.enforcer)
        try scene.handOver(to: enforcer)
        #expect(throws: Refusal.isEnforced) {
            try device.report(.finished, of: scene.session, by: scene.orders)
        }
        #expect(throws: Refusal.isEnforced) { try device.session(for: scene.orders) }
        device.quit(scene.orders)
        // An app that is started again during enforcement does not prevent the report from counting.
        let again = device.app("org.example.orders")
        #expect(throws: Refusal.isEnforced) { try device.session(for: again) }
        let announcements = device.announcements
        #expect(try device.enforced(Self.orders, [scene.session], by: enforcer).isEmpty)
        #expect(device.announcements > announcements, "the app hears that it may ask again")
        try device.report(.finished, of: scene.session, by: again)
        try scene.expectProgress(.enforced)
        let answer = try device.session(for: again)
        #expect(answer.owed.isEmpty && answer.session.account == nil)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.enforced, of: scene.session).count == 1)
        #expect(device.disk.entries(.finished, app: "org.example.orders").isEmpty)
        #expect(device.disk.entries(.completed, of: scene.session).count == 1)
    }

    @Test("an app without cleanup paths in its manifest gets no account and is told why")
    func hole() throws {
        let device = VirtualDevice(CleanupPolicy(.enforced))
        let text = #"{"id": "org.example.bare", "executable": "/usr/bin/app"}"#
        device.use(try AppManifest(json: Data(text.utf8), file: "bare.json"))
        for name in ["org.example.bare", "org.example.unknown", nil] {
            let refusal = device.refusal(device.send(device.app(name), .currentAccount))
            #expect(refusal?.code == .appNotEligible && refusal?.description.contains("\"cleanup\"") == true)
        }
        #expect(device.state.eligibility.warnings.count == 1)
        device.expectRefused(
            device.send(device.app("org.example.bare"), VirtualDevice.signIn("ada")),
            code: .appNotEligible
        )
    }

    @Test("an overdue adapter is handed over although it never ran")
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
}
