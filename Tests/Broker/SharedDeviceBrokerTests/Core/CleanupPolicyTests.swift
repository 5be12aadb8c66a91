import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("How each cleanup policy treats sign-ins and apps that owe a cleanup")
struct CleanupPolicyTests {
    /// Ada was signed in by the desk, app "a" was told of her, and she has signed out.
    private struct Scene {
        let device: VirtualDevice
        let desk: VirtualDevice.App
        let a: VirtualDevice.App
        let session: UInt64
        /// The apps by the names in refusals and reports.
        let names = (a: VirtualDevice.key("a"), desk: VirtualDevice.key("desk"))

        init(_ policy: CleanupPolicy) throws {
            device = VirtualDevice(policy)
            desk = device.app("desk")
            a = device.app("a")
            session = try device.signIn("ada", by: desk)
            _ = try device.session(for: a)
            try device.signOut(by: desk)
        }

        func outcome() -> CleanupReport.Outcome? { device.state.ledger.sessions[session]?.outcome }
    }

    private static let halfMinute = CleanupPolicy(.strict, timeout: .seconds(30))

    // MARK: Advisory

    @Test("an advisory policy admits the next user and keeps reporting the debt")
    func advisory() throws {
        let scene = try Scene(.advisory)
        try scene.device.signIn("grace", by: scene.desk)
        for _ in 0..<2 {
            let answer = try scene.device.session(for: scene.a)
            #expect(answer.session.account?.username == "grace")
            #expect(answer.owed == [OwedSession(epoch: scene.session, account: .named("ada"))])
            #expect(!answer.isWithheld && !answer.isStrict)
        }
    }

    // MARK: Strict

    @Test("a strict policy refuses sign-ins while a manifest cannot be read")
    func unknownManifest() throws {
        let device = VirtualDevice(.strict)
        let desk = device.app("desk")
        device.feed(.manifests([], problems: ["bad"], unknown: ["/apps/bad.json"]))
        device.expectRefused(device.send(desk, VirtualDevice.signIn("ada")), .manifestUnknown("/apps/bad.json"))
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
        let scene = try Scene(.strict)
        let device = scene.device
        let checks = device.passwordChecks
        let first = device.refusalOfSignIn("grace", by: scene.desk)
        #expect(first == .cleanupPending([scene.names.a, scene.names.desk]))
        device.expectPasswordChecks(checks, "the password is not looked at before")
        try device.finish(scene.desk)
        device.expectRefused(device.send(scene.desk, VirtualDevice.signIn("grace")), .cleanupPending([scene.names.a]))
        device.expectSignedOut()
        try device.finish(scene.a)
        try device.signIn("grace", by: scene.desk)
    }

    @Test("a sign-in with patience waits for the last receipt, until its patience ends")
    func strictPatience() throws {
        let scene = try Scene(.strict)
        let device = scene.device
        let call = VirtualDevice.signIn("grace", patience: .seconds(60))
        let late = device.send(scene.desk, call)
        device.advance(by: .seconds(59))
        device.expectUnanswered(late)
        device.advance(by: .seconds(1))
        device.expectRefused(late, code: .cleanupPending)
        let waiting = device.send(scene.desk, call)
        try device.finish(scene.desk)
        device.expectUnanswered(waiting)
        device.expectSignedOut()
        try device.finish(scene.a)
        #expect(try #require(device.answer(waiting)["epoch"]?.unsignedValue) > scene.session)
        device.expectPerson("grace")
    }

    @Test("a round that opens during the password check blocks the sign-in")
    func roundDuringSignIn() throws {
        let device = VirtualDevice(.strict)
        let (desk, a) = (device.app("desk"), device.app("a"))
        device.holdsProvider = true
        let late = device.send(a, VirtualDevice.signIn("grace"))
        let answers = device.questions
        device.holdsProvider = false
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        for answer in answers { device.feed(answer) }
        device.expectRefused(late, .cleanupPending([VirtualDevice.key("desk")]))
    }

    @Test("after the timeout the next user signs in, but neither by nor to a late app")
    func quarantine() throws {
        let scene = try Scene(Self.halfMinute)
        let (device, session) = (scene.device, scene.session)
        try device.finish(scene.desk)
        device.expectRefused(device.send(scene.desk, VirtualDevice.signIn("grace")), .cleanupPending([scene.names.a]))
        device.advance(by: .seconds(31))
        #expect(scene.outcome() == .expired)
        device.expectRefused(device.send(scene.a, VirtualDevice.signIn("grace")), .cleanupRequired)
        try device.signIn("grace", by: scene.desk)
        let answer = try device.session(for: scene.a)
        #expect(answer.isWithheld && answer.isStrict && answer.session.account == nil)
        #expect(answer.owed.map(\.epoch) == [session])
        #expect(throws: Refusal.cleanupRequired) { try device.token(for: "grace", by: scene.a) }
        try device.expectAccount("grace", for: device.app("b"))
        try device.finish(scene.a)
        try device.expectAccount("grace", for: scene.a)
        #expect(scene.outcome() == .complete)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.expired).map(\.detail) == ["still owing: \(scene.names.a)"])
        #expect(device.disk.entries(.completed, of: session).count == 1)
    }

    @Test("an unlimited strict policy also waits for rounds that have expired")
    func stricterPolicy() throws {
        let scene = try Scene(Self.halfMinute)
        let device = scene.device
        device.advance(by: .seconds(31))
        #expect(device.heldFor.isEmpty)
        device.configure { $0.cleanup = .strict }
        #expect(device.heldFor == [scene.names.a, scene.names.desk])
        device.expectRefused(device.send(scene.desk, VirtualDevice.signIn("grace")), code: .cleanupPending)
        for app in [scene.a, scene.desk] { try device.report(.finished, of: scene.session, by: app) }
        try device.signIn("grace", by: scene.desk)
    }

    // S19
    @Test("a round expires on time even if the clock is set or the broker restarts")
    func expiry() throws {
        for (jump, restarts, remaining) in [
            (0, false, 10), (100_000, false, 10), (-100_000, false, 10), (0, true, 10),
            // By a clock that was set back, the session has just ended when the broker starts.
            (-100_000, true, 30),
        ] as [(Double, Bool, Int)] {
            let scene = try Scene(Self.halfMinute)
            scene.device.advance(by: .seconds(20))
            scene.device.setClock(forwardBy: jump)
            if restarts { scene.device.restart() }
            scene.device.advance(by: .seconds(remaining - 1))
            #expect(scene.outcome() == .open, "set by \(jump), restarts: \(restarts)")
            scene.device.advance(by: .seconds(1))
            #expect(scene.outcome() == .expired, "set by \(jump), restarts: \(restarts)")
        }
    }

    @Test("a request that waits for the end of a round waits on when the round expires")
    func awaitsEnd() throws {
        let scene = try Scene(Self.halfMinute)
        let call = Request.Call.round(session: scene.session, after: nil, awaitsEnd: true, patience: .seconds(60))
        let waiting = scene.device.send(scene.desk, call)
        scene.device.advance(by: .seconds(31))
        scene.device.expectUnanswered(waiting)
        try scene.device.finish(scene.desk, scene.a)
        #expect(try CleanupReport(scene.device.answer(waiting)["round"]).isComplete)
    }
}
