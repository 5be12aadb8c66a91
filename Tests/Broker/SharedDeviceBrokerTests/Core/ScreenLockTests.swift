import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("The lock after inactivity")
struct ScreenLockTests {
    private let device: VirtualDevice
    private let desk: VirtualDevice.App
    private let screen: VirtualDevice.App
    /// Ada's session.
    private let session: UInt64

    init() throws {
        device = VirtualDevice()
        desk = device.app("desk")
        let identity = AppManifest.Identity(executable: "/usr/bin/screen", user: 1000)
        device.use(AppManifest(identifier: BrokerProtocol.screenIdentifier, identity: identity))
        device.configure {
            $0.schedule.inactivity = .seconds(600)
            $0.schedule.locked = .seconds(900)
        }
        screen = device.app(BrokerProtocol.screenIdentifier, executable: "/usr/bin/screen")
        session = try device.signIn("ada", by: desk)
    }

    // MARK: Steps

    /// Asks with the revision of the last response, so that the request waits.
    @discardableResult
    private func send(
        _ shows: ScreenContent,
        known: UInt64? = nil,
        patience: Duration = .seconds(60),
        by app: VirtualDevice.App? = nil
    ) -> UInt64 {
        let known = known ?? device.state.screen.content.revision
        return device.send(app ?? screen, .screen(shows: shows, known: known, patience: patience))
    }

    private func content(_ request: UInt64) throws -> ScreenAnswer { try ScreenAnswer(device.answer(request)) }

    /// Leaves the device unused until the screen is asked to lock. Shows the lock.
    private func lock() throws {
        let waiting = send(.nothing, patience: .seconds(3600))
        device.advance(by: .seconds(541))
        #expect(try content(waiting).show == .warning)
        let warned = send(.warning, patience: .seconds(3600))
        device.advance(by: .seconds(60))
        #expect(try content(warned).show == .lock)
        send(.lock, patience: .seconds(3600))
        #expect(device.state.facts.lock?.isShown == true)
    }

    /// Ada signs in again after the end of her session, and her new session is locked.
    private func lockAnother() throws {
        try device.signIn("ada", by: desk)
        try lock()
    }

    private func expectLocked(
        _ expected: Bool,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let isLocked = try device.ask(desk, .deviceInformation)["locked"]?.booleanValue ?? false
        #expect(isLocked == expected, comment, sourceLocation: sourceLocation)
    }

    /// Expects that this request has unlocked Ada's session.
    private func expectUnlocked(by request: UInt64, sourceLocation: SourceLocation = #_sourceLocation) throws {
        try device.expectAnswer(request, "epoch", .uint64(session), sourceLocation: sourceLocation)
        try expectLocked(false, sourceLocation: sourceLocation)
    }

    /// Keeps the screen program asking, as it does while the session is locked.
    private func stayLocked(for seconds: Int) {
        for _ in 0..<(seconds / 10) {
            device.advance(by: .seconds(10))
            send(.lock)
        }
    }

    private func signIn(_ name: String, password: String = "right", patience: Duration = .zero) -> UInt64 {
        device.send(screen, VirtualDevice.signIn(name, password: password, patience: patience))
    }

    private func signIn(_ credentials: SignInRequest) -> UInt64 {
        device.send(screen, VirtualDevice.signIn(credentials))
    }

    private func newScreen() -> VirtualDevice.App {
        device.app(BrokerProtocol.screenIdentifier, executable: "/usr/bin/screen")
    }

    // MARK: Locking

