import Basics
import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Limits per connection, per user and for all callers")
struct AdmissionTests {
    private let device = VirtualDevice()
    private let desk: VirtualDevice.App
    /// An app of another user.
    private let flooder: VirtualDevice.App

    init() {
        desk = device.app("desk")
        flooder = device.app("a", user: 65534)
    }

    private func signIn(_ name: String, _ password: String = "right", label: String? = nil) -> Request.Call {
        VirtualDevice.signIn(name, password: password, label: label)
    }

    // MARK: Passwords

    // S5
    @Test("guessing passwords locks out the guesser's user only, also by changed names")
    func lockout() throws {
        for _ in 0..<100 { device.send(flooder, signIn("ada", "wrong")) }
        device.expectRefused(device.send(flooder, signIn("ada")), code: .tooManyAttempts)
        device.expectPasswordChecks(5)
        try device.signIn("ada", by: desk)
        // The throttle ignores the case of a name. All overlong names are one name for it.
        try device.signOut(by: desk)
        for number in 0..<5 { device.send(desk, signIn(number.isMultiple(of: 2) ? "ada" : "ADA", "wrong")) }
        device.expectRefused(device.send(desk, signIn("ada")), code: .tooManyAttempts)
        device.advance(by: .seconds(30))
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        let checks = device.passwordChecks
        for number in 0..<20 { device.send(desk, signIn(String(repeating: "a", count: 2000 + number), "wrong")) }
        device.expectPasswordChecks(checks + 5)
    }

    // S5
    @Test("guessing the PIN of a badge locks out this badge for the guesser's user only")
    func badgeLockout() throws {
        device.badges = ["0041": "ada", "0042": "grace"]
        func signIn(_ number: String, _ pin: String) -> Request.Call {
            VirtualDevice.signIn(VirtualDevice.badge(number, pin: pin))
        }
        for number in 0..<20 { device.send(flooder, signIn("0041", "000\(number)")) }
        device.expectRefused(device.send(flooder, signIn("0041", "1234")), code: .tooManyAttempts)
        device.expectPasswordChecks(5)
        _ = try device.ask(flooder, signIn("0042", "1234"))
        try device.signOut(by: flooder)
        _ = try device.ask(desk, signIn("0041", "1234"))
        #expect(device.state.device.account == .named("ada"))
    }

    @Test("a PIN without a badge is checked only for the user of a locked session")
    func onlyPIN() throws {
        let credentials = SignInRequest.pin(username: "ADA", Secret("1234"))
        device.expectRefused(device.send(desk, VirtualDevice.signIn(credentials)), .onlyPIN)
        try device.signIn("ada", by: desk)
        device.expectRefused(device.send(desk, .join(credentials)), code: .notPermitted)
        device.expectPasswordChecks(1)
        #expect(throws: Refusal.onlyPIN) { try SignIns.checkKind(credentials, lockedFor: nil) }
        #expect(throws: Refusal.onlyPIN) { try SignIns.checkKind(credentials, lockedFor: .named("grace")) }
        #expect(throws: Never.self) { try SignIns.checkKind(credentials, lockedFor: .named("ada")) }
        #expect(throws: Never.self) { try SignIns.checkKind(VirtualDevice.badge("0041"), lockedFor: nil) }
    }

    // S5
    @Test("a caller that may not sign in never learns if a password is right", arguments: ["right", "wrong"])
    func oracle(password: String) {
        device.configure { $0.requiresEnrolment = true }
        let credentials = SignInRequest(username: "ada", password: Secret(password))
        device.expectRefused(device.send(flooder, signIn("ada", password)), code: .appNotEligible)
        device.expectRefused(device.send(flooder, .join(credentials)), .notPermitted)
        device.expectRefused(device.send(flooder, .leave(credentials)), .notPermitted)
        device.configure { ($0.requiresEnrolment, $0.requiresJoin) = (false, true) }
        device.expectRefused(device.send(flooder, signIn("ada", password)), .deviceNotJoined)
        device.configure { $0.mode = .personal }
        device.expectRefused(device.send(flooder, signIn("ada", password)), .notSharedDevice)
        device.expectPasswordChecks(0)
    }

    // S1
    @Test("password checks in flight are limited per user")
    func checksAtOnce() {
        device.holdsProvider = true
        let requests = (0..<100).map { device.send(flooder, signIn("user\($0)")) }
        device.expectPasswordChecks(SignIns.checksOfUser)
        #expect(requests.dropFirst(SignIns.checksOfUser).allSatisfy { device.refusal($0) == .tooManyQuestions })
        device.expectUnanswered(device.send(desk, signIn("ada")))
        device.expectPasswordChecks(SignIns.checksOfUser + 1)
    }

