import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Signing in with the organisation's provider")
struct OrganisationTests {
    private let device = VirtualDevice()

    init() throws { try device.useOrganisation() }

    @Test("the page's response signs in, stores the record and gives the prompt no token")
    func page() throws {
        var wish = VirtualDevice.pageWish
        wish.loginHint = "ada"
        let begun = try device.ask(device.prompt, .beginSignIn(wish))
        #expect(begun["method"] == .string("browser"))
        #expect(begun["authorizationURL"] == .string("https://login.example/page"))
        #expect(device.provider.starts == [SignInStart(.browser, redirect: wish.redirect, loginHint: "ada")])
        let name = try #require(begun["request"]?.stringValue)
        let answer = try device.answer(device.sendPage(name))
        #expect(answer == ["username": .string("ada"), "epoch": .uint64(device.state.device.epoch)])
        let batch = try #require(device.batches.first { $0.provider != nil })
        #expect(batch.device?.account?.username == "ada" && batch.provider??.record?.person.subject == "ada")
        #expect(device.disk.providerOwner == device.state.device && device.disk.parts.isEmpty)
    }

    @Test("the own directory's passwords neither sign in nor join the device")
    func password() throws {
        let refusal = device.refusalOfSignIn("ada", by: device.till)
        #expect(refusal?.code == .interactionRequired)
        #expect(refusal?.description.contains("https://login.example's own page") == true)
        device.expectRefused(device.complete(try device.beginPage()), code: .invalidRequest)
        device.administrators = ["ada"]
        let credentials = SignInRequest(username: "ada", password: Secret("right"))
        device.expectRefused(device.send(device.administrator, .join(credentials)), .noJoinByPage)
        device.expectPasswordChecks(0)
    }

    @Test("a device-code sign-in is polled until it completes or the patience ends")
    func deviceCode() throws {
        let prompt = device.prompt
        let begun = try device.ask(prompt, .beginSignIn(Request.PromptWish()))
        #expect(begun["method"] == .string("deviceCode") && begun["userCode"] == .string("ABCD"))
        let name = try #require(begun["request"]?.stringValue)
        let first = device.send(prompt, .awaitSignIn(name: name, patience: .seconds(5)))
        device.expectUnanswered(first)
        device.expectRefused(device.send(prompt, .awaitSignIn(name: name, patience: .zero)), .promptIsAnswered)
        device.advance(by: .seconds(6))
        try device.expectAnswer(first, "pending", .boolean(true))
        #expect((3...5).contains(device.provider.polls))
        let second = device.send(prompt, .awaitSignIn(name: name, patience: .seconds(60)))
        device.provider.polled = .success("ada")
        device.advance(by: .seconds(3))
        try device.expectAnswer(second, "username", .string("ada"))
    }

    @Test("a failed or abandoned sign-in leaves the device signed out")
    func failures() throws {
        device.provider.error = .noNetwork
        let begun = device.send(device.prompt, .beginSignIn(Request.PromptWish()))
        device.expectRefused(begun, code: .providerUnavailable)
        device.provider.error = nil
        device.expectRefused(device.sendPage(try device.beginPage(), "cancel"), code: .userCanceled)
        #expect(device.state.signIns.prompts.isEmpty)
        // The exchange of the code is in flight when the sign-in is cancelled, or its prompt disconnects.
        let name = try device.beginPage()
        device.holdsProvider = true
        let number = device.sendPage(name, "grace")
        try device.ask(device.prompt, .cancelSignIn(label: name))
        device.expectRefused(number, .requestAbandoned)
        device.letProviderAnswer()
        device.expectSignedOut()
        let next = try device.beginPage()
        device.holdsProvider = true
        device.sendPage(next)
        device.quit(device.prompt)
        device.letProviderAnswer()
        device.expectSignedOut()
        #expect(device.provider.cancelled.count == 2)
        device.expectEnds(of: ["grace", "ada"])
    }

    @Test("a wrong tenant and a second user are refused, and their tokens revoked")
    func refusedPersons() throws {
        device.configure { $0.tenantIdentifier = "contoso" }
        device.expectRefused(device.sendPage(try device.beginPage(), "eve@other"), code: .tenantMismatch)
        let (one, two) = (try device.beginPage(), try device.beginPage())
        device.holdsProvider = true
        let requests = [device.sendPage(one, "ada@contoso"), device.sendPage(two, "grace@contoso")]
        device.letProviderAnswer()
        try device.expectAnswer(requests[0], "username", .string("ada@contoso"))
        device.expectRefused(requests[1], code: .accountAlreadySignedIn)
        device.expectEnds(of: ["eve@other", "grace@contoso"])
        device.advance(by: .seconds(1))
        #expect(device.disk.outbox.isEmpty)
    }

    @Test("another identity setting signs out; another check interval or scope does not")
    func configuration() throws {
        try device.signInAtProvider()
        try device.useOrganisation(", \"remoteCheckInterval\": 60")
        device.expectSignedIn()
        try device.useOrganisation(", \"oidcScopes\": [\"openid\"]")
        device.expectSignedIn()
        device.configure {
            $0.identity = .embedded
            $0.organisation = nil
        }
        device.expectSignedOut()
        device.expectEnds(1)
        #expect(device.disk.provider == nil)
    }

    // MARK: Scopes of the sign-in