    @Test("the screen is told each step; a lock keeps account and tokens for apps")
    func locks() throws {
        let epoch = device.state.device.epoch
        let warned = send(.nothing, patience: .seconds(3600))
        device.expectUnanswered(warned)
        device.advance(by: .seconds(541))
        let warning = try content(warned)
        #expect(warning.show == .warning && warning.username == "ada" && warning.end?.reason == .inactivity)
        #expect(warning.end?.locks == true)
        let locked = send(.warning, patience: .seconds(3600))
        device.advance(by: .seconds(60))
        let lock = try content(locked)
        #expect(lock.show == .lock && lock.username == "ada" && lock.signInMethods == [.password])
        #expect(lock.end?.reason == .lock)
        let end = try #require(lock.end).at.timeIntervalSince(device.now.wall)
        #expect(abs(end - 899) < 1.5)
        let ended = send(.lock)
        device.expectUnanswered(ended)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.locked).map(\.detail) == ["inactivity for 600 s"])
        device.expectEpoch(epoch)
        try device.expectAccount("ada", for: desk)
        try device.expectToken(for: "ada", ["s"], by: desk)
        try device.ask(desk, .activity)
        try expectLocked(true, "neither tokens nor input unlock")
        try device.signOut(by: desk)
        #expect(try content(ended).show == .signIn)
    }

    @Test("apps are told of the lock only when the screen shows it, which may take a moment")
    func broadcast() throws {
        send(.nothing)
        device.advance(by: .seconds(601))
        let early = send(.nothing)
        device.expectUnanswered(early)
        device.advance(by: .milliseconds(500))
        #expect(try content(early).show == .lock)
        try expectLocked(false)
        let before = device.announcements
        send(.lock)
        device.expectAnnouncements(before + 1)
        try expectLocked(true)
    }

    @Test("inactivity signs out if no lock is configured or shown within 5 seconds")
    func unlockable() throws {
        device.expectSignedIn(after: .seconds(599))
        #expect(device.state.sessionEnd?.locks == false)
        device.expectSignedOut(after: .seconds(1.5))
        try device.signIn("ada", by: desk)
        send(.nothing)
        device.advance(by: .seconds(600.5))
        send(.nothing)
        device.expectSignedIn(after: .seconds(4))
        device.expectSignedOut(after: .seconds(1))
        device.configure { $0.schedule.locked = nil }
        try device.signIn("ada", by: desk)
        send(.nothing)
        device.advance(by: .seconds(601))
        let causes = [", and no screen program is there to lock it", ", and the screen was not locked", ""]
        device.expectPerson(nil, signedOutBy: causes.map { "inactivity for 600 s" + $0 })
    }

    @Test("only the program with the screen's manifest may ask, and it gets no account")
    func rights() throws {
        let stranger = device.app(BrokerProtocol.screenIdentifier)
        let ask = Request.Call.screen(shows: .lock, known: nil, patience: .zero)
        device.expectRefused(device.send(stranger, ask), code: .appNotEligible)
        device.expectRefused(device.send(desk, ask), .onlyScreen)
        device.expectRefused(device.send(desk, ask), code: .appNotEligible)
        device.expectRefused(device.send(screen, .currentAccount), .screenHoldsNothing)
        device.expectRefused(device.send(screen, device.acquireToken(for: "ada")), .screenHoldsNothing)
        device.expectRefused(device.send(screen, .signOut(identifier: "ada.t", session: nil)), .screenHoldsNothing)
    }

    // MARK: Unlocking

    @Test("the same person unlocks at the screen, an app or a prompt, and the session stays")
    func unlocks() throws {
        try lock()
        device.advance(by: .seconds(5))
        let before = device.announcements
        let number = signIn("ada")
        try expectUnlocked(by: number)
        // The screen is told nothing else, and gets no token.
        #expect(try device.answer(number) == ["username": .string("ada"), "epoch": .uint64(session)])
        device.expectAnnouncements(before + 1)
        #expect(device.disk.entries(.unlocked).map(\.session) == [session])
        // The time without activity begins anew.
        send(.nothing)
        device.expectSignedIn(after: .seconds(599))
        #expect(device.state.facts.lock == nil)
        try device.ask(desk, .activity)
        try lock()
        let byApp = device.send(desk, VirtualDevice.signIn("ada"))
        try expectUnlocked(by: byApp)
        #expect(try device.answer(byApp)["token"] != nil)
        // A prompt unlocks, whether or not it asks for the same person.
        try lock()
        try expectUnlocked(by: device.complete(try device.begin()))
        try lock()
        try expectUnlocked(by: device.complete(try device.begin(.again)))
        device.expectEpoch(session)
        #expect(device.disk.entries(.signedOut).isEmpty)
    }

    @Test("the fifth wrong password ends a locked session, also if no user is throttled")
    func wrongPasswords() throws {
        let cause = "5 wrong passwords or PINs, while the session was locked"
        try lock()
        let guests = [device.app("a", user: 1001), device.app("b", user: 1002)]
        for guess in 0..<5 {
            let number = device.send(guests[guess % 2], VirtualDevice.signIn("ada", password: "wrong"))
            device.expectRefused(number, code: .authenticationFailed)
        }
        device.expectPerson(nil, signedOutBy: [cause])
        try lockAnother()
        for _ in 0..<4 { device.expectRefused(signIn("ada", password: "wrong"), code: .authenticationFailed) }
        // Another person's password does not count for this session.
        device.expectRefused(signIn("grace", password: "wrong"), code: .authenticationFailed)
        try expectLocked(true)
        device.expectRefused(signIn("ada", password: "wrong"), code: .authenticationFailed)
        device.expectPerson(nil, signedOutBy: [cause, cause])
    }

    @Test("the person's PIN unlocks, another's not, and five wrong PINs end the session")
    func pins() throws {
        func pin(_ name: String, _ pin: String) -> UInt64 { signIn(.pin(username: name, Secret(pin))) }
        device.expectRefused(pin("ada", "1234"), .accountAlreadySignedIn)
        try lock()
        device.expectRefused(pin("ada", "4321"), code: .authenticationFailed)
        device.expectRefused(pin("grace", "1234"), .onlyPIN)
        try expectUnlocked(by: pin("Ada", "1234"))
        try lock()
        for _ in 0..<4 { device.expectRefused(pin("ada", "4321"), code: .authenticationFailed) }
        try expectLocked(true)
        device.expectRefused(pin("ada", "4321"), code: .authenticationFailed)
        device.expectPerson(nil, signedOutBy: ["5 wrong passwords or PINs, while the session was locked"])
    }

    @Test("the person's badge unlocks; another's ends the session, but not at its prompt")
    func badges() throws {
        device.badges = ["0041": "ada", "0042": "grace"]
        try lock()
        try expectUnlocked(by: signIn(VirtualDevice.badge("0041")))
        try lock()
        let name = try device.begin(.again)
        let badge = Request.PromptAnswer.password(VirtualDevice.badge("0042"))
        device.expectRefused(device.send(device.prompt, .completeSignIn(name: name, badge)), .otherPerson)
        device.expectRefused(signIn(VirtualDevice.badge("0042", pin: "4321")), code: .authenticationFailed)
        try expectLocked(true)
        try device.expectAnswer(signIn(VirtualDevice.badge("0042")), "username", .string("grace"))
        device.expectPerson("grace", signedOutBy: ["another person signed in, while the session was locked"])
        #expect(device.state.device.epoch > session)
        try device.expectOwed([session], by: desk)
    }

    @Test("a cancelled sign-in that has just unlocked the session signs out")
    func cancelled() throws {
        try lock()
        let password = SignInRequest(username: "ada", password: Secret("right"))
        let call = Request.Call.signIn(password, scopes: [], patience: .zero, label: "one")
        _ = try device.answer(device.send(screen, call))
        device.expectSignedIn()
        try device.ask(screen, .cancelSignIn(label: "one"))
        device.expectSignedOut()
    }

    // MARK: Another person

    @Test(
        "another person's sign-in that fails ends no locked session",
        arguments: [.authenticationFailed, .userNotAllowed, .brokerFailed] as [SharedDeviceError.Code]
    )
    func anotherPersonFails(code: SharedDeviceError.Code) throws {
        if code == .userNotAllowed { device.configure { $0.allowedUsers = AllowedUsers(users: ["ada"]) } }
        if code == .brokerFailed { device.diskMode = .fails("no space") }
        try lock()
        device.advance(by: .seconds(1))
        device.expectRefused(signIn("grace", password: code == .authenticationFailed ? "wrong" : "right"), code: code)
        device.expectPerson("ada", signedOutBy: [])
        if code != .brokerFailed { try expectLocked(true) }
    }

    @Test("another person's sign-in waits for the cleanup of the locked session", arguments: [false, true])
    func waitsForCleanup(isPrompt: Bool) throws {
        device.configure { $0.cleanup = .strict }
        try lock()
        let number = isPrompt ? device.complete(try device.begin(), "grace") : signIn("grace", patience: .seconds(10))
        device.expectUnanswered(number)
        device.expectSignedOut()
        #expect(device.state.screen.content.show == .cleanup, "the screen stays covered until the data is gone")
        try device.expectOwed([session], by: desk)
        try device.finish(desk)
        try device.expectAnswer(number, "username", .string("grace"))
        device.expectPerson("grace")
    }

    @Test("another person is refused when the cleanup takes too long")
    func cleanupTakesLong() throws {
        device.configure { $0.cleanup = .strict }
        try lock()
        let number = signIn("grace", patience: .seconds(10))
        device.advance(by: .seconds(11))
        device.expectRefused(number, code: .cleanupPending)
        device.expectSignedOut()
    }

    // MARK: The end of a locked session

    @Test("a locked session ends after its time, the longest session or a new configuration")
    func ends() throws {
        try lock()
        stayLocked(for: 880)
        // Input does not move the end.
        try device.ask(desk, .activity)
        device.expectSignedIn()
        stayLocked(for: 30)
        device.configure { $0.schedule.longest = .seconds(700) }
        try lockAnother()
        stayLocked(for: 110)
        device.expectSignedOut()
        try lockAnother()
        device.configure { $0.schedule.locked = nil }
        let causes = ["locked for 900 s", "longest session of 700 s", "the managed configuration"]
        device.expectPerson(nil, signedOutBy: causes.map { "\($0), while the session was locked" })
    }

    @Test("a screen program back within 10 seconds keeps the lock, or else the session ends")
    func screenIsLost() throws {
        try lock()
        device.quit(screen)
        device.expectSignedIn(after: .seconds(9))
        let next = newScreen()
        #expect(try content(send(.nothing, known: 0, by: next)).show == .lock)
        send(.lock, by: next)
        device.expectSignedIn(after: .seconds(9))
        device.quit(next)
        device.expectSignedOut(after: .seconds(11))
        device.expectPerson(nil, signedOutBy: ["no screen program shows the lock, while the session was locked"])
    }

    @Test("a screen program that stops asking, or shows something else, ends the session", arguments: [false, true])
    func stopsAsking(asks: Bool) throws {
        try lock()
        device.advance(by: .seconds(10))
        if asks { send(.nothing) }
        device.expectSignedIn(after: .seconds(9))
        if asks { send(.nothing) }
        device.expectSignedOut(after: .seconds(2))
    }

    @Test("a restarted broker locks the session, and ends it unless a screen shows the lock")
    func restart() throws {
        device.restart(afterPowerCut: false)
        try device.expectAnswer(device.send(device.administrator, .deviceInformation), "locked", .boolean(true))
        for app in [screen, desk] { device.reconnect(app) }
        #expect(try content(send(.lock, known: 1000)).show == .lock)
        send(.lock)
        device.advance(by: .seconds(9))
        try expectUnlocked(by: signIn("ada"))
        device.restart(afterPowerCut: false)
        device.expectSignedIn(after: .seconds(9))
        device.expectSignedOut(after: .seconds(2))
    }

    @Test("a session stays locked over a restart even if inactivity has no limit any more")
    func restartWithoutTime() throws {
        try lock()
        device.configure { $0.schedule.inactivity = nil }
        try expectLocked(true)
        device.restart(afterPowerCut: false)
        #expect(device.state.facts.isLocked)
    }

    @Test("while a restarted broker has no valid configuration, the screen keeps its lock")
    func restartWithoutConfiguration() {
        device.configure { $0.isConfigured = false }
        device.restart(afterPowerCut: false)
        device.expectSignedIn()
        #expect(device.state.screenContent.show == .lock)
    }

    @Test("if sessions are not locked, a restart keeps open ones and ends one locked before")
    func restartWithoutLock() {
        device.configure { $0.schedule.locked = nil }
        device.restart(afterPowerCut: false)
        device.expectSignedIn(after: .seconds(20))
        #expect(device.state.facts.lock == nil)
        device.configure { ($0.schedule.locked, $0.lockedBefore) = (nil, true) }
        device.restart(afterPowerCut: false)
        device.expectSignedOut()
    }

    @Test("a sign-in that took too long to check neither ends nor begins a session")
    func late() throws {
        try lock()
        device.holdsProvider = true
        let other = signIn("grace")
        stayLocked(for: 30)
        device.letProviderAnswer()
        device.expectRefused(other, .requestAbandoned)
        device.expectPerson("ada", signedOutBy: [])
        // The locked session ends during the check.
        device.holdsProvider = true
        let same = signIn("ada")
        try device.signOut(by: desk)
        device.letProviderAnswer()
        device.expectRefused(same, .noSuchPrompt)
        device.expectSignedOut()
    }

    @Test("a device that wakes after the locked time ends the session, or else locks it", arguments: [800, 1600])
    func sleeps(seconds: Int) {
        send(.nothing)
        device.sleep(for: .seconds(seconds))
        device.feed(.time)
        #expect(device.state.facts.isLocked == (seconds == 800))
        #expect((device.state.device.account == nil) == (seconds == 1600))
    }

    // MARK: Connections

    @Test("removing the screen's manifest refuses its waiting request and ends the session")
    func manifestIsRemoved() throws {
        try lock()
        let waiting = send(.lock)
        device.use()
        device.expectRefused(waiting, code: .appNotEligible)
        device.expectSignedOut(after: .seconds(11))
    }

    @Test("the newest connection is the screen until it ends, with one request at a time")
    func newest() throws {
        let first = send(.nothing)
        let second = send(.nothing, patience: .seconds(20))
        device.expectRefused(first, .requestAbandoned)
        device.advance(by: .seconds(19))
        device.expectUnanswered(second)
        device.advance(by: .seconds(1))
        #expect(try content(second).show == .nothing)
        let waiting = send(.nothing)
        let other = newScreen()
        let third = send(.nothing, by: other)
        device.expectRefused(waiting, .requestAbandoned)
        device.expectRefused(send(.nothing), .otherScreen)
        device.expectRefused(send(.nothing), code: .notPermitted)
        device.expectUnanswered(third)
        device.quit(other)
        device.expectUnanswered(send(.nothing))
    }
}