    @Test("a caller that disconnects is not signed in, and a wrong password still counts")
    func hangingUp() throws {
        func guess(_ name: String, by user: UInt32) {
            device.holdsProvider = true
            let guesser = device.app("a", user: user)
            device.send(guesser, signIn(name, "wrong"))
            device.quit(guesser)
        }
        for number in 0..<100 { guess("user\(number)", by: 65534) }
        device.expectPasswordChecks(PasswordThrottle.allowedOfUser)
        device.letProviderAnswer()
        for _ in 0..<10 {
            guess("ada", by: 65535)
            device.letProviderAnswer()
        }
        device.expectPasswordChecks(PasswordThrottle.allowedOfUser + 5)
        device.expectRefused(device.send(device.app("a", user: 65535), signIn("ada")), code: .tooManyAttempts)
        // A right password neither locks out nor signs in.
        let checks = device.passwordChecks
        for _ in 0..<20 {
            device.holdsProvider = true
            let app = device.app("desk")
            let request = device.send(app, signIn("ada"))
            device.quit(app)
            device.expectRefused(request, .requestAbandoned)
            device.letProviderAnswer()
        }
        device.expectPasswordChecks(checks + 20)
        device.expectSignedOut()
        try device.signIn("ada", by: desk)
    }

    // MARK: Configuration

    // S7
    @Test("a device that never had a valid configuration refuses sign-ins and says why")
    func neverConfigured() throws {
        device.use(AppManifest(identifier: "org.example.app", identity: .init(executable: "/usr/bin/app")))
        let app = device.app(nil)
        try device.signIn("ada", by: app)
        device.configure {
            $0 = DevicePolicy()
            $0.isConfigured = false
            $0.cleanup = .strict
            $0.problem = "managed.json: broken"
        }
        device.expectSignedIn("a typing error signs no account out")
        let information = try device.ask(app, .deviceInformation)
        #expect(information["configurationProblem"]?.stringValue == "managed.json: broken")
        #expect(information["mode"]?.stringValue == "shared")
        try device.signOut(by: app)
        try device.finish(app)
        let checks = device.passwordChecks
        device.expectRefused(device.send(app, VirtualDevice.signIn("ada")), .neverConfigured)
        device.expectPasswordChecks(checks)
        // Without a configuration the app lists are unknown, so an app needs a manifest.
        device.expectRefused(device.send(device.app("other"), .currentAccount), code: .appNotEligible)
    }

    @Test(
        "a sign-in whose caller gave up is dropped when the disk or the provider responds",
        arguments: [true, false],
        [19, 25]
    )
    func callerHasGivenUp(waitsForDisk: Bool, seconds: Int) throws {
        if waitsForDisk { device.diskMode = .holds } else { device.holdsProvider = true }
        let request = device.send(desk, signIn("ada", label: "x"))
        device.advance(by: .seconds(seconds))
        if waitsForDisk { device.resumeDisk() } else { device.letProviderAnswer() }
        guard seconds > 20 else { return device.expectSignedIn() }
        device.expectRefused(request, .requestAbandoned)
        device.expectSignedOutOnDisk()
        try device.signIn("grace", by: desk)
    }

    // MARK: Cancelling

    // S12
    @Test("a caller can cancel only its own sign-in, also late")
    func cancel() throws {
        let other = device.app("other")
        device.holdsProvider = true
        let request = device.send(desk, signIn("ada", label: "x"))
        for number in 0..<1000 { device.send(other, .cancelSignIn(label: number == 0 ? "x" : "\(number)")) }
        device.expectUnanswered(request)
        try device.ask(desk, .cancelSignIn(label: "x"))
        device.expectRefused(request, .requestAbandoned)
        device.letProviderAnswer()
        device.expectSignedOut()
        // A late cancellation signs out its own session, never a later one.
        try device.ask(desk, signIn("ada", label: "x"))
        for label in ["x", "y"] { try device.ask(other, .cancelSignIn(label: label)) }
        try device.ask(desk, .cancelSignIn(label: "y"))
        device.expectSignedIn()
        try device.ask(desk, .cancelSignIn(label: "x"))
        device.expectSignedOut()
        try device.signIn("grace", by: desk)
        try device.ask(desk, .cancelSignIn(label: "x"))
        device.expectSignedIn()
    }

    @Test("a sign-in that waits for a cleanup round or for the disk can be cancelled")
    func cancelWaiting() throws {
        device.configure { $0.cleanup = .strict }
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        let waiting = device.send(desk, VirtualDevice.signIn("grace", patience: .seconds(60), label: "x"))
        try device.ask(desk, .cancelSignIn(label: "x"))
        device.expectRefused(waiting, .requestAbandoned)
        try device.finish(desk)
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        let writing = device.send(desk, signIn("grace", label: "y"))
        try device.ask(desk, .cancelSignIn(label: "y"))
        device.expectRefused(writing, .requestAbandoned)
        device.resumeDisk()
        device.expectSignedOutOnDisk()
    }

    // MARK: Names

