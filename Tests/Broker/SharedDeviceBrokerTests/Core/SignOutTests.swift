import DBusTransport
import Foundation
import SharedDevice
import SharedDeviceSimulation
import Testing

@testable import SharedDeviceBroker

// S3
@Suite("A sign-out cannot fail: not for want of a disk, a provider or time")
struct SignOutTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App

    init() { desk = device.app("desk") }

    private var signOut: Request.Call { .signOut(identifier: "ada.t", session: nil) }

    private func isStored(_ fields: BrokerProtocol.Fields) -> Bool { fields["stored"]?.booleanValue ?? true }

    @Test("on a disk that fails, all are told and the account is withheld at once; the answer says what is not stored")
    func fullDisk() throws {
        let session = try device.signIn("ada", by: desk)
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
        #expect(try device.session(for: desk).owed.map(\.epoch) == [session])
        let information = try device.ask(desk, .deviceInformation)
        #expect(information["storeProblem"]?.stringValue == "no space")
    }

    @Test("a sign-out of somebody whose session is being written leaves nobody signed in", arguments: [true, false])
    func duringSignIn(namesAccount: Bool) throws {
        device.diskMode = .holds
        let number = device.send(desk, VirtualDevice.signIn("ada"))
        #expect(device.state.pending != nil)
        let other = Request.Call.signOutAnyone(identifier: "grace.t", reason: "test")
        device.expectRefused(device.send(device.administrator, other), .noCurrentAccount)
        #expect(device.state.pending != nil, "somebody else is meant")
        let session = device.state.pending?.next.epoch
        let call = Request.Call.signOutAnyone(identifier: namesAccount ? "ada.t" : nil, reason: "test")
        let signOut = device.send(device.administrator, call)
        device.expectRefused(number, .requestAbandoned)
        device.expectUnanswered(signOut, "the disk is about to have the session")
        device.diskMode = .commits
        device.finishWriting()
        device.advance(by: .milliseconds(400))
        let fields = try device.answer(signOut)
        #expect(isStored(fields) && fields["session"]?.unsignedValue == session)
        device.expectSignedOutOnDisk()
    }

    @Test("so on a disk that is known to be full: nobody hears that the sign-out has failed")
    func fullBefore() throws {
        let session = try device.signIn("ada", by: desk)
        device.diskMode = .fails("no space")
        // The disk does not take that this app holds the account.
        #expect(device.refusal(device.send(device.app("notes"), .currentAccount)) != nil)
        let fields = try device.ask(desk, signOut)
        #expect(!isStored(fields) && fields["session"]?.unsignedValue == session)
        device.diskMode = .commits
        device.advance(by: .seconds(1))
        #expect(device.disk.device.account == nil)
    }

    @Test("it is committed as soon as there is room, and then nothing is left to say")
    func committedLater() throws {
        let session = try device.signIn("ada", by: desk)
        device.diskMode = .fails("no space")
        try device.ask(desk, signOut)
        device.advance(by: .seconds(600))
        #expect(device.disk.device.account != nil)
        device.diskMode = .commits
        device.advance(by: .seconds(1))
        #expect(device.disk.device == device.state.device && device.disk.sessions[session]?.outcome == .open)
        #expect(device.disk.entries(.signedOut).count == 1)
        #expect(try device.ask(desk, .deviceInformation)["storeProblem"] == nil)
    }

    @Test("a disk that answers nothing holds the answer up for half a second, and the broadcast not at all")
    func hangingDisk() throws {
        try device.signIn("ada", by: desk)
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        let announced = device.announcements
        let request = device.send(desk, signOut)
        device.expectAnnouncements(announced + 1)
        device.expectSignedOut()
        device.advance(by: .milliseconds(499))
        device.expectUnanswered(request)
        device.advance(by: .milliseconds(1))
        #expect(!isStored(try device.answer(request)))
        device.finishWriting()
        #expect(device.disk.device.account == nil)
    }

    @Test("the device's status says whether the disk has it who is signed in, also while it is being written")
    func storedStatus() throws {
        func isStored() throws -> Bool? {
            try device.ask(device.administrator, .status(known: nil, patience: .zero))["isStored"]?.booleanValue
        }
        try device.signIn("ada", by: desk)
        device.advance(by: .seconds(1))
        #expect(try isStored() == true)
        device.diskMode = .holds
        device.send(desk, signOut)
        #expect(try isStored() == false, "it is being written")
        device.finishWriting()
        #expect(try isStored() == true)
        device.diskMode = .commits
        try device.signIn("grace", by: desk)
        device.diskMode = .fails("no space")
        try device.ask(desk, .signOut(identifier: "grace.t", session: nil))
        #expect(try isStored() == false)
        device.diskMode = .commits
        device.advance(by: .seconds(600))
        #expect(try isStored() == true)
    }

    @Test("a sign-out during another write is announced at once and written next")
    func duringWrite() throws {
        try device.signIn("ada", by: desk)
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
        #expect(isStored(try device.answer(request)) && device.disk.device.account == nil)
    }

    @Test("a restart does not bring back a session that the disk had no room to end; its time is the true one")
    func restart() throws {
        let session = try device.signIn("ada", by: desk)
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
        #expect(try device.signIn("grace", by: device.app("desk")) > session + 1)
    }

    @Test("a session that was abandoned on its way to the disk does not come back with a restart")
    func abandonedSignIn() throws {
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

    @Test("the answer names the session that has ended, and the page that ends the browser's")
    func answer() throws {
        device.configure { $0.endSessionURL = "https://login.example.com/logout" }
        let session = try device.signIn("ada", by: desk)
        let fields = try device.ask(desk, signOut)
        #expect(fields["session"]?.unsignedValue == session && fields["epoch"]?.unsignedValue == session + 1)
        #expect(fields["endSessionURL"]?.stringValue == "https://login.example.com/logout")
    }

    @Test("an app that names a session ends no later one")
    func lateRequest() throws {
        let session = try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        try device.signIn("ada", by: desk)
        device.expectRefused(
            device.send(desk, .signOut(identifier: "ada.t", session: session)),
            .currentAccountMismatch
        )
        device.expectSignedIn()
    }
}

