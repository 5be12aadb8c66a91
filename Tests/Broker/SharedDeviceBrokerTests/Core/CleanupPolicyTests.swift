import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("How each cleanup policy treats sign-ins and apps that owe a cleanup")
struct CleanupPolicyTests {
    private static let halfMinute = CleanupPolicy(.strict, timeout: .seconds(30))

    private let device = VirtualDevice(.strict)
    private let desk: VirtualDevice.App
    private let a: VirtualDevice.App
    /// The apps by the names in refusals and reports.
    private let names = (a: VirtualDevice.key("a"), desk: VirtualDevice.key("desk"))

    init() {
        desk = device.app("desk")
        a = device.app("a")
    }

    /// Has the desk sign Ada in, tells app "a" of her and signs her out. Returns her session.
    @discardableResult
    private func adaWasHere(_ policy: CleanupPolicy = .strict) throws -> UInt64 {
        device.configure { $0.cleanup = policy }
        let session = try device.signIn("ada", by: desk)
        _ = try device.session(for: a)
        try device.signOut(by: desk)
        return session
    }

    private func signInGrace(by app: VirtualDevice.App, patience: Duration = .zero) -> UInt64 {
        device.send(app, VirtualDevice.signIn("grace", patience: patience))
    }

    private func expectOutcome(
        _ outcome: CleanupReport.Outcome,
        of session: UInt64,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(device.state.ledger.sessions[session]?.outcome == outcome, comment, sourceLocation: sourceLocation)
    }

    @Test("an advisory policy admits the next user and keeps reporting the debt")
    func advisory() throws {
        let session = try adaWasHere(.advisory)
        try device.signIn("grace", by: desk)
        for _ in 0..<2 {
            let answer = try device.session(for: a)
            #expect(answer.session.account?.username == "grace")
            #expect(answer.owed == [OwedSession(epoch: session, account: .named("ada"))])
            #expect(!answer.isWithheld && !answer.isStrict)
        }
    }

    @Test("a strict policy refuses sign-ins while a manifest cannot be read")
    func unknownManifest() throws {
        device.feed(.manifests([], problems: ["bad"], unknown: ["/apps/bad.json"]))
        device.expectRefused(signInGrace(by: desk), .manifestUnknown("/apps/bad.json"))
        device.configure { $0.cleanup = .advisory }
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        device.configure { $0.cleanup = .strict }
        device.feed(.manifests([]))
        try device.finish(desk)
        try device.signIn("ada", by: desk)
    }

    @Test("a strict policy refuses sign-ins while a cleanup is owed, and names the apps")
    func strictRefusal() throws {
        device.holdsProvider = true
        let late = signInGrace(by: device.app("late"))
        let answers = device.questions
        device.holdsProvider = false
        try adaWasHere()
        for answer in answers { device.feed(answer) }
        // The round that opened during the password check blocks this sign-in, too.
        device.expectRefused(late, .cleanupPending([names.a, names.desk]))
        let checks = device.passwordChecks
        device.expectRefused(signInGrace(by: desk), .cleanupPending([names.a, names.desk]))
        device.expectPasswordChecks(checks, "no password is checked while a cleanup is owed")
        try device.finish(desk)
        device.expectRefused(signInGrace(by: desk), .cleanupPending([names.a]))
        device.expectSignedOut()
        try device.finish(a)
        try device.signIn("grace", by: desk)
    }

    @Test("a sign-in with patience waits for the last receipt, until its patience ends")
    func strictPatience() throws {
        let session = try adaWasHere()
        let late = signInGrace(by: desk, patience: .seconds(60))
        device.advance(by: .seconds(59))
        device.expectUnanswered(late)
        device.advance(by: .seconds(1))
        device.expectRefused(late, code: .cleanupPending)
        let waiting = signInGrace(by: desk, patience: .seconds(60))
        try device.finish(desk)
        device.expectUnanswered(waiting)
        device.expectSignedOut()
        try device.finish(a)
        #expect(try #require(device.answer(waiting)["epoch"]?.unsignedValue) > session)
        device.expectPerson("grace")
    }

    @Test("after the timeout the next user may sign in, but a late app gets no account")
    func quarantine() throws {
        let session = try adaWasHere(Self.halfMinute)
        try device.finish(desk)
        device.expectRefused(signInGrace(by: desk), .cleanupPending([names.a]))
        device.advance(by: .seconds(31))
        expectOutcome(.expired, of: session)
        device.expectRefused(signInGrace(by: a), .cleanupRequired)
        try device.signIn("grace", by: desk)
        let answer = try device.session(for: a)
        #expect(answer.isWithheld && answer.isStrict && answer.session.account == nil)
        #expect(answer.owed.map(\.epoch) == [session])
        #expect(throws: Refusal.cleanupRequired) { try device.token(for: "grace", by: a) }
        try device.expectAccount("grace", for: device.app("b"))
        try device.finish(a)
        try device.expectAccount("grace", for: a)
        expectOutcome(.complete, of: session)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.expired).map(\.detail) == ["still owing: \(names.a)"])
        #expect(device.disk.entries(.completed, of: session).count == 1)
    }

    @Test("an unlimited strict policy also waits for rounds that have expired")
    func stricterPolicy() throws {
        let session = try adaWasHere(Self.halfMinute)
        device.advance(by: .seconds(31))
        #expect(device.heldFor.isEmpty)
        device.configure { $0.cleanup = .strict }
        #expect(device.heldFor == [names.a, names.desk])
        device.expectRefused(signInGrace(by: desk), code: .cleanupPending)
        for app in [a, desk] { try device.report(.finished, of: session, by: app) }
        try device.signIn("grace", by: desk)
    }

    // S19
    @Test("a round expires on time even if the clock is set or the broker restarts")
    func expiry() throws {
        for (jump, restarts, remaining) in [
            (0, false, 10), (100_000, false, 10), (-100_000, false, 10), (0, true, 10),
            // By a clock that was set back, the session has just ended when the broker starts.
            (-100_000, true, 30),
        ] as [(Double, Bool, Int)] {
            let other = Self()
            let session = try other.adaWasHere(Self.halfMinute)
            other.device.advance(by: .seconds(20))
            other.device.setClock(forwardBy: jump)
            if restarts { other.device.restart() }
            other.device.advance(by: .seconds(remaining - 1))
            other.expectOutcome(.open, of: session, "set by \(jump), restarts: \(restarts)")
            other.device.advance(by: .seconds(1))
            other.expectOutcome(.expired, of: session, "set by \(jump), restarts: \(restarts)")
        }
    }

    @Test("a request that waits for the end of a round waits on when the round expires")
    func awaitsEnd() throws {
        let session = try adaWasHere(Self.halfMinute)
        let call = Request.Call.round(session: session, after: nil, awaitsEnd: true, patience: .seconds(60))
        let waiting = device.send(desk, call)
        device.advance(by: .seconds(31))
        device.expectUnanswered(waiting)
        try device.finish(desk, a)
        #expect(try CleanupReport(device.answer(waiting)["round"]).isComplete)
    }
}
