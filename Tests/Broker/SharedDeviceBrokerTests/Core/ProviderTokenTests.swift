import DBus
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

/// Ada is signed in.
@Suite("Tokens of the organisation's provider")
struct ProviderTokenTests {
    private let device = VirtualDevice()

    init() throws {
        try device.useOrganisation()
        try device.signInAtProvider()
    }

    @Test("an app gets tokens for its manifest's scopes only, cached after the first")
    func tokens() throws {
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

    @Test("a kill between rotation and commit requires reauthentication at the next start")
    func killedBetween() throws {
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
        let epoch = device.state.device.epoch
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

    @Test("a refused scope is reported with the granted ones, by the names in the manifest")
    func declinedScopes() throws {
        let epoch = device.state.device.epoch
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
        let graph = "https://graph.microsoft.com/"
        let scopes: Set = ["\(graph)User.Read", "\(graph)Mail.Read"]
        device.use(.app("org.example.till", scopes: scopes))
        device.provider.granted = ["User.Read", "openid", "profile"]
        let declined = device.refusalOfToken(scopes)
        #expect(declined?.declinedScopes == ["\(graph)Mail.Read"])
        let granted = try #require(declined?.grantedScopes)
        #expect(granted == ["\(graph)User.Read"])
        _ = try device.token(Set(granted))
    }

    @Test("a token with scopes beyond the app's manifest is handed to no app")
    func excessScopes() throws {
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

    @Test("reauthentication, also by configuration, keeps the session and its user only")
    func signsInAgain() throws {
        let epoch = device.state.device.epoch
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
        try device.useOrganisation(", \"onProviderSessionEnd\": \"reauthenticate\"")
        device.provider.outcome = .sessionOver
        device.expectRefused(device.requestToken(refresh: true), code: .interactionRequired)
        device.expectEpoch(epoch)
    }

    // MARK: ID tokens

    private func idToken(of app: VirtualDevice.App, _ scopes: Set<String> = ["orders"]) throws -> String? {
        let fields = try device.ask(app, device.acquireToken(for: "ada", scopes))
        #expect(fields["token"]?.fieldsValue?["value"]?.stringValue?.hasPrefix("access") == true)
        return fields["token"]?.fieldsValue?["idToken"]?.stringValue
    }

    @Test("only apps with manifest rights to all of its claims get the ID token")
    func rightsToClaims() throws {
        device.use(
            .app("org.example.till", scopes: ["openid", "profile", "orders"]),
            .app("org.example.clock", scopes: ["openid", "orders"]),
            .app("org.example.oven", scopes: ["orders"])
        )
        device.provider.identity = IdentityToken(text: "Ada", granted: ["openid", "profile", "offline_access"])
        let tokens = try ["till", "clock", "oven"].map { try idToken(of: device.app("org.example.\($0)")) }
        #expect(tokens == ["Ada", nil, nil])
    }

    @Test("renewals bring the newest ID token, also after a restart, until the session ends")
    func changedIdentity() throws {
        device.provider.identity = IdentityToken(text: "Ada", granted: ["openid"])
        device.restart()
        #expect(try idToken(of: device.till) == "Ada")
        device.provider.identity = IdentityToken(text: "Ada again", granted: ["openid"])
        #expect(try idToken(of: device.till, ["orders", "profile"]) == "Ada again")
        device.provider.identity = nil
        #expect(try idToken(of: device.till, ["profile"]) == "Ada again")
        try device.signOut(by: device.till)
        device.reconnect(device.prompt)
        try device.signInAtProvider()
        #expect(try idToken(of: device.till) == nil)
    }

    // MARK: Rate limit

    @Test("an app that keeps refreshing gets the cached token, and after a pause a new one")
    func refreshes() throws {
        let written = device.batches.count
        var tokens: Set<String> = []
        for _ in 1...600 {
            tokens.insert(try device.token(refresh: true))
            device.advance(by: .milliseconds(100))
        }
        // The limit allows 16 at first, and one more each 15 s.
        #expect((17...20).contains(tokens.count) && device.provider.renewals.count == tokens.count)
        #expect(device.batches.count - written < 100)
        let other = device.app("org.example.till", user: 1001)
        #expect(try !tokens.contains(device.token(for: "ada", ["orders"], refresh: true, by: other)))
    }

    @Test("repeated requests for refused scopes get their responses from the cache")
    func refused() throws {
        device.provider.refusedScopes = ["orders"]
        for _ in 1...100 { device.expectRefused(device.requestToken(), .scopesNotGranted) }
        device.expectRenewals(16)
        try device.signOut(by: device.till)
        try device.signInAtProvider("grace")
        device.provider.refusedScopes = []
        try device.expectToken(for: "grace", ["orders"], by: device.till)
    }

    @Test("only requests that are sent count, and those that wait for the same token once")
    func fullDisk() throws {
        device.advance(by: .seconds(1))
        device.diskMode = .fails("the disk is full")
        for _ in 1...100 { device.requestToken() }
        device.expectRenewals(0)
        device.diskMode = .commits
        device.advance(by: .seconds(2))
        _ = try device.token()
        device.holdsProvider = true
        let numbers = (1...40).map { _ in device.requestToken(refresh: true) }
        device.letProviderAnswer()
        #expect(try Set(numbers.map { try WireToken(device.answer($0)["token"]).value }).count == 1)
        device.expectRenewals(2)
        for _ in 1...20 { _ = try device.token(refresh: true) }
        device.expectRenewals(16)
    }

    @Test("an app that varies its scopes is told how long to wait")
    func combinations() throws {
        let names = (0..<8).map { "orders.\($0)" }
        device.use(.app("org.example.till", scopes: Set(names)))
        var last: Refusal?
        for mask in 1..<256 {
            let scopes = Set(names.enumerated().filter { mask & (1 << $0.offset) != 0 }.map(\.element))
            last = device.refusalOfToken(scopes)
        }
        device.expectRenewals(16)
        #expect(last?.code == .tooManyAttempts && last?.description.contains("try again in 15 s") == true)
    }
}
