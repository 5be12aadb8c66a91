import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Signing in at a prompt")
struct PromptTests {
    private let device = VirtualDevice()

    @Test("a prompt signs a user in but gets no account or token and holds no data")
    func password() throws {
        let begun = try device.ask(device.prompt, .beginSignIn(Request.PromptWish()))
        #expect(begun["method"] == .string("password"))
        #expect(begun["expiresAt"] == .double(device.now.wall.timeIntervalSince1970 + 600))
        let name = try #require(begun["request"]?.stringValue)
        let answer = try device.answer(device.complete(name))
        #expect(answer == ["username": .string("ada"), "epoch": .uint64(2)])
        device.expectPerson("ada")
        #expect(device.disk.parts[2] == nil && device.disk.sessions[2] != nil)
        device.expectRefused(device.complete(name), code: .loginExpired)
        // The app that started the prompt continues by itself.
        let app = device.app("app")
        try device.expectAccount("ada", for: app)
        try device.expectToken(for: "ada", ["s"], by: app)
    }

    @Test("a sign-in can be retried after a failed write or, throttled, a wrong password")
    func retries() throws {
        let name = try device.begin()
        device.diskMode = .fails("full")
        device.expectRefused(device.complete(name), code: .brokerFailed)
        device.expectSignedOut()
        device.diskMode = .commits
        device.advance(by: .seconds(2))
        for _ in 0..<5 { device.expectRefused(device.complete(name, password: "wrong"), code: .authenticationFailed) }
        device.expectRefused(device.complete(name), code: .tooManyAttempts)
        device.advance(by: .seconds(31))
        device.complete(name)
        device.expectSignedIn()
    }

    @Test("a sign-in belongs to the connection that began it, and ends with it at any time")
    func connections() throws {
        let other = device.app("org.example.prompt")
        let name = try device.begin()
        device.expectRefused(device.complete(name, by: other), .noSuchPrompt)
        try device.ask(other, .cancelSignIn(label: name))
        #expect(device.state.signIns.prompts.contains { $0.prompt?.name == name })
        device.quit(device.prompt)
        #expect(device.state.signIns.prompts.isEmpty)
        // The prompt disconnects during the password check.
        let second = try device.begin(by: other)
        device.holdsProvider = true
        device.complete(second, by: other)
        device.quit(other)
        device.letProviderAnswer()
        device.expectSignedOut()
    }

    @Test("an app has the signed-in user authenticate again, and no other user can answer")
    func again() throws {
        let app = device.app("app")
        try device.signIn("ada", by: app)
        let epoch = device.state.device.epoch
        let name = try device.begin(.again)
        let checks = device.passwordChecks
        device.expectRefused(device.complete(name, "grace"), .otherPerson)
        device.expectPasswordChecks(checks)
        device.expectRefused(device.complete(name, password: "wrong"), code: .authenticationFailed)
        // Names cannot be tried out.
        for _ in 0..<5 { device.expectRefused(device.complete(name, "eve"), .otherPerson) }
        device.expectRefused(device.complete(name, "eve"), code: .tooManyAttempts)
        #expect(try device.answer(device.complete(name)) == ["username": .string("ada"), "epoch": .uint64(epoch)])
        device.expectEpoch(epoch)
        // The session can end while the user is asked.
        let late = try device.begin(.again)
        try device.signOut(by: app)
        device.expectRefused(device.complete(late), .noSuchPrompt)
        // Without a session it is a sign-in like any other.
        device.complete(try device.begin(.again), "grace")
        device.expectPerson("grace")
    }

    @Test("a token request with a maximum age is refused if the authentication is older")
    func maximumAge() throws {
        let app = device.app("app")
        try device.signIn("ada", by: app)
        let identifier = Account.named("ada").identifier
        func request(by app: VirtualDevice.App) -> UInt64 {
            let age = Duration.seconds(60)
            return device.send(
                app,
                .acquireToken(identifier: identifier, scopes: ["s"], refresh: false, session: nil, maximumAge: age)
            )
        }
        device.advance(by: .seconds(60))
        #expect(try device.answer(request(by: app))["token"] != nil)
        device.advance(by: .seconds(1))
        device.expectRefused(request(by: app), .authenticatedTooEarly)
        device.complete(try device.begin(.again))
        #expect(try device.answer(request(by: app))["token"] != nil)
        device.restart()
        device.expectRefused(request(by: device.app("app")), .authenticatedTooEarly)
    }

    @Test("the device's own directory meets no claims")
    func noClaims() throws {
        var wish = Request.PromptWish()
        wish.claims = "{}"
        device.expectRefused(device.send(device.prompt, .beginSignIn(wish)), .noClaims)
    }

    @Test("two prompts per user and eight in all may be open, each for 600 s")
    func limits() throws {
        for user: UInt32 in 1000...1003 {
            let prompt = device.app("prompt", user: user)
            for _ in 0..<2 { _ = try device.begin(by: prompt) }
            let third = device.send(prompt, .beginSignIn(Request.PromptWish()))
            device.expectRefused(third, .tooManyPrompts)
        }
        let late = device.app("prompt", user: 2000)
        device.expectRefused(device.send(late, .beginSignIn(Request.PromptWish())), .tooManyPrompts)
        device.advance(by: .seconds(600))
        #expect(device.state.signIns.prompts.isEmpty)
        _ = try device.begin(by: late)
    }

