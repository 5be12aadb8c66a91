import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

extension EnforcementScene {
    /// The orders app, as the ledger and the enforcer name it.
    static let participant = Participant(app: "org.example.orders", user: 1000)

    /// Reports the cleanup of the orders app as the enforcer.
    ///
    /// - Returns: the connections of the app that are still open.
    @discardableResult
    func report(problem: String? = nil, by enforcer: VirtualDevice.App) throws -> [String] {
        try device.enforced(Self.participant, [session], problem: problem, by: enforcer)
    }

    /// Restarts the broker. The apps and the enforcer go on running.
    func restart(_ enforcer: VirtualDevice.App) {
        device.restart()
        for app in [orders, enforcer, desk] { device.reconnect(app) }
    }

    /// Expects that the calls of this process of the orders app are refused while its cleanup is enforced.
    func expectShutOut(_ app: VirtualDevice.App, sourceLocation: SourceLocation = #_sourceLocation) {
        for call in [Request.Call.report(.finished, session: session, detail: nil), .currentAccount] {
            device.expectRefused(device.send(app, call), .isEnforced, sourceLocation: sourceLocation)
        }
    }
}

@Suite("Enforced cleanup: apps that are late")
struct EnforcementTests {
    private let scene: EnforcementScene
    private let device: VirtualDevice
    private let enforcer: VirtualDevice.App

    init() throws {
        scene = try EnforcementScene()
        device = scene.device
        enforcer = scene.enforcer
    }

    @Test("an app is handed over at its deadline, also after a restart", arguments: [false, true])
    func deadline(restarts: Bool) throws {
        device.advance(by: .seconds(50))
        if restarts { scene.restart(enforcer) }
        let question = device.send(enforcer, .overdue(patience: .seconds(600)))
        device.advance(by: .seconds(9))
        device.expectUnanswered(question)
        device.advance(by: .seconds(1))
        let overdue = try device.overdue(question)
        #expect(overdue.map(\.participant) == [EnforcementScene.participant])
        #expect(overdue.first?.sessions == [scene.session])
        #expect(overdue.first?.connections == [scene.orders.connection])
        scene.expectHeld()
    }

    @Test("cleanupTimeout is a fixed deadline, and the round does not expire")
    func ownDeadline() throws {
        let scene = try EnforcementScene(CleanupPolicy(.enforced, timeout: .seconds(5)))
        let device = scene.device
        device.advance(by: .seconds(4))
        try device.report(.begun, of: scene.session, by: scene.orders)
        try device.report(.failed, of: scene.session, by: scene.orders)
        try device.expectOverdue(0, by: scene.enforcer)
        device.advance(by: .seconds(1))
        try device.expectOverdue(1, by: scene.enforcer)
        device.advance(by: .seconds(3600))
        scene.expectHeld()
        #expect(device.disk.entries(.expired).isEmpty)
    }

    @Test("no app is handed over under a strict policy or during a session")
    func strict() throws {
        device.configure { $0.cleanup = .strict }
        device.advance(by: .seconds(3600))
        try device.expectOverdue(0, by: enforcer)
        // During a session its data would be deleted, too.
        device.configure { $0.cleanup = .advisory }
        try device.signIn("grace", by: scene.desk)
        device.configure { $0.cleanup = CleanupPolicy(.enforced) }
        device.advance(by: .seconds(3600))
        try device.expectOverdue(0, by: enforcer)
        try device.signOut(by: scene.desk)
        try device.finish(scene.desk)
        try device.expectOverdue(1, by: enforcer)
    }

    @Test("on the system bus only the enforcement unit is handed apps, never an app itself")
    func whoEnforces() throws {
        let scene = try EnforcementScene(requiresProof: true)
        let device = scene.device
        device.advance(by: .seconds(60))
        let unit = AppCleanup.enforcementUnit
        let others = [
            scene.enforcer, device.app(nil, user: 1000, unit: unit),
            device.app(nil, user: 0, unit: "other.service", isAdministrator: true), scene.orders,
        ]
        for other in others {
            #expect(throws: Refusal.notEnforcing) { try device.askOverdue(other) }
            #expect(throws: Refusal.notEnforcing) { try scene.report(by: other) }
        }
        let enforcer = device.app(nil, user: 0, unit: unit, isAdministrator: true)
        try device.expectOverdue(1, by: enforcer)
        // On a bus of one user, an app is not handed its own cleanup.
        let app = self.device.app("org.example.orders", isAdministrator: true)
        _ = try self.device.session(for: app)
        #expect(throws: Refusal.notEnforcing) { try self.scene.handOver(to: app) }
    }

    @Test("a report counts only from the claim's owner and for the claimed sessions")
    func whoseReport() throws {
        let other = scene.enforcer
        #expect(throws: Refusal.notHandedOver) { try scene.report(by: enforcer) }
        device.advance(by: .seconds(60))
        #expect(throws: Refusal.notHandedOver) { try scene.report(by: enforcer) }
        try device.expectOverdue(1, by: enforcer)
        try device.expectOverdue(0, by: other)
        device.quit(scene.orders)
        for (sessions, reporter) in [([scene.session], other), ([scene.session + 2], enforcer), ([], enforcer)] {
            #expect(throws: Refusal.notHandedOver) {
                try device.enforced(EnforcementScene.participant, Set(sessions), by: reporter)
            }
        }
        scene.expectHeld()
        #expect(try scene.report(by: enforcer).isEmpty)
        try scene.expectProgress(.enforced)
    }

    @Test("a receipt before the hand-over counts as usual")
    func receiptBefore() throws {
        device.advance(by: .seconds(60))
        try device.finish(scene.orders)
        try device.expectOverdue(0, by: enforcer)
        try scene.expectProgress(.finished)
    }

    @Test("a receipt during enforcement is refused; the report counts after the app's end")
    func receiptAfter() throws {
        try scene.handOver(to: enforcer)
        scene.expectShutOut(scene.orders)
        #expect(try scene.report(by: enforcer) == [scene.orders.connection], "it had the account")
        scene.expectHeld()
        device.quit(scene.orders)
        // An app that is started again during enforcement does not prevent the report from counting.
        let again = device.app("org.example.orders")
        scene.expectShutOut(again)
        let announcements = device.announcements
        #expect(try scene.report(by: enforcer).isEmpty)
        #expect(device.announcements > announcements, "the app hears that it may ask again")
        try device.report(.finished, of: scene.session, by: again)
        try scene.expectProgress(.enforced)
        let answer = try device.session(for: again)
        #expect(answer.owed.isEmpty && answer.session.account == nil)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.enforced, of: scene.session).count == 1)
        #expect(device.disk.entries(.finished, app: "org.example.orders").isEmpty)
        #expect(device.disk.entries(.completed, of: scene.session).count == 1)
        scene.expectFree()
    }

    @Test("an app without cleanup paths in its manifest gets no account and is told why")
    func hole() throws {
        let device = VirtualDevice(CleanupPolicy(.enforced))
        let text = #"{"id": "org.example.bare", "executable": "/usr/bin/app"}"#
        device.use(try AppManifest(json: Data(text.utf8), file: "bare.json"))
        let bare = device.app("org.example.bare")
        for app in [bare, device.app("org.example.unknown"), device.app(nil)] {
            let refusal = device.refusal(device.send(app, .currentAccount))
            #expect(refusal?.code == .appNotEligible && refusal?.description.contains("\"cleanup\"") == true)
        }
        #expect(device.state.eligibility.warnings.count == 1)
        device.expectRefused(device.send(bare, VirtualDevice.signIn("ada")), code: .appNotEligible)
    }
}
