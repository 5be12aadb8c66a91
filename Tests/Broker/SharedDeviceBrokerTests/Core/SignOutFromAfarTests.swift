import DBus
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Local and remote sign-out with the organisation's provider")
struct SignOutFromAfarTests {
    private let device = VirtualDevice()

    init() throws {
        try device.useOrganisation()
        try device.signInAtProvider()
    }

    // MARK: Local sign-out

    @Test("a sign-out moves its record to the outbox and does not wait for the provider")
    func outbox() throws {
        let epoch = device.state.device.epoch
        device.provider.hangs = true
        try device.signOut(by: device.till)
        let batch = try #require(device.batches.last { $0.device?.account == nil && $0.device?.epoch == epoch + 1 })
        #expect(batch.provider == .some(nil) && batch.outbox.count == 1 && batch.erases)
        #expect(device.disk.provider == nil && device.disk.outbox.count == 1)
        device.expectEnds(1)
        try device.signInAtProvider("grace")
        device.expectPerson("grace")
    }

    @Test("ending at the provider is retried after 5, 30, 120, 600 and 3600 s, for 7 days")
    func retries() throws {
        // A permanent failure is not retried.
        device.provider.error = IdentityError(.providerMisconfigured, "401")
        try device.signOut(by: device.till)
        device.provider.error = nil
        device.advance(by: .seconds(7200))
        device.expectEnds(1)
        #expect(device.disk.outbox.isEmpty)
        try device.signInAtProvider()
        device.provider.error = .noNetwork
        try device.signOut(by: device.till)
        for (pause, tries) in [(5, 3), (30, 4), (120, 5), (600, 6), (3600, 7), (3600, 8)] {
            device.expectEnds(tries - 1)
            device.advance(by: .seconds(pause))
            device.expectEnds(tries)
        }
        device.restart()
        device.expectEnds(9)
        device.advance(by: .seconds(7 * 24 * 3600))
        let ends = device.provider.ends.count
        #expect(device.disk.outbox.isEmpty && device.notes.last?.contains("is not told again") == true)
        device.advance(by: .seconds(24 * 3600))
        device.expectEnds(ends)
    }

