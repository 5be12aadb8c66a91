import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

// S3
@Suite("A sign-out does not fail because of the disk, the provider or time")
struct SignOutTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App
    /// Ada's session.
    private let session: UInt64

    init() throws {
        desk = device.app("desk")
        session = try device.signIn("ada", by: desk)
    }

    private var signOut: Request.Call { .signOut(identifier: "ada.t", session: nil) }

    private func isStored(_ fields: BrokerProtocol.Fields) -> Bool { fields["stored"]?.booleanValue ?? true }

    // E25
    @Test("two programs with one identifier and no manifest clean up separately")
    func namesakes() throws {
        let (one, other) = (device.app("x", executable: "/opt/a"), device.app("x", executable: "/opt/b"))
        for app in [one, other] { try device.expectAccount("ada", for: app) }
        try device.signOut(by: desk)
        try device.finish(one)
        try device.expectOwed([], by: one)
        try device.expectOwed([session], by: other)
    }

    @Test("on a failing disk a sign-out takes effect at once and is reported as unstored")
    func fullDisk() throws {
        let announced = device.announcements
        device.diskMode = .fails("no space")
        let fields = try device.ask(desk, signOut)
        #expect(!isStored(fields))
        #expect(fields["session"]?.unsignedValue == session)
        device.expectAnnouncements(announced + 1)
        device.expectSignedOut()
        let place = try #require(device.happenings.lastIndex(of: .announced))
        #expect(device.happenings[place...].contains(.notCommitted), "all were told before the disk was tried")
        #expect(throws: Refusal.noCurrentAccount) { try device.token(for: "ada", by: desk) }
        try device.expectAccount(nil, for: desk)
        try device.expectOwed([session], by: desk)
        let information = try device.ask(desk, .deviceInformation)
        #expect(information["storeProblem"]?.stringValue == "no space")
    }

    @Test("a sign-out during the sign-in's write leaves the device signed out", arguments: [true, false])
    func duringSignIn(namesAccount: Bool) throws {
        try device.signOut(by: desk)
        device.diskMode = .holds
        let number = device.send(desk, VirtualDevice.signIn("ada"))
        #expect(device.state.pending != nil)
        let other = Request.Call.signOutAnyone(identifier: "grace.t", reason: "test")
        device.expectRefused(device.send(device.administrator, other), .noCurrentAccount)
        #expect(device.state.pending != nil, "the request names another account")
        let session = device.state.pending?.next.epoch
        let call = Request.Call.signOutAnyone(identifier: namesAccount ? "ada.t" : nil, reason: "test")
        let signOut = device.send(device.administrator, call)
        device.expectRefused(number, .requestAbandoned)
        device.expectUnanswered(signOut, "the disk is about to have the session")
        device.resumeDisk()
        device.advance(by: .milliseconds(400))
        let fields = try device.answer(signOut)
        #expect(isStored(fields) && fields["session"]?.unsignedValue == session)
        device.expectSignedOutOnDisk()
    }

    @Test("a sign-out succeeds on a disk known to be full, and is committed later")
    func fullBefore() throws {
        device.diskMode = .fails("no space")
        // The hold of this app cannot be committed.
        #expect(device.refusal(device.send(device.app("notes"), .currentAccount)) != nil)
        let fields = try device.ask(desk, signOut)
        #expect(!isStored(fields) && fields["session"]?.unsignedValue == session)
        device.advance(by: .seconds(600))
        #expect(device.disk.device.account != nil)
        device.diskMode = .commits
        device.advance(by: .seconds(1))
        #expect(device.disk.device == device.state.device && device.disk.sessions[session]?.outcome == .open)
        #expect(device.disk.entries(.signedOut).count == 1)
        #expect(try device.ask(desk, .deviceInformation)["storeProblem"] == nil)
    }

    @Test("a hanging disk delays only the response, by half a second; the status says so")
    func hangingDisk() throws {
        func expectStored(_ expected: Bool, sourceLocation: SourceLocation = #_sourceLocation) throws {
            let isStored = try device.status()["isStored"]?.booleanValue
            #expect(isStored == expected, sourceLocation: sourceLocation)
        }
        device.advance(by: .seconds(1))
        try expectStored(true)
        device.diskMode = .holds
        let announced = device.announcements
        let request = device.send(desk, signOut)
        device.expectAnnouncements(announced + 1)
        device.expectSignedOut()
        device.advance(by: .milliseconds(499))
        device.expectUnanswered(request)
        device.advance(by: .milliseconds(1))
        #expect(!isStored(try device.answer(request)))
        try expectStored(false)
        device.finishWriting()
        #expect(device.disk.device.account == nil)
        try expectStored(true)
        device.diskMode = .commits
        try device.signIn("grace", by: desk)
        device.diskMode = .fails("no space")
        try device.signOut(by: desk)
        try expectStored(false)
        device.diskMode = .commits
        device.advance(by: .seconds(600))
        try expectStored(true)
    }

    @Test("a sign-out during a write is announced at once, written next and then answered")
    func duringWrite() throws {
        device.configure { $0.endSessionURL = "https://login.example.com/logout" }
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        device.send(device.app("a"), .currentAccount)
        let announced = device.announcements
        let request = device.send(desk, signOut)
        device.expectAnnouncements(announced + 1)
        device.finishWriting()
        device.expectUnanswered(request)
        #expect(device.disk.device.account != nil)
        device.finishWriting()
        let fields = try device.answer(request)
        #expect(isStored(fields) && device.disk.device.account == nil)
        #expect(fields["session"]?.unsignedValue == session && fields["epoch"]?.unsignedValue == session + 1)
        #expect(fields["endSessionURL"]?.stringValue == "https://login.example.com/logout")
    }

    @Test("a restart restores neither a session whose end had no room nor an abandoned one")
    func restart() throws {
        device.advance(by: .seconds(10))
        device.diskMode = .fails("no space")
        try device.ask(desk, signOut)
        let ended = device.now.wall
        device.advance(by: .seconds(100))
        #expect(device.disk.device.account != nil, "the rows still have it")
        device.restart()
        device.expectSignedOut()
        let line = device.journal.last { $0.event == .signedOut }
        #expect(line?.detail == "what the broker had noted before this start" && line?.at == ended)
        #expect(device.state.ledger.sessions[session]?.endedAt == ended)
        try device.expectOwed([session], by: device.app("desk"))
        device.diskMode = .commits
        device.advance(by: .seconds(2))
        #expect(device.disk.device.account == nil)
        device.restart()
        device.expectSignedOut()
        let desk = device.app("desk")
        #expect(try device.signIn("grace", by: desk) > session + 1)
        try device.signOut(by: desk)
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        device.send(desk, VirtualDevice.signIn("ada"))
        device.quit(desk)
        device.finishWriting()
        #expect(device.disk.device.account != nil)
        device.diskMode = .fails("no space")
        device.finishWriting()
        device.restart()
        device.expectSignedOut()
    }
}