    // S14
    @Test("the names of a connection and the apps of a user are limited")
    func names() throws {
        var app = device.app("app0")
        for number in 0..<BrokerState.namesOfConnection {
            app.name = "app\(number)"
            _ = try device.session(for: app)
        }
        app.name = "one more"
        device.expectRefused(device.send(app, .currentAccount), .tooManyNames)
        app.name = "app0"
        _ = try device.session(for: app)
        // One user's made-up apps do not use up the other users' places in a session.
        try device.signIn("ada", by: desk)
        let answers = (0..<300).map { device.send(device.app("app\($0)", user: 65534), .currentAccount) }
        #expect(answers.count { device.refusal($0) == nil } == BrokerState.appsOfUser)
        device.expectRefused(answers[299], .tooManyNames)
        #expect(try device.session(for: device.app("a")).session.account != nil)
        // An unknown connection has no name at all.
        let request = device.send(VirtualDevice.App(connection: ":9.9", name: nil), signIn("ada"))
        device.expectRefused(request, .requestAbandoned)
    }

    // S14
    @Test("a name is forgotten after a month without cleanup, in memory and on the disk")
    func oldNames() throws {
        let a = device.app("a")
        let session = try device.signIn("ada", by: desk)
        _ = try device.session(for: a)
        try device.signOut(by: desk)
        // No app runs, because the broker would remind it every minute.
        for app in [a, desk] { device.quit(app) }
        device.advance(by: .seconds(31 * 24 * 3600))
        try device.signIn("grace", by: device.app("desk"))
        let owed = try device.session(for: device.app("a")).owed
        #expect(owed.map(\.account?.identifier) == ["forgotten.\(session)"])
        #expect(device.disk.sessions[session]?.account == nil)
    }

    // MARK: Tokens

    // S15
    @Test("a disabled account gets no token after a few seconds, cached or not")
    func disabledAccount() throws {
        try device.signIn("ada", by: desk)
        _ = try device.token(for: "ada", by: desk)
        device.tokenError = .accountDisabled
        device.advance(by: .seconds(6))
        device.expectRefused(device.send(desk, device.acquireToken(for: "ada")), code: .authenticationFailed)
        device.expectRefused(device.send(device.app("a"), device.acquireToken(for: "ada")), code: .authenticationFailed)
    }

    // MARK: The log

    // S2
    @Test("excess refusals become one entry a minute, with long names cut to one line")
    func refusals() {
        let app = device.app("a\n" + String(repeating: "b", count: 9999))
        for _ in 0..<500 { device.send(app, .signOut(identifier: "ada.t", session: nil)) }
        #expect(device.journal.count { $0.event == .refused } == 10)
        device.advance(by: .seconds(61))
        let entries = device.disk.entries(.refused)
        #expect(entries.count == 11 && entries.last?.detail?.hasSuffix("… and 490 more") == true)
        #expect(entries.allSatisfy { ($0.app?.unicodeScalars.count ?? 0) < 250 && $0.app?.contains("\n") == false })
    }

    // S2
    @Test("an app that reports and reconnects without end adds a bounded number of entries")
    func reportsForEver() throws {
        let session = try device.signIn("ada", by: desk)
        let a = device.app("a")
        _ = try device.session(for: a)
        try device.signOut(by: desk)
        device.advance(by: .seconds(1))
        let before = device.disk.log.count
        for number in 0..<500 {
            for progress in [CleanupReport.Progress.begun, .failed] {
                device.send(a, .report(progress, session: session, detail: "\(number)"))
            }
            let again = device.app("a")
            _ = try device.owed(by: again)
            device.quit(again)
        }
        device.advance(by: .milliseconds(300))
        #expect(device.disk.log.count - before <= 200)
        device.advance(by: .seconds(61))
        for _ in 0..<10 {
            for _ in 0..<60 {
                device.send(a, .report(.begun, session: session, detail: "again"))
                device.send(a, .report(.failed, session: session, detail: "again"))
            }
            device.advance(by: .seconds(61))
        }
        let app = VirtualDevice.key("a")
        let entries = device.disk.log.filter { $0.app == app && [.begun, .failed].contains($0.event) }
        #expect(entries.count <= LogQuota.entriesOfApp)
        #expect(entries.last?.detail?.hasPrefix("again; the last entry of this app in this session") == true)
        // An entry that settles the debt is logged beyond the limit.
        for one in [a, desk] { device.send(one, .report(.finished, session: session, detail: nil)) }
        device.advance(by: .seconds(1))
        #expect(device.disk.entries(.finished).contains { $0.app == app })
        #expect(device.disk.entries(.completed).count == 1)
    }

    // S2
    @Test("a disk that fails for long does not let the pending log grow without bound")
    func failingDisk() {
        device.diskMode = .fails("no space")
        for number in 0..<5200 {
            let app = device.app("a\(number % 40)", user: UInt32(number / 40))
            device.send(app, .signOut(identifier: "x", session: nil))
            device.quit(app)
            if number.isMultiple(of: 200) { device.advance(by: .seconds(1)) }
        }
        device.advance(by: .seconds(1))
        #expect(device.lastBatch?.log.count == BrokerState.longestLog)
        #expect(device.notes.count { $0 == "not on the disk yet" } == 1)
    }
}