    @Test("at most 100 ends are queued, and the oldest is dropped")
    func bounded() throws {
        var outbox = ProviderOutbox()
        let now = device.now
        for number in 1...100 { #expect(outbox.add(device.provider.record(of: "\(number)"), at: now).dropped == nil) }
        #expect(outbox.add(device.provider.record(of: "101"), at: now).dropped == 1)
        #expect(outbox.entries.count == 100)
    }

    @Test("a renewal that ends after the sign-out gives no token, and its record is ended")
    func duringRenewal() throws {
        device.provider.hangs = true
        let number = device.requestToken()
        try device.signOut(by: device.till)
        device.expectRefused(number, code: .noCurrentAccount)
        device.expectEnds(0)
        let answer = device.provider.renewed(device.provider.record(of: "ada"), ["orders"], at: device.now)
        let newest = device.provider.record(of: "ada")
        device.feed(.renewed(device.state.provider.lastNumber, answer))
        #expect(device.provider.ends == [newest] && device.state.provider.tokens.count == 0)
        // The response to the end is lost, but the newest record is stored.
        device.provider.hangs = false
        device.restart()
        #expect(device.provider.ends == [newest, newest])
        device.advance(by: .seconds(1))
        #expect(device.disk.outbox.isEmpty)
        // The same holds if the next user has signed in meanwhile.
        for app in [device.till, device.prompt] { device.reconnect(app) }
        try device.signInAtProvider()
        device.provider.hangs = true
        device.requestToken()
        let last = device.state.provider.lastNumber
        try device.signOut(by: device.till)
        try device.signInAtProvider("grace")
        let session = device.state.provider.session
        device.provider.hangs = false
        let late = device.provider.renewed(device.provider.record(of: "ada"), ["orders"], at: device.now)
        device.feed(.renewed(last, late))
        #expect(device.state.provider.session?.record?.person == session?.record?.person)
        device.expectPerson("grace")
        device.expectEnds(of: ["ada", "ada", "ada"])
        try device.expectToken(for: "grace", ["orders"], by: device.till)
    }

    // MARK: Remote sign-out

    @Test("checks recur at the interval within a tenth, and their outcome decides")
    func checks() throws {
        device.expectRenewals(0, after: .seconds(269))
        device.expectRenewals(1, after: .seconds(61))
        device.advance(by: .seconds(3000))
        #expect((9...12).contains(device.provider.renewals.count))
        device.provider.outcome = .sessionOver
        device.expectSignedOut(after: .seconds(330))
    }

    @Test("refused app scopes delay neither the next check nor the end of the grace")
    func refusedScopes() throws {
        try device.useOrganisation(", \"offlineGrace\": 3600")
        device.provider.refusedScopes = ["orders"]
        for _ in 1...11 {
            device.advance(by: .seconds(60))
            device.expectRefused(device.requestToken(), code: .scopesDeclined)
        }
        // A request that arrives when the check is due does not replace the check.
        #expect(device.provider.renewals.filter(\.scopes.isEmpty).count == 2)
        device.provider.outcome = .noNetwork
        for _ in 1...60 {
            device.advance(by: .seconds(60))
            device.requestToken()
        }
        device.expectSignedOut()
    }

    @Test("only the identity service reports events, which end only the session they name")
    func events() throws {
        let call = Request.Call.providerEvents([])
        device.expectRefused(device.send(device.till, call), .notTheProvider)
        let shared = VirtualDevice(requiresProof: true)
        let root = shared.app(nil, user: 0, isAdministrator: true)
        shared.expectRefused(shared.send(root, call), .notTheProvider)
        let service = shared.app(nil, user: 990, unit: "shared-device-identity.service")
        #expect(try shared.ask(service, call).isEmpty)
        try device.report(
            .of(.ended, "grace"),
            .of(.ended, "ada", session: "another"),
            ProviderEvent(.ended, issuer: "https://other.example", subject: "ada")
        )
        device.expectSignedIn()
        try device.report(.of(.reauthenticate, "ada"))
        device.expectPersonWanted()
        try device.report(.of(.ended, session: "sid"))
        device.expectSignedOut()
        #expect(device.disk.entries(.signedOut).last?.detail == "the provider has ended its session, and reported that")
    }

    // MARK: Restart and status

    @Test("a restart without the record key keeps the session, and a new sign-in is needed")
    func restart() throws {
        let epoch = device.state.device.epoch
        device.restart()
        _ = try device.token()
        device.keepsRecords = false
        device.restart()
        for app in [device.till, device.prompt] { device.reconnect(app) }
        device.expectSignedIn()
        device.expectEpoch(epoch)
        device.expectRefused(device.requestToken(), code: .interactionRequired)
        let problem = try device.status()["keyProblem"]?.stringValue
        #expect(problem?.contains("there is no key") == true && problem?.contains("token-key") == true)
        #expect(try device.signInAtProvider() == epoch)
        #expect(try device.status()["keyProblem"] == nil)
        _ = try device.token()
    }

    @Test("status and device information name the provider, its last check and its problem")
    func status() throws {
        let good = try device.status()
        let keys = ["identity", "issuer", "providerCheckedAt", "providerProblem", "needsSignIn"]
        let expected: [DBusValue?] = [
            .string("oidc"), .string(VirtualProvider.issuer), .double(device.now.wall.timeIntervalSince1970), nil,
            .boolean(false),
        ]
        #expect(keys.map { good[$0] } == expected)
        let away = IdentityError(.providerUnavailable, "https://login.example cannot be reached (no route)")
        device.provider.outcome = .unavailable(away, mayBeUsed: false)
        device.advance(by: .seconds(400))
        let bad = try device.ask(device.till, .deviceInformation)
        #expect(bad["providerProblem"]?.stringValue?.contains("(no route); the user stays signed in") == true)
        #expect(bad["signInMethods"] == .array([.string("browser"), .string("deviceCode")], of: "s"))
    }
}