    private func begin(_ scopes: Set<String>) -> UInt64 {
        var wish = Request.PromptWish()
        wish.scopes = scopes
        return device.send(device.prompt, .beginSignIn(wish))
    }

    @Test("the prompt's scopes reach the provider, except scopes that no manifest has")
    func asked() {
        _ = begin(["orders", "mail"])
        #expect(device.provider.starts.last?.scopes == ["orders"])
        _ = begin([])
        #expect(device.provider.starts.last?.scopes == [])
    }

    @Test("refused scopes are blamed on the prompt if it named any, else on configuration", arguments: [true, false])
    func refused(atOnce: Bool) throws {
        let error = IdentityError(.invalidScope, "refuses the scopes")
        func refusal(_ scopes: Set<String>) throws -> Refusal? {
            device.provider.error = atOnce ? error : nil
            device.provider.polled = .failure(error)
            let begun = begin(scopes)
            if atOnce { return device.refusal(begun) }
            let name = try #require(try device.answer(begun)["request"]?.stringValue)
            return device.refusal(device.send(device.prompt, .awaitSignIn(name: name, patience: .zero)))
        }
        #expect(try refusal(["orders"]) == Refusal(.scopesDeclined, error.description))
        #expect(try refusal([]) == Refusal(.providerMisconfigured, error.description))
        #expect(device.state.signIns.prompts.isEmpty)
    }

    // MARK: Apps that may begin a reauthentication

    /// Grace is signed in and the provider requires her to reauthenticate. The till owes the cleanup of Ada's data.
    private func owe() throws {
        try device.signInAtProvider()
        _ = try device.session(for: device.till)
        try device.signOut(by: device.prompt)
        try device.signInAtProvider("grace")
        try device.report(.of(.reauthenticate, "grace", at: device.now.wall))
    }

    /// From now on an app that owes a cleanup does not learn which account is signed in.
    private func becomeStrict() { device.configure { $0.cleanup = .strict } }

    // The page's address would tell the app which account is signed in.
    @Test("an app in debt may not begin a reauthentication under a strict policy")
    func beginInDebt() throws {
        try owe()
        becomeStrict()
        let before = device.provider.starts.count
        #expect(throws: Refusal.cleanupRequired) { try device.beginPage(device.till) }
        #expect(device.provider.starts.count == before)
        let page = try device.beginPage()
        #expect(device.provider.starts.last?.loginHint == "grace")
        try device.expectAnswer(device.sendPage(page, "grace"), "username", .string("grace"))
    }

    @Test("claims make the user authenticate again, and the session gets the new sign-in")
    func againForClaims() throws {
        try device.signInAtProvider("ada")
        let token = try device.token(for: "ada", ["orders"], by: device.till)
        let (epoch, old) = (device.state.device.epoch, device.state.providerRecord)
        var wish = VirtualDevice.pageWish
        (wish.asksAgain, wish.loginHint) = (true, "ada")
        wish.claims = #"{"access_token":{"acrs":{"value":"c1"}}}"#
        device.provider.session = "second"
        device.expectRefused(device.sendPage(try device.begin(wish), "grace"), .otherPerson)
        #expect(device.state.providerRecord == old)
        try device.expectAnswer(device.sendPage(try device.begin(wish), "ada"), "epoch", .uint64(epoch))
        let start = device.provider.starts.last
        #expect(start?.claims == wish.claims && start?.only?.subject == "ada" && start?.loginHint == "ada")
        #expect(device.state.providerRecord?.session == "second")
        #expect(device.provider.revocations.map(\.session) == [old?.session])
        #expect(try device.token(for: "ada", ["orders"], by: device.till) != token)
        // A sign-in with a code cannot pass the claims on.
        wish.methods = [.deviceCode]
        device.expectRefused(device.send(device.prompt, .beginSignIn(wish)), .otherMethod([.browser]))
    }

    @Test("a reauthentication that began before the policy became strict is refused", arguments: [true, false])
    func completeInDebt(isLate: Bool) throws {
        try owe()
        let page = try device.beginPage(device.till)
        device.holdsProvider = true
        if !isLate { becomeStrict() }
        let number = device.send(device.till, device.answerPage(page, "grace"))
        if isLate { becomeStrict() }
        device.letProviderAnswer()
        device.expectRefused(number, .cleanupRequired)
        #expect(device.state.provider.needsPerson)
    }

    @Test("a user's two prompts count even if they leave while the provider hangs", arguments: [true, false])
    func leaving(isCompleted: Bool) throws {
        let pages = try (0..<2).map { _ in
            let prompt = device.app("org.example.prompt")
            return (prompt, isCompleted ? try device.beginPage(prompt) : "")
        }
        device.holdsProvider = true
        for (prompt, page) in pages {
            device.send(prompt, isCompleted ? device.answerPage(page, "ada") : .beginSignIn(VirtualDevice.pageWish))
            device.quit(prompt)
        }
        let next = device.app("org.example.prompt")
        device.expectRefused(device.send(next, .beginSignIn(VirtualDevice.pageWish)), .tooManyPrompts)
        let other = device.app("org.example.prompt", user: 2000)
        device.send(other, .beginSignIn(VirtualDevice.pageWish))
        device.quit(other)
        device.letProviderAnswer()
        #expect(device.state.signIns.prompts.isEmpty)
        device.expectSignedOut()
        #expect(device.provider.cancelled.count == 3)
        #expect(try !device.beginPage(next).isEmpty)
    }
}