    @Test("a pending cleanup delays the start and is checked again at completion")
    func held() throws {
        device.configure { $0.cleanup = .strict }
        let desk = device.app("desk")
        try device.signIn("ada", by: desk)
        try device.signOut(by: desk)
        var wish = Request.PromptWish()
        device.expectRefused(device.send(device.prompt, .beginSignIn(wish)), code: .cleanupPending)
        wish.patience = .seconds(60)
        let waiting = device.send(device.prompt, .beginSignIn(wish))
        device.expectUnanswered(waiting)
        try device.finish(desk)
        let name = try #require(try device.answer(waiting)["request"]?.stringValue)
        try device.signIn("grace", by: desk)
        device.expectRefused(device.complete(name), .accountAlreadySignedIn)
        try device.signOut(by: desk)
        device.expectRefused(device.complete(name), code: .cleanupPending)
        try device.finish(desk)
        device.complete(name)
        device.expectPerson("ada")
    }

    @Test("a cancellation ends the sign-in even after it has completed")
    func cancelled() throws {
        let name = try device.begin()
        try device.ask(device.prompt, .cancelSignIn(label: name))
        device.expectRefused(device.complete(name), .noSuchPrompt)
        let second = try device.begin()
        _ = try device.answer(device.complete(second))
        try device.ask(device.prompt, .cancelSignIn(label: second))
        device.expectSignedOut()
    }

    @Test("without password sign-in apps are referred to the prompt, which still works")
    func noPasswords() throws {
        device.configure { $0.passwordSignIn = false }
        let app = device.app("app")
        device.expectRefused(device.send(app, VirtualDevice.signIn("ada")), code: .interactionRequired)
        device.expectPasswordChecks(0)
        // The app cannot get around this by beginning a prompt itself.
        #expect(throws: Refusal.otherMethod([.password])) { try device.begin(by: app) }
        let prompt = device.app(BrokerProtocol.promptIdentifier)
        device.complete(try device.begin(by: prompt), by: prompt)
        device.expectSignedIn()
    }

    @Test("a prompt takes a badge after a wrong PIN, and only the user's if it asks again")
    func badge() throws {
        device.badges = ["0041": "ada", "0042": "grace"]
        func methods() throws -> [String]? {
            try device.ask(device.prompt, .deviceInformation)["signInMethods"]?.stringsValue
        }
        func complete(_ name: String, _ number: String, _ pin: String = "1234") -> UInt64 {
            let badge = VirtualDevice.badge(number, pin: pin)
            return device.send(device.prompt, .completeSignIn(name: name, .password(badge)))
        }
        device.feed(.badges(true))
        #expect(try methods() == ["password", "badge"])
        let first = try device.begin()
        device.expectRefused(complete(first, "0041", "4321"), code: .authenticationFailed)
        device.expectRefused(complete(first, "0043"), code: .authenticationFailed)
        try device.expectAnswer(complete(first, "0041"), "username", .string("ada"))
        let again = try device.begin(.again)
        device.expectRefused(complete(again, "0042"), .otherPerson)
        device.expectPerson("ada")
        try device.expectAnswer(complete(again, "0041"), "username", .string("ada"))
        device.feed(.badges(false))
        #expect(try methods() == ["password"])
    }

    @Test("the broker's own prompt needs a manifest but no cleanup if cleanup is enforced")
    func manifest() throws {
        let identity = AppManifest.Identity(executable: "/usr/bin/shared-device-sign-in", user: 1000)
        let manifest = AppManifest(identifier: BrokerProtocol.promptIdentifier, identity: identity)
        let device = VirtualDevice(CleanupPolicy(.enforced, timeout: .seconds(60)), requiresProof: true)
        let prompt = device.app(BrokerProtocol.promptIdentifier, executable: "/usr/bin/shared-device-sign-in")
        let refused = device.send(prompt, .beginSignIn(Request.PromptWish()))
        device.expectRefused(refused, code: .appNotEligible)
        device.use(manifest)
        device.complete(try device.begin(by: prompt), by: prompt)
        device.expectSignedIn()
        #expect(device.state.eligibility.warnings.isEmpty)
    }
}

extension Request.PromptWish {
    /// The signed-in person is asked again.
    static var again: Request.PromptWish {
        var wish = Request.PromptWish()
        wish.asksAgain = true
        return wish
    }
}

extension VirtualDevice {
    /// Begins a sign-in at a prompt. Returns the name of the request.
    func begin(_ wish: Request.PromptWish = Request.PromptWish(), by prompt: App? = nil) throws -> String {
        let fields = try ask(prompt ?? self.prompt, .beginSignIn(wish))
        return try #require(fields["request"]?.stringValue)
    }

    /// Sends a user's password to complete a sign-in. Returns the request's number.
    @discardableResult
    func complete(
        _ name: String,
        _ username: String = "ada",
        password: String = "right",
        by prompt: App? = nil
    ) -> UInt64 {
        let credentials = SignInRequest(username: username, password: Secret(password))
        return send(prompt ?? self.prompt, .completeSignIn(name: name, .password(credentials)))
    }
}
