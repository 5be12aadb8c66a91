import DBus
import DeviceConfiguration
import Foundation
import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Enforced cleanup of several apps at a time")
struct EnforcementUnderWayTests {
    private static let orders = Participant(app: "org.example.orders", user: 1000)
    private static let till = Participant(app: "org.example.till", user: 1000)

    private let device: VirtualDevice
    private let desk: VirtualDevice.App
    private let enforcer: VirtualDevice.App
    private let session: UInt64

    init() throws { try self.init(requiresProof: false) }

    /// Ada has signed out. The orders app and the till are overdue, have ended and are handed to the enforcer.
    private init(requiresProof: Bool) throws {
        device = VirtualDevice(CleanupPolicy(.enforced), requiresProof: requiresProof)
        device.use(
            try AppManifest.enforced("org.example.desk"),
            try AppManifest.enforced("org.example.orders"),
            try AppManifest.enforced("org.example.till")
        )
        desk = device.app("org.example.desk")
        let apps = [device.app("org.example.orders"), device.app("org.example.till")]
        session = try device.signIn("ada", by: desk)
        for app in apps { _ = try device.session(for: app) }
        try device.signOut(by: desk)
        try device.finish(desk)
        for app in apps { device.quit(app) }
        let unit = requiresProof ? AppCleanup.enforcementUnit : nil
        enforcer = device.app(nil, user: 0, unit: unit, isAdministrator: true)
        device.advance(by: .seconds(60))
        try expectHandedOver([Self.orders, Self.till])
    }

    /// Asks for overdue apps as the enforcer, which works on `underWay`, and expects to get these apps.
    private func expectHandedOver(
        _ expected: [Participant],
        underWay: Set<Participant> = [],
        to enforcer: VirtualDevice.App? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let overdue = try device.askOverdue(enforcer ?? self.enforcer, underWay: underWay)
        #expect(overdue.map(\.participant) == expected, sourceLocation: sourceLocation)
    }

    private func expectHeld(_ isHeld: Bool, sourceLocation: SourceLocation = #_sourceLocation) {
        let refusal = device.refusalOfSignIn("grace", by: desk)
        #expect((refusal?.code == .cleanupPending) == isHeld, sourceLocation: sourceLocation)
    }

    private func expectReceiptRefused(
        from participant: Participant,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let receipt = Request.Call.report(.finished, session: session, detail: nil)
        let app = device.app(participant.app)
        device.expectRefused(device.send(app, receipt), .isEnforced, sourceLocation: sourceLocation)
    }

    private func report(_ participants: Participant..., problem: String? = nil) throws {
        for participant in participants {
            try device.enforced(participant, [session], problem: problem, by: enforcer)
        }
    }

    /// Sends the enforcer's request for overdue apps. The enforcer works on these apps.
    private func ask(underWay: Set<Participant>) -> UInt64 {
        device.send(enforcer, .overdue(underWay: underWay, patience: .seconds(60)))
    }

    private func reconnect() { for app in [desk, enforcer] { device.reconnect(app) } }

    private func loseBus() { device.feed(.busLost(mark: CleanupLedger.newMark())) }

    @Test("a failed cleanup is retried while another one runs, for the latest request only")
    func other() throws {
        try report(Self.till, problem: "the disk is read-only")
        let (abandoned, question) = (ask(underWay: [Self.orders]), ask(underWay: [Self.orders]))
        device.expectRefused(abandoned, .requestAbandoned)
        device.advance(by: .seconds(4))
        device.expectUnanswered(question)
        device.advance(by: .seconds(1))
        #expect(try device.overdue(question).map(\.participant) == [Self.till])
        try report(Self.till)
        expectHeld(true)
        try report(Self.orders)
        expectHeld(false)
        let progress = try device.round(session, by: desk)?.apps.map(\.progress)
        #expect(progress == [.finished, .enforced, .enforced])
    }

