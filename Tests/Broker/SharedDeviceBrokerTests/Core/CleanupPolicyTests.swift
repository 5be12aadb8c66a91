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

        init(_ policy: CleanupPolicy) throws {
            device = VirtualDevice(policy)
            desk = device.app("desk")
            a = device.app("a")
            session = try device.signIn("ada", by: desk)
            _ = try device.session(for: a)
            try device.signOut(by: desk)
        }

        func key(_ app: String) -> String { VirtualDevice.key(app) }
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
        #expect(device.heldFor == [scene.key("a"), scene.key("desk")])
        let checks = device.passwordChecks
        let first = device.refusalOfSignIn("grace", by: scene.desk)
        #expect(first == .cleanupPending([scene.key("a"), scene.key("desk")]))
        device.expectPasswordChecks(checks, "the password is not looked at before")
        try device.finish(scene.desk)
        device.expectRefused(device.send(scene.desk, VirtualDevice.signIn("grace")), .cleanupPending([scene.key("a")]))
        device.expectSignedOut()
        try device.finish(scene.a)
        try device.signIn("grace", by: scene.desk)
        #expect(device.heldFor.isEmpty)
    }

    @Test("a sign-in with patience proceeds on the last receipt")
    func strictPatience() throws {
        let scene = try Scene(.strict)
        let device = scene.device
        let waiting = device.send(scene.desk, VirtualDevice.signIn("grace", patience: .seconds(60)))
        try device.finish(scene.desk)
        device.expectUnanswered(waiting)
        device.expectSignedOut()
        try device.finish(scene.a)
        #expect(try #require(device.answer(waiting)["epoch"]?.unsignedValue) > scene.session)
        device.expectPerson("grace")
    }

    @Test("a sign-in with patience is refused when its patience ends")
    func patienceEnds() throws {
        let scene = try Scene(.strict)
        let waiting = scene.device.send(scene.desk, VirtualDevice.signIn("grace", patience: .seconds(60)))
        scene.device.advance(by: .seconds(59))
        scene.device.expectUnanswered(waiting)
        scene.device.advance(by: .seconds(1))
        scene.device.expectRefused(waiting, code: .cleanupPending)
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

    @Test("after the timeout the next user signs in, but not to an app that still owes")
    func quarantine() throws {
        let scene = try Scene(Self.halfMinute)
        let (device, session) = (scene.device, scene.session)
        try device.finish(scene.desk)
        device.expectRefused(device.send(scene.desk, VirtualDevice.signIn("grace")), .cleanupPending([scene.key("a")]))
        device.advance(by: .seconds(31))
        #expect(try device.round(session, by: scene.desk)?.outcome == .expired)
        try device.signIn("grace", by: scene.desk)
        let answer = try device.session(for: scene.a)
        #expect(answer.isWithheld && answer.isStrict && answer.session.account == nil)
        #expect(answer.owed.map(\.epoch) == [session])
        #expect(throws: Refusal.cleanupRequired) { try device.token(for: "grace", by: scene.a) }
        try device.expectAccount("grace", for: device.app("b"))
        try device.finish(scene.a)
        try device.expectAccount("grace", for: scene.a)
        #expect(try device.round(session, by: scene.desk)?.outcome == .complete)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.expired).map(\.detail) == ["still owing: \(scene.key("a"))"])
        #expect(device.disk.entries(.completed, of: session).count == 1)
    }

    @Test("an app that owes a cleanup cannot sign in after its round has expired")
    func quarantinedSignIn() throws {
        let scene = try Scene(Self.halfMinute)
        scene.device.advance(by: .seconds(31))
        scene.device.expectRefused(scene.device.send(scene.a, VirtualDevice.signIn("grace")), .cleanupRequired)
    }

    @Test("an unlimited strict policy also waits for rounds that have expired")
    func stricterPolicy() throws {
        let scene = try Scene(Self.halfMinute)
        let device = scene.device
        device.advance(by: .seconds(31))
        #expect(device.heldFor.isEmpty)
        device.configure { $0.cleanup = .strict }
        #expect(device.heldFor == [scene.key("a"), scene.key("desk")])
        device.expectRefused(device.send(scene.desk, VirtualDevice.signIn("grace")), code: .cleanupPending)
        for app in [scene.a, scene.desk] { try device.report(.finished, of: scene.session, by: app) }
        try device.signIn("grace", by: scene.desk)
    }

    // S19
    @Test("a round expires on time even if the clock is set")
    func expiry() throws {
        for jump in [0.0, 100_000, -100_000] {
            let scene = try Scene(Self.halfMinute)
            let (device, session) = (scene.device, scene.session)
            let call = Request.Call.round(session: session, after: nil, awaitsEnd: true, patience: .seconds(60))
            let waiting = device.send(scene.desk, call)
            device.setClock(forwardBy: jump)
            device.advance(by: .seconds(29))
            #expect(device.state.ledger.sessions[session]?.outcome == .open, "set by \(jump)")
            device.advance(by: .seconds(1))
            #expect(device.state.ledger.sessions[session]?.outcome == .expired, "set by \(jump)")
            device.expectUnanswered(waiting, "who waits for the end waits on: the round is not complete")
            try device.finish(scene.desk, scene.a)
            #expect(try CleanupReport(device.answer(waiting)["round"]).isComplete)
        }
    }

    // S19
    @Test("a restart does not extend a round, nor shorten it if the clock was set back")
    func expiryAcrossRestart() throws {
        let scene = try Scene(Self.halfMinute)
        scene.device.advance(by: .seconds(20))
        scene.device.restart()
        scene.device.advance(by: .seconds(9))
        #expect(scene.device.state.ledger.sessions[scene.session]?.outcome == .open)
        scene.device.advance(by: .seconds(1))
        #expect(scene.device.state.ledger.sessions[scene.session]?.outcome == .expired)

        let other = try Scene(Self.halfMinute)
        other.device.advance(by: .seconds(20))
        other.device.setClock(forwardBy: -100_000)
        other.device.restart()
        other.device.advance(by: .seconds(29))
        #expect(other.device.state.ledger.sessions[other.session]?.outcome == .open)
        other.device.advance(by: .seconds(1))
        #expect(other.device.state.ledger.sessions[other.session]?.outcome == .expired)
    }

    // MARK: Several processes, several users

    // S8
    @Test("a receipt of another user or process does not settle an app with the account")
    func oneReceiptIsNotAll() throws {
        let device = VirtualDevice(.strict)
        device.use(AppManifest(identifier: "org.example.app", identity: .init(executable: "/usr/bin/app")))
        let ada = device.app("org.example.app", user: 65534)
        let (root, second) = (device.app("org.example.app", user: 0), device.app("org.example.app", user: 65534))
        let session = try device.signIn("ada", by: ada)
        for app in [ada, second] { #expect(try device.session(for: app).session.account != nil) }
        try device.signOut(by: ada)
        try device.report(.finished, of: session, by: root)
        #expect(device.heldFor == ["org.example.app"])
        try device.report(.finished, of: session, by: ada)
        device.expectRefused(device.send(root, VirtualDevice.signIn("grace")), code: .cleanupPending)
        try device.expectOwed([], by: ada)
        try device.expectOwed([session], by: second)
        device.quit(second)
        try device.expectOwed([session], by: ada, "the other process may have stored something since")
        try device.report(.finished, of: session, by: ada)
        #expect(try device.round(session, by: ada)?.isComplete == true)
        try device.signIn("grace", by: root)
    }
}
