import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

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

    @Test("a password is refused, and the refusal names the provider's page")
    func password() throws {
        let refusal = device.refusalOfSignIn("ada", by: device.till)
        #expect(refusal?.code == .interactionRequired)
        #expect(refusal?.description.contains("https://login.example's own page") == true)
        let name = try device.beginPage()
        device.expectRefused(device.complete(name), code: .invalidRequest)
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
        #expect(device.state.prompts.isEmpty)
        let name = try device.beginPage()
        device.holdsProvider = true
        device.sendPage(name)
        device.quit(device.prompt)
        device.letProviderAnswer()
        device.expectSignedOut()
        #expect(device.provider.cancelled.count == 1)
        device.expectEnds(of: ["ada"])
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

    @Test("another issuer or client signs out, and another check interval does not")
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

    @Test("the device's own directory cannot join a device of an external provider")
    func join() {
        device.administrators = ["ada"]
        let credentials = Request.Credentials(username: "ada", password: Secret("right"))
        let number = device.send(device.administrator, .join(credentials))
        device.expectRefused(number, .noJoinByPage)
        device.expectPasswordChecks(0)
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
        #expect(device.state.prompts.isEmpty)
    }

    // MARK: Tokens

    @Test("an app gets tokens for its manifest's scopes only, cached after the first")
    func tokens() throws {
        try device.signInAtProvider()
        let first = try device.token()
        #expect(try device.token() == first)
        device.expectRenewals(1)
        #expect(device.provider.renewals.last?.scopes == ["orders"])
        #expect(try device.token(refresh: true) != first)
        // The sign-in's own token serves an app with rights to all of its scopes.
        #expect(try device.token(["openid"]) == "access 1")
        device.advance(by: .seconds(3600))
        #expect(try device.token() != first)
        for (app, scopes) in [("org.example.notes", []), ("org.example.till", ["orders", "mail"])] {
            let number = device.send(device.app(app), device.acquireToken(for: "ada", Set(scopes)))
            device.expectRefused(number, code: .notPermitted)
        }
    }

    @Test("renewals run one at a time, and equal requests share one")
    func oneAtATime() throws {
        try device.signInAtProvider()
        device.holdsProvider = true
        let apps = [device.till, device.till, device.app("org.example.till", user: 1001)]
        let numbers = apps.map { device.send($0, device.acquireToken(for: "ada", ["orders"])) }
        device.expectRenewals(1)
        device.letProviderAnswer()
        let tokens = try numbers.map { try WireToken(device.answer($0)["token"]).value }
        #expect(tokens[0] == tokens[1] && tokens[0] != tokens[2])
        device.expectRenewals(2)
        // Each renewal uses the record that the previous one returned.
        let records = device.provider.renewals.suffix(2).map(\.0.content.text)
        #expect(Set(records).count == 2)
    }

    @Test("a new record is committed before its token is handed out")
    func recordFirst() throws {
        try device.signInAtProvider()
        try device.ask(device.till, .currentAccount)
        device.holdsProvider = true
        let first = device.requestToken()
        device.diskMode = .holds
        device.letProviderAnswer()
        // A cached token is not handed out before that either.
        let numbers = [first, device.requestToken()]
        for number in numbers { device.expectUnanswered(number) }
        device.diskMode = .fails("full")
        device.finishWriting()
        for number in numbers { device.expectRefused(number, code: .brokerFailed) }
        #expect(device.refusalOfToken(["profile", "orders"]) != nil)
        device.expectRenewals(1)
        device.diskMode = .commits
        device.advance(by: .seconds(2))
        _ = try device.token()
        #expect(device.disk.provider?.record == device.state.provider.session?.record)
    }

    @Test("a kill between rotation and commit requires the user at the next start")
    func killedBetween() throws {
        try device.signInAtProvider()
        let old = try #require(device.disk.provider?.record)
        device.holdsProvider = true
        device.requestToken()
        device.diskMode = .holds
        device.letProviderAnswer()
        #expect(device.state.provider.session?.record != old)
        device.diskMode = .commits
        device.provider.outcome = .reauthenticationNeeded
        device.restart(afterPowerCut: true)
        let last = try #require(device.provider.renewals.last)
        #expect(last.0 == old && last.mayBeUsed)
        device.expectPersonWanted()
    }

    // MARK: Outcomes

    @discardableResult
    private func expectRefused(
        _ outcome: RenewalOutcome,
        code: SharedDeviceError.Code,
        sourceLocation: SourceLocation = #_sourceLocation
    ) -> Refusal? {
        device.provider.outcome = outcome
        let number = device.requestToken()
        device.expectRefused(number, code: code, sourceLocation: sourceLocation)
        return device.refusal(number)
    }

    private func expectDoubt(_ mayBeUsed: Bool, sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(device.provider.renewals.last?.mayBeUsed == mayBeUsed, sourceLocation: sourceLocation)
    }

    @Test("each outcome of a renewal has its own effect")
    func outcomes() throws {
        let epoch = try device.signInAtProvider()
        let network = IdentityError(.providerUnavailable, "https://login.example cannot be reached (time-out)")
        let away = expectRefused(.unavailable(network, mayBeUsed: true), code: .providerUnavailable)
        #expect(away?.description.contains("(time-out); the user stays signed in until ") == true)
        device.advance(by: .seconds(3))
        let client = IdentityError(.providerMisconfigured, "https://login.example does not know this client")
        expectRefused(.misconfigured(client), code: .providerMisconfigured)
        expectDoubt(true)
        device.advance(by: .seconds(5))
        expectRefused(.scopeRefused, code: .scopesDeclined)
        // Neither outcome shows that the provider looked at the refresh token.
        expectDoubt(true)
        device.provider.outcome = nil
        _ = try device.token()
        expectDoubt(true)
        device.expectEpoch(epoch)
        device.provider.outcome = .sessionOver
        device.expectRefused(device.requestToken(refresh: true), code: .noCurrentAccount)
        expectDoubt(false)
        device.expectSignedOut()
        #expect(device.disk.entries(.signedOut).last?.detail == "the provider has ended its session")
    }

    @Test("a token without a requested scope is refused with the scopes that are granted")
    func declinedScopes() throws {
        let epoch = try device.signInAtProvider()
        device.provider.granted = ["profile"]
        for _ in 1...2 {
            let refusal = try #require(device.refusalOfToken(["orders", "openid"]))
            #expect(refusal.description.contains("does not grant orders, and grants profile;"))
            let scopes = [refusal.declinedScopes, refusal.grantedScopes]
            #expect(refusal.code == .scopesDeclined && scopes == [["orders"], ["profile"]])
        }
        // A declined scope is not requested again unless the app asks for a refresh.
        device.expectRenewals(1)
        // An app that names no scope gets the granted ones, listed with the token.
        let fields = try device.answer(device.requestToken([]))
        #expect(fields["token"]?.fieldsValue?["scopes"]?.stringsValue == ["profile"])
        #expect(device.state.device.epoch == epoch && device.state.provider.problem == nil)
    }

    @Test("granted scopes are reported by the names in the app's manifest")
    func grantedNames() throws {
        let graph = "https://graph.microsoft.com/"
        let scopes: Set = ["\(graph)User.Read", "\(graph)Mail.Read"]
        device.use(.app("org.example.till", scopes: scopes))
        try device.signInAtProvider()
        device.provider.granted = ["User.Read", "openid", "profile"]
        let refusal = device.refusalOfToken(scopes)
        #expect(refusal?.declinedScopes == ["\(graph)Mail.Read"])
        let granted = try #require(refusal?.grantedScopes)
        #expect(granted == ["\(graph)User.Read"])
        _ = try device.token(Set(granted))
    }

    @Test("a token with scopes beyond the app's manifest is handed to no app")
    func excessScopes() throws {
        try device.signInAtProvider()
        device.provider.granted = ["email", "orders", "orders.refund"]
        for scopes: Set<String> in [["orders"], [], ["orders"]] {
            let refusal = try #require(device.refusalOfToken(scopes))
            #expect(refusal.code == .providerMisconfigured && refusal.description.contains("(orders.refund)"))
        }
        device.provider.granted = ["email", "orders"]
        _ = try device.token(refresh: true)
    }

    @Test("scopes are compared as providers name them")
    func scopeNames() {
        // A scope without a service is Microsoft Graph's if the provider is Microsoft's.
        let graph = "https://graph.microsoft.com/User.Read"
        let (read, all) = ("https://graph.example/User.Read", "https://graph.example/.default")
        let missing: [(wanted: Set<String>, granted: Set<String>, expected: Set<String>)] = [
            (["openid", "User.read", all], [read], []), ([".Default", all.uppercased()], [read], []),
            ([read, "Read"], ["User.Read"], [read, "Read"]), ([graph], ["user.Read"], []),
            ([graph], [read, "Mail.Read"], [graph]),
        ]
        for (wanted, granted, expected) in missing {
            #expect(AccessToken.scopes(wanted, notIn: granted) == expected, "\(wanted), \(granted)")
        }
        let elsewhere = "https://graph.example.com/User.Read"
        let excess: [(granted: Set<String>, allowed: Set<String>, expected: Set<String>)] = [
            ([read.uppercased()], [all], []), ([read, "email", "User.Read"], [all], []),
            ([elsewhere], [all], [elsewhere]), ([read, "Mail.Read"], ["user.read"], ["Mail.Read"]),
            (["User.Read"], [graph], []), ([read, "Mail.Read"], [graph], [read, "Mail.Read"]),
        ]
        for (granted, allowed, expected) in excess {
            #expect(AccessToken.scopes(granted, beyond: allowed) == expected, "\(granted), \(allowed)")
        }
    }

    @Test("reauthentication keeps the session and accepts the same user only")
    func signsInAgain() throws {
        let epoch = try device.signInAtProvider()
        expectRefused(.reauthenticationNeeded, code: .interactionRequired)
        // The vault is empty, and the provider is not asked again.
        expectRefused(.reauthenticationNeeded, code: .interactionRequired)
        device.expectRenewals(1)
        device.provider.outcome = nil
        let page = try device.beginPage()
        let start = device.provider.starts.last
        #expect(start?.only?.subject == "ada" && start?.loginHint == "ada")
        device.expectRefused(device.sendPage(page, "grace"), code: .currentAccountMismatch)
        device.expectEnds(of: ["grace"])
        #expect(try device.signInAtProvider() == epoch)
        _ = try device.token()
        device.expectEnds(1)
        device.expectEpoch(epoch)
    }

    @Test("onProviderSessionEnd reauthenticate keeps the session")
    func keepsSession() throws {
        try device.useOrganisation(", \"onProviderSessionEnd\": \"reauthenticate\"")
        let epoch = try device.signInAtProvider()
        expectRefused(.sessionOver, code: .interactionRequired)
        device.expectEpoch(epoch)
    }
}