    @Test("an app reported during a pending request is handed out again only if it failed")
    func staleQuestion() throws {
        let question = ask(underWay: [Self.orders, Self.till])
        try report(Self.till, problem: "the disk is read-only")
        device.advance(by: .seconds(5))
        #expect(try device.overdue(question).map(\.participant) == [Self.till])
        let next = ask(underWay: [Self.orders, Self.till])
        try report(Self.orders, Self.till)
        device.expectUnanswered(next)
        // The enforcer asked before it read the response to its report.
        try expectHandedOver([], underWay: [Self.orders, Self.till])
        expectHeld(false)
    }

    @Test("work that the enforcer does not name is handed out again, also after a restart", arguments: [false, true])
    func lostAnswer(restarts: Bool) throws {
        if restarts {
            device.restart()
            reconnect()
        }
        let announcements = device.announcements
        try expectHandedOver([Self.till], underWay: [Self.orders])
        device.expectAnnouncements(announcements)
        expectReceiptRefused(from: Self.orders)
        try report(Self.till)
        expectHeld(true)
        try report(Self.orders)
        expectHeld(false)
    }

    @Test("an app waived during its enforcement is not in progress after the report")
    func waived() throws {
        let waiver = Request.Call.waive(app: Self.orders.app, user: nil, session: nil, reason: "by hand")
        try device.ask(device.administrator, waiver)
        try report(Self.orders)
        try expectHandedOver([], underWay: [Self.orders, Self.till])
        try report(Self.till)
        expectHeld(false)
    }

    @Test("losing the bus, also right after a restart, keeps all claims", arguments: [false, true])
    func outage(restarts: Bool) throws {
        if restarts { device.restart() }
        // After its start the broker has not heard from the enforcer yet.
        let question = restarts ? nil : ask(underWay: [Self.orders, Self.till])
        loseBus()
        if let question { device.expectRefused(question, .requestAbandoned) }
        #expect(device.state.ledger.connections.contains(enforcer.connection))
        device.feed(.busRestored)
        reconnect()
        // The apps run again and try to clean up themselves, but the enforcer may still be deleting.
        for participant in [Self.orders, Self.till] { expectReceiptRefused(from: participant) }
        expectHeld(true)
        try expectHandedOver([], underWay: [Self.orders, Self.till])
        try report(Self.orders, Self.till)
        expectHeld(false)
    }

    @Test("an enforcer keeps its role after an outage even if its process is not found")
    func secondLook() throws {
        let suite = try Self(requiresProof: true)
        suite.loseBus()
        suite.device.feed(.busRestored)
        let unseen = Caller(
            connection: suite.enforcer.connection,
            credentials: AppCredentials(user: 0, executable: "", unit: nil),
            process: nil,
            isAdministrator: true
        )
        suite.device.feed(.arrived(unseen))
        try suite.report(Self.orders, Self.till)
        suite.reconnect()
        suite.expectHeld(false)
    }

    @Test("if the enforcer exits during an outage, its apps are free for the next one")
    func outageOfAll() throws {
        loseBus()
        #expect(device.state.ledger.claims.count == 2)
        device.quit(enforcer)
        device.feed(.busRestored)
        #expect(device.state.ledger.claims.isEmpty)
        device.reconnect(desk)
        expectHeld(true)
        try expectHandedOver([Self.orders, Self.till], to: device.administrator)
    }

    @Test("a claimed app goes to no other enforcer until the first one disconnects", arguments: [false, true])
    func twoPrograms(restarts: Bool) throws {
        let second = device.administrator
        if restarts {
            device.restart()
            reconnect()
            device.reconnect(second)
        }
        try expectHandedOver([], to: second)
        #expect(throws: Refusal.notHandedOver) { try device.enforced(Self.orders, [session], by: second) }
        try report(Self.orders)
        expectHeld(true)
        device.quit(enforcer)
        try expectHandedOver([Self.till], to: second)
        try device.enforced(Self.till, [session], by: second)
        expectHeld(false)
    }
}