@Suite("Automatic sign-out")
struct AutomaticSignOutTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App
    private static let login = LoginName(identifier: "1", began: Date(timeIntervalSince1970: 0))

    init() throws {
        desk = device.app("desk")
        device.configure { $0.schedule.inactivity = .seconds(600) }
        try device.signIn("ada", by: desk)
    }

    // S11
    @Test("requests for account and tokens are no activity, unlike a report of activity")
    func activity() throws {
        for _ in 0..<9 {
            device.advance(by: .seconds(60))
            _ = try device.token(for: "ada", refresh: true, by: desk)
            _ = try device.session(for: desk)
        }
        device.expectSignedIn()
        try device.ask(desk, .activity)
        device.expectSignedIn(after: .seconds(599))
        device.expectSignedOut(after: .seconds(1))
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.signedOut).map(\.detail) == ["inactivity for 600 s"])
    }

    @Test("under enforced cleanup the reporter of input needs none, and gets no account")
    func reporter() throws {
        let device = VirtualDevice(CleanupPolicy(.enforced, timeout: .seconds(60)), requiresProof: true)
        let identity = AppManifest.Identity(executable: "/usr/bin/app", user: 1000)
        device.use(AppManifest(identifier: BrokerProtocol.activityIdentifier, identity: identity))
        let reporter = device.app(BrokerProtocol.activityIdentifier)
        try device.ask(reporter, .activity)
        device.expectRefused(device.send(reporter, .currentAccount), .onlyActivity)
        device.expectRefused(device.send(reporter, .beginSignIn(Request.PromptWish())), .onlyActivity)
        #expect(device.state.eligibility.warnings.isEmpty)
        let stranger = device.app(BrokerProtocol.activityIdentifier, user: 1001)
        device.expectRefused(device.send(stranger, .activity), code: .appNotEligible)
    }

    @Test("the inactivity timeout goes on from the last activity over a restart or time off")
    func restart() throws {
        device.advance(by: .seconds(300))
        try device.ask(desk, .activity)
        device.advance(by: .seconds(500))
        device.restart(afterPowerCut: false)
        device.expectSignedIn(after: .seconds(99))
        device.expectSignedOut(after: .seconds(2))
        device.reconnect(desk)
        try device.signIn("ada", by: desk)
        device.pause(for: .seconds(601))
        device.restart(afterPowerCut: false)
        device.expectSignedOut(after: .seconds(1))
    }

    @Test("activity or a restart does not move the end of the longest session")
    func longest() throws {
        device.configure { $0.schedule.longest = .seconds(1000) }
        for _ in 0..<2 {
            device.advance(by: .seconds(300))
            try device.ask(desk, .activity)
        }
        device.restart(afterPowerCut: false)
        device.reconnect(desk)
        device.advance(by: .seconds(350))
        try expectEnd(.longestSession, in: 50, isSoon: true)
        let before = device.announcements
        try device.ask(desk, .activity)
        try expectEnd(.longestSession, in: 50, isSoon: true)
        device.expectAnnouncements(before)
        device.expectSignedIn(after: .seconds(49))
        device.expectSignedOut(after: .seconds(2))
        #expect(device.disk.entries(.signedOut).map(\.detail) == ["longest session of 1000 s"])
    }

    /// The information for every program on the end of the session.
    private var end: SessionEnd? { get throws { SessionEnd(try device.ask(desk, .deviceInformation)) } }

    private func expectEnd(
        _ reason: SessionEnd.Reason,
        in seconds: Double,
        isSoon: Bool,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let end = try #require(try end, sourceLocation: sourceLocation)
        #expect(end.reason == reason && end.isSoon == isSoon, sourceLocation: sourceLocation)
        #expect(abs(end.at.timeIntervalSince(device.now.wall) - seconds) < 1, sourceLocation: sourceLocation)
    }

    @Test("apps and status requests are told once before the end, and once when it moves")
    func warning() throws {
        try expectEnd(.inactivity, in: 600, isSoon: false)
        let before = device.announcements
        let revision = try device.status()["revision"]?.unsignedValue
        let status = device.send(device.administrator, .status(known: revision, patience: .seconds(3600)))
        device.advance(by: .seconds(539))
        device.expectAnnouncements(before)
        device.expectUnanswered(status)
        device.advance(by: .seconds(2))
        try device.expectAnswer(status, "endingSoon", .boolean(true))
        try device.expectAnswer(status, "endReason", .string("inactivity"))
        device.expectAnnouncements(before + 1, "the warning")
        try expectEnd(.inactivity, in: 59, isSoon: true)
        try device.ask(desk, .activity)
        device.expectAnnouncements(before + 2, "its end")
        try expectEnd(.inactivity, in: 600, isSoon: false)
        device.advance(by: .seconds(60))
        try device.ask(desk, .activity)
        device.expectAnnouncements(before + 2, "activity alone is no news")
        device.advance(by: .seconds(545))
        device.expectAnnouncements(before + 3)
        device.expectSignedOut(after: .seconds(60))
        #expect(try end == nil)
    }

    @Test("a device that sleeps through the warning signs out or warns when it wakes")
    func sleepingThroughWarning() throws {
        device.sleep(for: .seconds(570))
        device.feed(.time)
        try expectEnd(.inactivity, in: 30, isSoon: true)
        device.sleep(for: .seconds(570))
        device.feed(.time)
        device.expectSignedOut()
    }

    @Test("setting the clock does not extend a session beyond the timeout")
    func clock() throws {
        device.setClock(forwardBy: -100_000)
        device.expectSignedOut(after: .seconds(665))
        try device.signIn("ada", by: desk)
        device.setClock(forwardBy: 100_000)
        device.advance(by: .seconds(61))
        device.expectSignedOut("by the new clock the session has been idle for a day")
    }

    @Test("new settings apply at once: no warning, no timeout, or a shorter one")
    func settings() throws {
        device.configure { $0.schedule.warning = .zero }
        let before = device.announcements
        device.advance(by: .seconds(599))
        device.expectAnnouncements(before)
        try expectEnd(.inactivity, in: 1, isSoon: false)
        device.configure { $0.schedule.inactivity = nil }
        device.expectSignedIn(after: .seconds(100_000))
        device.configure { $0.schedule.inactivity = .seconds(60) }
        device.expectSignedOut()
    }

    @Test("the status reports a missing logind if screen lock or log-out must sign out")
    func nobodyTellsOfLocks() {
        let problem = { device.state.seat.problem }
        device.feed(.seat(nil))
        #expect(problem() == nil, "no setting needs logind")
        device.configure { $0.endsAtScreenLock = true }
        #expect(problem()?.contains("logind does not respond") == true)
        device.feed(.seat(Seat(sessions: [])))
        #expect(problem() == nil)
    }

    @Test("screen lock and log-out end a session or sign-in only if configured")
    func login() {
        for event in [LoginEvent.locked(Self.login), .ended] {
            device.feed(.login(event))
            device.expectSignedIn()
        }
        device.configure { $0.endsAtScreenLock = true }
        device.feed(.login(.ended))
        device.expectSignedIn()
        device.feed(.login(.locked(Self.login)))
        device.expectSignedOut()
        // The lock also cancels a sign-in.
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        let request = device.send(desk, VirtualDevice.signIn("ada"))
        device.feed(.login(.locked(Self.login)))
        device.expectRefused(request, .requestAbandoned)
        device.resumeDisk()
        device.expectSignedOutOnDisk()
    }
}
