import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

extension VirtualDevice {
    /// Commits the delayed batch, and no longer delays later ones.
    func resumeDisk() {
        diskMode = .commits
        finishWriting()
    }
}

@Suite("A change is decided, announced and committed before anything relies on it")
struct BrokerStateTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App

    init() { desk = device.app("desk") }

    // MARK: Commit before response

    @Test("a sign-in is announced and confirmed only after its session is committed")
    func signInAfterCommit() throws {
        device.diskMode = .holds
        device.finishWriting()
        let announced = device.announcements
        let request = device.send(desk, VirtualDevice.signIn("ada"))
        #expect(device.held?.device?.account?.username == "ada")
        device.expectSignedOut()
        device.expectAnnouncements(announced)
        device.expectUnanswered(request)
        device.finishWriting()
        #expect(device.disk.device.account?.username == "ada")
        device.expectAnnouncements(announced + 1)
        #expect(try device.answer(request)["epoch"]?.unsignedValue == device.disk.device.epoch)
        #expect(device.disk.part("desk", of: device.disk.device.epoch) != nil, "the app that signs in also holds data")
    }

    @Test("a sign-in whose session cannot be committed leaves the device signed out")
    func failedCommit() throws {
        let announced = device.announcements
        device.diskMode = .fails("no space")
        device.expectRefused(device.send(desk, VirtualDevice.signIn("ada")), .failed("no space"))
        device.expectSignedOut()
        device.expectAnnouncements(announced)
        try device.expectAccount(nil, for: desk)
        #expect(device.state.ledger.sessions.isEmpty && device.state.ledger.parts.isEmpty)
        device.diskMode = .commits
        device.advance(by: .seconds(2))
        #expect(device.disk.sessions.isEmpty && device.disk.device.account == nil)
        #expect(try device.signIn("grace", by: desk) == device.disk.device.epoch)
    }

    @Test("an app gets the account only after its hold on the data is committed")
    func heldBeforeAnswer() throws {
        let session = try device.signIn("ada", by: desk)
        device.diskMode = .holds
        device.advance(by: .seconds(1))
        device.finishWriting()
        let (a, b) = (device.app("a"), device.app("b"))
        let account = device.send(a, .currentAccount)
        let token = device.send(b, device.acquireToken(for: "ada"))
        device.expectUnanswered(account)
        device.expectUnanswered(token)
        // The first batch contains "a"; "b" follows in the next one.
        device.finishWriting()
        #expect(device.disk.part("a", of: session) != nil)
        #expect(try SessionAnswer(device.answer(account)).session.account?.username == "ada")
        device.expectUnanswered(token)
        device.finishWriting()
        #expect(device.disk.part("b", of: session) != nil)
        #expect(try device.answer(token)["token"] != nil)
        // The hold is committed now, so later requests are answered at once.
        try device.expectAccount("ada", for: a)
        // If the hold cannot be committed, the app gets the account once the disk recovers.
        device.diskMode = .fails("no space")
        let app = device.app("c")
        #expect(throws: Refusal.failed("no space")) { try device.session(for: app) }
        let again = device.send(app, .currentAccount)
        device.expectUnanswered(again, "the next attempt is a second away")
        device.advance(by: .seconds(1))
        device.expectRefused(again, .failed("no space"))
        device.diskMode = .commits
        device.advance(by: .seconds(1))
        try device.expectAccount("ada", for: app)
        #expect(device.disk.part("c", of: session) != nil)
    }

    @Test("a receipt is confirmed only after it is committed, also a repeated one")
    func receiptAfterCommit() throws {
        let session = try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        device.diskMode = .holds
        let receipts = (0..<2).map { _ in device.send(desk, .report(.finished, session: session, detail: nil)) }
        for receipt in receipts { device.expectUnanswered(receipt) }
        device.finishWriting()
        device.expectPart("desk", of: session, .finished)
        for receipt in receipts { _ = try device.answer(receipt) }
        // A receipt that cannot be committed is refused, and accepted on retry.
        device.resumeDisk()
        let next = try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        device.diskMode = .fails("no space")
        #expect(throws: Refusal.failed("no space")) { try device.report(.finished, of: next, by: desk) }
        device.diskMode = .commits
        device.advance(by: .seconds(1))
        try device.report(.finished, of: next, by: desk)
        device.expectPart("desk", of: next, .finished)
    }

    @Test("requests that arrive while the disk is busy share one transaction")
    func groupCommit() throws {
        let session = try device.signIn("ada", by: desk)
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        let before = device.batches.count
        let requests = (0..<100).map { device.send(device.app("app\($0)"), .currentAccount) }
        device.finishWriting()
        device.finishWriting()
        let answered = requests.count { device.replies[$0] != nil }
        #expect((device.batches.count, answered, device.disk.parts[session]?.count) == (before + 2, 100, 101))
    }

    @Test("a signed-in account without a ledger entry gets a session")
    func stateWithoutSession() throws {
        device.disk.device = DeviceState(mode: .shared, account: .ada, epoch: 2)
        device.restart()
        let app = device.app("a")
        _ = try device.session(for: app)
        try device.signOut(by: app)
        try device.expectOwed([2], by: app)
    }

    // MARK: Changes

    @Test("every way to end a session announces it once, and only a new mode the mode")
    func everyPath() throws {
        device.configure { $0.endsAtLogout = true }
        let ways: [(modeChanges: Int, way: () throws -> Void)] = [
            (0, { try device.signOut(by: desk) }),
            (0, { try device.ask(device.administrator, .signOutAnyone(identifier: nil, reason: "closing time")) }),
            (1, { device.configure { $0.mode = .personal } }), (0, { device.feed(.login(.ended)) }),
            (0, { device.configure { $0.tenantIdentifier = "contoso" } }),
        ]
        for (modeChanges, way) in ways {
            device.configure {
                $0.mode = .shared
                $0.tenantIdentifier = nil
                $0.organization = nil
            }
            let mode = device.modeAnnouncements
            try device.signIn("ada", by: desk)
            device.configure { $0.organization = "Contoso" }
            #expect(device.modeAnnouncements == mode, "neither a sign-in nor another setting announces the mode")
            let (announced, epoch) = (device.announcements, device.state.device.epoch)
            try way()
            #expect(device.modeAnnouncements == mode + modeChanges)
            device.expectAnnouncements(announced + 1)
            device.expectSignedOut()
            device.expectEpoch(epoch + 1)
            #expect(device.disk.device == device.state.device)
        }
    }

    @Test("a refused sign-out changes nothing, such as one that names another session")
    func namedSession() throws {
        let (announced, state) = (device.announcements, device.state.device)
        device.expectRefused(device.send(desk, .signOut(identifier: "ada.t", session: nil)), .noCurrentAccount)
        device.expectRefused(device.send(desk, .signOutAnyone(identifier: nil, reason: "x")), .notPermitted)
        device.expectAnnouncements(announced)
        #expect(device.state.device == state)
        let session = try device.signIn("ada", by: desk)
        func signOut(_ session: UInt64) -> UInt64 {
            device.send(device.administrator, .signOutAnyone(identifier: nil, session: session, reason: "x"))
        }
        device.expectRefused(signOut(session - 1), .currentAccountMismatch)
        device.expectSignedIn()
        _ = signOut(session)
        device.expectSignedOut()
    }

    @Test("a restart keeps the account and asks the provider for new tokens")
    func restart() throws {
        try device.signIn("ada", by: desk)
        let token = try device.token(for: "ada", by: desk)
        #expect(try device.token(for: "ADA", by: desk) == token, "the case of an identifier does not matter")
        device.restart()
        device.expectPerson("ada")
        let other = device.app("desk")
        #expect(try device.token(for: "ada", by: other) != token)
        try device.signOut(by: other)
        #expect(throws: Refusal.noCurrentAccount) { try device.token(for: "ada", by: other) }
    }

    // MARK: Races

    // E18
    @Test("of two concurrent sign-ins one succeeds and the other is refused", arguments: [false, true])
    func racingSignIns(waitForDisk: Bool) throws {
        device.advance(by: .seconds(1))
        if waitForDisk { device.diskMode = .holds } else { device.holdsProvider = true }
        let requests = ["ada", "grace"].map { device.send(device.app($0), VirtualDevice.signIn($0)) }
        if waitForDisk { device.resumeDisk() } else { device.letProviderAnswer() }
        _ = try device.answer(requests[0])
        // While the first sign-in is being written, it may still fail, and then Ada is not signed in.
        device.expectRefused(requests[1], waitForDisk ? .signInUnderWay : .accountAlreadySignedIn)
        device.expectPerson("ada")
    }

    @Test("a session abandoned during its write leaves nothing to the next session")
    func abandonedOnTheWay() throws {
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        device.send(desk, VirtualDevice.signIn("ada"))
        #expect(device.held?.device?.account?.username == "ada")
        device.quit(desk)
        let other = device.app("other")
        let grace = device.send(other, VirtualDevice.signIn("grace"))
        device.resumeDisk()
        let session = try #require(try device.answer(grace)["epoch"]?.unsignedValue)
        device.advance(by: .seconds(1))
        #expect(device.disk.sessions.keys.sorted() == [session])
        #expect(device.disk.sessions[session]?.account?.username == "grace")
        #expect(device.disk.parts[session]?.keys.map(\.app) == [VirtualDevice.key("other")])
        #expect(device.batches.compactMap { $0.sessions[session]??.account?.username }.allSatisfy { $0 == "grace" })
    }

    // E14
    @Test("a token in flight when its session ends is discarded, even if the user returns", arguments: [false, true])
    func tokenAcrossSignOut(returns: Bool) throws {
        let session = try device.signIn("ada", by: desk)
        let late = device.app("late")
        device.holdsProvider = true
        let request = device.send(late, device.acquireToken(for: "ada", ["x"], refresh: true))
        let answers = device.questions
        device.holdsProvider = false
        try device.signOut(by: desk)
        if returns { try device.signIn("ada", by: desk) }
        for answer in answers { device.feed(answer) }
        device.expectRefused(request, returns ? .currentAccountMismatch : .noCurrentAccount)
        #expect(try device.round(session, by: desk)?.apps.map(\.identifier) == [VirtualDevice.key("desk")])
        try device.expectOwed([], by: late)
    }

    @Test("an app that waits for the account during a sign-out does not learn it")
    func askDuringSignOut() throws {
        try device.signIn("ada", by: desk)
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        let requests = (0..<8).map { device.send(device.app("a\($0)"), .currentAccount) }
        let signOut = device.send(desk, .signOut(identifier: "ada.t", session: nil))
        device.resumeDisk()
        _ = try device.answer(signOut)
        let accounts = try requests.map { try SessionAnswer(device.answer($0)).session.account }
        #expect(accounts.allSatisfy { $0 == nil })
    }
}
