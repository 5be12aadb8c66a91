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
        screen = try Self.prepare(device)
        session = try device.signIn("ada", by: desk)
    }

    private static func prepare(_ device: VirtualDevice) throws -> VirtualDevice.App {
        let identity = AppManifest.Identity(executable: "/usr/bin/screen", user: 1000)
        device.use(AppManifest(identifier: BrokerProtocol.screenIdentifier, identity: identity))
        device.configure {
            $0.schedule.inactivity = .seconds(600)
            $0.schedule.locked = .seconds(900)
        }
        return device.app(BrokerProtocol.screenIdentifier, executable: "/usr/bin/screen")
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

    private var isLocked: Bool {
        get throws { try device.ask(desk, .deviceInformation)["locked"]?.booleanValue ?? false }
    }

    /// Leaves the device unused until the screen is asked to lock. Shows the lock.
    private func lock(_ device: VirtualDevice? = nil, by app: VirtualDevice.App? = nil) throws {
        let device = device ?? self.device
        let screen = app ?? self.screen
        func ask(_ shows: ScreenContent) -> UInt64 {
            let known = device.state.screen.content.revision
            return device.send(screen, .screen(shows: shows, known: known, patience: .seconds(3600)))
        }
        let waiting = ask(.nothing)
        device.advance(by: .seconds(541))
        #expect(try ScreenAnswer(device.answer(waiting)).show == .warning)
        let warned = ask(.warning)
        device.advance(by: .seconds(60))
        #expect(try ScreenAnswer(device.answer(warned)).show == .lock)
        _ = ask(.lock)
        #expect(device.state.facts.lock?.isShown == true)
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

    private var causes: [String?] { device.disk.entries(.signedOut).map(\.detail) }

    // MARK: Locking

    @Test("the screen is told to warn, to lock and to sign in, with the person's name and the end")
    func contents() throws {
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
        try device.signOut(by: desk)
        #expect(try content(ended).show == .signIn)
    }

    @Test("inactivity locks the session, tells apps once the lock is shown, and keeps account and tokens for apps")
    func locks() throws {
        let epoch = device.state.device.epoch
        try lock()
        #expect(try isLocked)
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.locked).map(\.detail) == ["inactivity for 600 s"])
        #expect(device.state.device.epoch == epoch)
        try device.expectAccount("ada", for: desk)
        #expect(try !device.token(for: "ada", by: desk).isEmpty)
        try device.ask(desk, .activity)
        #expect(try isLocked, "neither tokens nor input unlock")
    }

    @Test("apps are told of the lock only when the screen shows it")
    func broadcast() throws {
        send(.nothing)
        device.advance(by: .seconds(601))
        #expect(try !isLocked)
        let before = device.announcements
        send(.lock)
        device.expectAnnouncements(before + 1)
        #expect(try isLocked)
    }

    @Test("without a screen program, inactivity signs out at once")
    func noScreen() {
        device.advance(by: .seconds(599))
        device.expectSignedIn()
        #expect(device.state.sessionEnd?.locks == false)
        device.expectSignedOut(after: .seconds(1.5))
        #expect(causes == ["inactivity for 600 s, and no screen program is there to lock it"])
    }

    @Test("a screen program that does not show the lock within 5 seconds ends the session")
    func unconfirmed() {
        send(.nothing)
        device.advance(by: .seconds(600.5))
        send(.nothing)
        device.expectSignedIn(after: .seconds(4))
        device.expectSignedOut(after: .seconds(1))
        #expect(causes == ["inactivity for 600 s, and the screen was not locked"])
    }

    @Test("signing out is still the action after inactivity unless the configuration asks for a lock")
    func signOutIsUsual() {
        device.configure { $0.schedule.locked = nil }
        send(.nothing)
        device.advance(by: .seconds(601))
        device.expectPerson(nil, signedOutBy: ["inactivity for 600 s"])
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

    @Test("a screen program that needs a moment to show the lock may soon say that it does")
    func slowScreen() throws {
        send(.nothing)
        device.advance(by: .seconds(601))
        let early = send(.nothing)
        device.expectUnanswered(early)
        device.advance(by: .milliseconds(500))
        #expect(try content(early).show == .lock)
        send(.lock)
        #expect(try isLocked)
    }

    // MARK: Unlocking

    @Test("the same person unlocks, and the session stays open with its number")
    func unlocks() throws {
        try lock()
        device.advance(by: .seconds(5))
        let before = device.announcements
        let answer = try device.answer(signIn("ada"))
        #expect(answer == ["username": .string("ada"), "epoch": .uint64(session)])
        device.expectAnnouncements(before + 1)
        #expect(try !isLocked)
        #expect(device.disk.entries(.unlocked).map(\.session) == [session])
        #expect(device.state.device.epoch == session && device.disk.entries(.signedOut).isEmpty)
        // The time without activity begins anew.
        send(.nothing)
        device.advance(by: .seconds(599))
        device.expectSignedIn()
        #expect(device.state.facts.lock == nil)
    }

    @Test("an app that may take passwords unlocks and gets the token of the same session")
    func unlocksByApp() throws {
        try lock()
        let answer = try device.ask(desk, VirtualDevice.signIn("ada"))
        #expect(answer["epoch"] == .uint64(session) && answer["token"] != nil)
        #expect(try !isLocked)
    }

    @Test("a prompt unlocks, whether or not it asks for the same person", arguments: [false, true])
    func unlocksByPrompt(isAgain: Bool) throws {
        try lock()
        let name = try device.begin(isAgain ? .again : Request.PromptWish())
        #expect(try device.answer(device.complete(name))["epoch"] == .uint64(session))
        #expect(try !isLocked)
    }

    @Test("a wrong password leaves the session locked, and the fifth ends it")
    func wrongPasswords() throws {
        try lock()
        for _ in 0..<4 { device.expectRefused(signIn("ada", password: "wrong"), code: .authenticationFailed) }
        // Another person's password does not count for this session.
        device.expectRefused(signIn("grace", password: "wrong"), code: .authenticationFailed)
        #expect(try isLocked)
        device.expectRefused(signIn("ada", password: "wrong"), code: .authenticationFailed)
        device.expectPerson(nil, signedOutBy: ["5 wrong passwords or PINs, while the session was locked"])
    }

    private func signIn(_ credentials: Request.Credentials) -> UInt64 {
        device.send(screen, VirtualDevice.signIn(credentials))
    }

    @Test("the PIN of the session's person unlocks, another person's does not, and five wrong ones end the session")
    func pins() throws {
        func pin(_ name: String, _ pin: String) -> UInt64 { signIn(.pin(username: name, Secret(pin))) }
        device.expectRefused(pin("ada", "1234"), .accountAlreadySignedIn)
        try lock()
        device.expectRefused(pin("ada", "4321"), code: .authenticationFailed)
        device.expectRefused(pin("grace", "1234"), .onlyPIN)
        #expect(try device.answer(pin("Ada", "1234"))["epoch"] == .uint64(session))
        #expect(try !isLocked)
        try lock()
        for _ in 0..<4 { device.expectRefused(pin("ada", "4321"), code: .authenticationFailed) }
        #expect(try isLocked)
        device.expectRefused(pin("ada", "4321"), code: .authenticationFailed)
        device.expectPerson(nil, signedOutBy: ["5 wrong passwords or PINs, while the session was locked"])
    }

    @Test("wrong passwords of several users end the session together, though none of them is throttled")
    func severalUsers() throws {
        try lock()
        let guests = [device.app("a", user: 1001), device.app("b", user: 1002)]
        for guess in 0..<5 {
            let number = device.send(guests[guess % 2], VirtualDevice.signIn("ada", password: "wrong"))
            device.expectRefused(number, code: .authenticationFailed)
        }
        device.expectSignedOut()
    }

    @Test("the badge of the session's person unlocks, and another person's badge ends the session")
    func badges() throws {
        device.badges = ["0041": "ada", "0042": "grace"]
        try lock()
        #expect(try device.answer(signIn(VirtualDevice.badge("0041")))["epoch"] == .uint64(session))
        try lock()
        device.expectRefused(signIn(VirtualDevice.badge("0042", pin: "4321")), code: .authenticationFailed)
        #expect(try isLocked)
        #expect(try device.answer(signIn(VirtualDevice.badge("0042")))["username"] == .string("grace"))
        device.expectPerson("grace", signedOutBy: ["another person signed in, while the session was locked"])
    }

    @Test("a prompt that asks for the same person ends no locked session by another person's badge")
    func otherBadgeAtPrompt() throws {
        device.badges = ["0042": "grace"]
        try lock()
        let name = try device.begin(.again)
        let badge = Request.PromptAnswer.password(VirtualDevice.badge("0042"))
        device.expectRefused(device.send(device.prompt, .completeSignIn(name: name, badge)), .otherPerson)
        #expect(try isLocked)
    }

    @Test("a cancelled sign-in that has just unlocked the session signs out")
    func cancelled() throws {
        try lock()
        let password = Request.Credentials(username: "ada", password: Secret("right"))
        let call = Request.Call.signIn(password, scopes: [], patience: .zero, label: "one")
        _ = try device.answer(device.send(screen, call))
        device.expectSignedIn()
        try device.ask(screen, .cancelSignIn(label: "one"))
        device.expectSignedOut()
    }

    @Test("a person who authenticates after the locked session's end does not begin a session by that")
    func lateUnlock() throws {
        try lock()
        device.holdsProvider = true
        let number = signIn("ada")
        try device.signOut(by: desk)
        device.letProviderAnswer()
        device.expectRefused(number, .noSuchPrompt)
        device.expectSignedOut()
    }

    // MARK: Another person

    @Test("another person's sign-in ends the locked session and begins a new one")
    func anotherPerson() throws {
        try lock()
        let number = signIn("grace")
        #expect(try device.answer(number)["username"] == .string("grace"))
        device.expectPerson("grace", signedOutBy: ["another person signed in, while the session was locked"])
        #expect(device.state.device.epoch > session)
        try device.expectOwed([session], by: desk)
    }

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
        if code != .brokerFailed { #expect(try isLocked) }
    }

    @Test("another person's sign-in waits for the cleanup of the locked session", arguments: [false, true])
    func waitsForCleanup(isPrompt: Bool) throws {
        let device = VirtualDevice(.strict)
        let screen = try Self.prepare(device)
        let desk = device.app("desk")
        let session = try device.signIn("ada", by: desk)
        try lock(device, by: screen)
        let number: UInt64
        if isPrompt {
            let name = try device.begin()
            number = device.complete(name, "grace")
        } else {
            number = device.send(screen, VirtualDevice.signIn("grace", patience: .seconds(10)))
        }
        device.expectUnanswered(number)
        device.expectSignedOut()
        #expect(device.state.screen.content.show == .cleanup, "the screen stays covered until the data is gone")
        try device.expectOwed([session], by: desk)
        try device.finish(desk)
        #expect(try device.answer(number)["username"] == .string("grace"))
        device.expectPerson("grace")
    }

    @Test("another person is refused when the cleanup takes too long")
    func cleanupTakesLong() throws {
        let device = VirtualDevice(.strict)
        let screen = try Self.prepare(device)
        try device.signIn("ada", by: device.app("desk"))
        try lock(device, by: screen)
        let number = device.send(screen, VirtualDevice.signIn("grace", patience: .seconds(10)))
        device.advance(by: .seconds(11))
        device.expectRefused(number, code: .cleanupPending)
        device.expectSignedOut()
    }

    // MARK: The end of a locked session

    @Test("a locked session ends after the locked time, and input does not move this end")
    func lockedTime() throws {
        try lock()
        stayLocked(for: 880)
        try device.ask(desk, .activity)
        device.expectSignedIn()
        stayLocked(for: 30)
        device.expectPerson(nil, signedOutBy: ["locked for 900 s, while the session was locked"])
    }

    @Test("the longest session ends a locked session as well")
    func longestSession() throws {
        device.configure { $0.schedule.longest = .seconds(700) }
        try lock()
        stayLocked(for: 110)
        device.expectPerson(nil, signedOutBy: ["longest session of 700 s, while the session was locked"])
    }

    @Test("a screen program that restarts within 10 seconds keeps the session locked; otherwise it ends")
    func screenIsLost() throws {
        try lock()
        device.quit(screen)
        device.advance(by: .seconds(9))
        device.expectSignedIn()
        let next = device.app(BrokerProtocol.screenIdentifier, executable: "/usr/bin/screen")
        #expect(try content(send(.nothing, known: 0, by: next)).show == .lock)
        send(.lock, by: next)
        device.advance(by: .seconds(9))
        device.expectSignedIn()
        device.quit(next)
        device.expectSignedOut(after: .seconds(11))
        #expect(causes == ["no screen program shows the lock, while the session was locked"])
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

    @Test("a restarted broker begins with a locked session, which ends without a screen program")
    func restart() throws {
        device.restart(afterPowerCut: false)
        #expect(try device.ask(device.administrator, .deviceInformation)["locked"] == .boolean(true))
        device.expectSignedIn(after: .seconds(9))
        device.expectSignedOut(after: .seconds(2))
    }

    @Test("a session stays locked over a restart even if inactivity has no limit any more")
    func restartWithoutTime() throws {
        try lock()
        device.configure { $0.schedule.inactivity = nil }
        #expect(try isLocked)
        device.restart(afterPowerCut: false)
        #expect(device.state.facts.isLocked)
    }

    @Test("a restarted broker whose configuration does not lock keeps the session open")
    func restartWithoutLock() {
        device.configure { $0.schedule.locked = nil }
        device.restart(afterPowerCut: false)
        device.expectSignedIn(after: .seconds(20))
        #expect(device.state.facts.lock == nil)
    }

    @Test("if sessions are no longer locked since the broker ended, its next start ends the session")
    func restartAfterLock() {
        device.configure { ($0.schedule.locked, $0.lockedBefore) = (nil, true) }
        device.restart(afterPowerCut: false)
        device.expectSignedOut()
    }

    @Test("while a restarted broker has no valid configuration, the screen keeps its lock")
    func restartWithoutConfiguration() {
        device.configure { $0.isConfigured = false }
        device.restart(afterPowerCut: false)
        device.expectSignedIn()
        #expect(device.state.screenContent.show == .lock)
    }

    @Test("a sign-in of another person that took too long to check ends no locked session")
    func anotherPersonIsLate() throws {
        try lock()
        device.holdsProvider = true
        let number = signIn("grace")
        stayLocked(for: 30)
        device.letProviderAnswer()
        device.expectRefused(number, .requestAbandoned)
        device.expectPerson("ada", signedOutBy: [])
    }

    @Test("after a restart of the broker the screen program keeps the session, and its person unlocks it")
    func restartWithScreen() throws {
        device.restart(afterPowerCut: false)
        device.reconnect(screen)
        device.reconnect(desk)
        #expect(try content(send(.lock, known: 1000)).show == .lock)
        send(.lock)
        device.advance(by: .seconds(9))
        #expect(try device.answer(signIn("ada"))["epoch"] == .uint64(session))
        #expect(try !isLocked)
    }

    @Test("a configuration that does not lock ends a locked session")
    func configuration() throws {
        try lock()
        device.configure { $0.schedule.locked = nil }
        device.expectPerson(nil, signedOutBy: ["the managed configuration, while the session was locked"])
    }

    @Test("a device that wakes after the locked time ends the session, and otherwise locks it", arguments: [800, 1600])
    func sleeps(seconds: Int) {
        send(.nothing)
        device.sleep(for: .seconds(seconds))
        device.feed(.time)
        #expect(device.state.facts.isLocked == (seconds == 800))
        #expect((device.state.device.account == nil) == (seconds == 1600))
    }

    // MARK: Connections

    @Test("a request that waits is refused when the program's manifest is removed, and the locked session ends")
    func manifestIsRemoved() throws {
        try lock()
        let waiting = send(.lock)
        device.use()
        device.expectRefused(waiting, code: .appNotEligible)
        device.expectSignedOut(after: .seconds(11))
    }

    @Test("the newest connection is the screen, until it ends")
    func newest() throws {
        let first = send(.nothing)
        let other = device.app(BrokerProtocol.screenIdentifier, executable: "/usr/bin/screen")
        let second = send(.nothing, by: other)
        device.expectRefused(first, .requestAbandoned)
        device.expectRefused(send(.nothing), .otherScreen)
        device.expectRefused(send(.nothing), code: .notPermitted)
        device.expectUnanswered(second)
        device.quit(other)
        device.expectUnanswered(send(.nothing))
    }

    @Test("a connection has one request at a time, and a response comes after its time at the latest")
    func oneRequest() throws {
        let first = send(.nothing)
        let second = send(.nothing, patience: .seconds(20))
        device.expectRefused(first, .requestAbandoned)
        device.advance(by: .seconds(19))
        device.expectUnanswered(second)
        device.advance(by: .seconds(1))
        #expect(try content(second).show == .nothing)
    }
}