@Suite("What ends a session by itself")
struct AutomaticSignOutTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App
    private static let login = LoginName(identifier: "1", began: Date(timeIntervalSince1970: 0))

    init() {
        desk = device.app("desk")
        device.configure { $0.schedule.inactivity = .seconds(600) }
    }

    // S11
    @Test("asking for the account and for tokens is no activity; saying that somebody is there is")
    func activity() throws {
        try device.signIn("ada", by: desk)
        for _ in 0..<9 {
            device.advance(by: .seconds(60))
            _ = try device.token(for: "ada", refresh: true, by: desk)
            _ = try device.session(for: desk)
        }
        device.expectSignedIn()
        try device.ask(desk, .activity)
        device.advance(by: .seconds(599))
        device.expectSignedIn()
        device.advance(by: .seconds(1))
        device.expectSignedOut()
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.signedOut).map(\.detail) == ["inactivity for 600 s"])
    }

    @Test("a restart goes on from the last time that somebody used the device")
    func restart() throws {
        try device.signIn("ada", by: desk)
        device.advance(by: .seconds(300))
        try device.ask(desk, .activity)
        device.advance(by: .seconds(500))
        device.restart(afterPowerCut: false)
        device.advance(by: .seconds(99))
        device.expectSignedIn()
        device.advance(by: .seconds(2))
        device.expectSignedOut()
    }

    @Test("a clock that is set does not keep a session for longer than the timeout")
    func clock() throws {
        try device.signIn("ada", by: desk)
        device.setClock(forwardBy: -100_000)
        device.advance(by: .seconds(665))
        device.expectSignedOut()
        try device.signIn("ada", by: desk)
        device.setClock(forwardBy: 100_000)
        device.advance(by: .seconds(61))
        device.expectSignedOut("by the new clock nobody has used it for a day")
    }

    @Test("a new timeout counts at once; without one nothing ends by itself")
    func settings() throws {
        try device.signIn("ada", by: desk)
        device.advance(by: .seconds(300))
        device.configure { $0.schedule.inactivity = nil }
        device.advance(by: .seconds(100_000))
        device.expectSignedIn()
        device.configure { $0.schedule.inactivity = .seconds(60) }
        device.expectSignedOut()
    }

    @Test("locking the screen and logging out end a session only where that is wanted")
    func login() throws {
        try device.signIn("ada", by: desk)
        for event in [LoginEvent.locked(Self.login), .ended] {
            device.feed(.login(event))
            device.expectSignedIn()
        }
        device.configure { $0.endsAtScreenLock = true }
        device.feed(.login(.ended))
        device.expectSignedIn()
        device.feed(.login(.locked(Self.login)))
        device.expectSignedOut()
    }

    @Test("that a lock or a logout is wanted and logind does not tell of it, the status says")
    func nobodyTellsOfLocks() {
        let problem = { device.state.loginProblem }
        device.feed(.seat(nil))
        #expect(problem() == nil, "nobody wants it")
        device.configure { $0.endsAtScreenLock = true }
        #expect(problem()?.contains("logind does not answer") == true)
        device.feed(.seat(Seat(sessions: [])))
        #expect(problem() == nil)
    }

    @Test("a screen that is locked during a sign-in ends that, too")
    func lockedDuringSignIn() throws {
        device.configure { $0.endsAtScreenLock = true }
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        let request = device.send(desk, VirtualDevice.signIn("ada"))
        device.feed(.login(.locked(Self.login)))
        device.expectRefused(request, .requestAbandoned)
        device.diskMode = .commits
        device.finishWriting()
        device.expectSignedOutOnDisk()
    }
}
