import DBus
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("Events from the provider, and a returning network")
struct ProviderEventTests {
    private let device = VirtualDevice()

    init() throws {
        let signals = #"{"endpoint": "https://login.example/poll", "device": "till-7"}"#
        try device.useOrganisation(#", "sharedSignals": \#(signals)"#)
        try device.signInAtProvider()
    }

    private var now: Date { device.now.wall }

    // MARK: Dates of events

    @Test("an event from before the sign-in causes a check and does not sign out")
    func stale() throws {
        try device.report(.of(.ended, "ada", at: now - 86_400))
        device.expectSignedIn()
        device.expectRenewals(1)
        // Within the permitted difference of the clocks the event counts.
        try device.report(.of(.ended, "ada", at: now - 59))
        device.expectSignedOut()
    }

    @Test("an event from before a reauthentication requires no other one")
    func staleProof() throws {
        device.advance(by: .seconds(3600))
        let change = ProviderEvent.of(.reauthenticate, "ada", at: now)
        try device.report(change)
        #expect(device.state.provider.needsPerson)
        device.advance(by: .seconds(100))
        try device.signInAtProvider()
        try device.report(change)
        #expect(!device.state.provider.needsPerson)
        // The time of the reauthentication survives a restart.
        device.restart()
        device.reconnect(device.identityService)
        try device.report(change, .of(.ended, "ada", at: change.date))
        device.expectSignedIn()
        #expect(!device.state.provider.needsPerson)
        try device.report(.of(.ended, "ada", at: now))
        device.expectSignedOut()
    }

    @Test("a demand for reauthentication is committed before its event is acknowledged")
    func lastingDemand() throws {
        device.diskMode = .holds
        let change = ProviderEvent.of(.reauthenticate, "ada", at: now)
        let number = device.send(device.identityService, .providerEvents([change]))
        #expect(device.state.provider.needsPerson)
        device.expectUnanswered(number)
        device.resumeDisk()
        #expect(try device.answer(number).isEmpty)
        device.restart(afterPowerCut: true)
        #expect(device.state.provider.needsPerson && device.state.providerRecord != nil)
        device.expectRenewals(0)
        device.reconnect(device.prompt)
        try device.signInAtProvider()
        device.restart()
        #expect(!device.state.provider.needsPerson)
    }

    // MARK: Early checks

    @Test("when the network returns the provider is asked at once, at most twice a minute")
    func networkUp() throws {
        device.provider.error = .noNetwork
        try device.signOut(by: device.till)
        device.provider.error = nil
        try device.signInAtProvider("grace")
        device.provider.error = .noNetwork
        device.provider.outcome = .noNetwork
        device.advance(by: .seconds(1000))
        let (before, told) = (device.provider.renewals.count, device.provider.ends.count)
        device.provider.outcome = nil
        device.provider.error = nil
        try device.report(.of(.networkUp))
        device.expectEnds(told + 1)
        device.expectRenewals(before + 1)
        #expect(device.state.provider.problem == nil && device.disk.outbox.isEmpty)
        for _ in 1...100 { try device.report(.of(.networkUp)) }
        device.expectRenewals(before + 1)
        device.expectRenewals(before + 1, after: .seconds(29))
        device.expectRenewals(before + 2, after: .seconds(2))
    }

    @Test("a check that fails after the network returned is repeated for a minute")
    func failingAfterNetworkUp() throws {
        try device.useOrganisation(#", "remoteCheckInterval": 86400"#)
        device.provider.outcome = .noNetwork
        try device.report(.of(.networkUp))
        device.advance(by: .seconds(20))
        device.provider.outcome = .sessionOver
        device.expectSignedOut(after: .seconds(20))
        try device.signInAtProvider()
        device.provider.outcome = .noNetwork
        let before = device.provider.renewals.count
        try device.report(.of(.networkUp))
        device.expectRenewals(before + ProviderLink.earlyFailures + 1, after: .seconds(3600))
    }

    @Test("a sleep of a second, unlike a clock change, makes the broker check at once")
    func slept() throws {
        device.advance(by: .seconds(5))
        device.provider.outcome = .sessionOver
        device.setClock(forwardBy: 1)
        device.sleep(for: .milliseconds(999))
        device.feed(.time)
        device.expectRenewals(0)
        device.sleep(for: .seconds(1))
        device.feed(.time)
        device.expectRenewals(1)
        device.expectSignedOut()
        // While signed out there is no session to check.
        device.advance(by: .seconds(60))
        device.sleep(for: .seconds(1))
        device.feed(.time)
        device.expectRenewals(1)
    }

    @Test("a check that began before the network returned is repeated")
    func networkUpDuringQuestion() throws {
        device.holdsProvider = true
        device.provider.outcome = .noNetwork
        device.advance(by: .seconds(331))
        try device.report(.of(.networkUp))
        device.expectRenewals(1)
        device.provider.outcome = nil
        device.letProviderAnswer()
        device.expectRenewals(2)
        #expect(device.state.provider.problem == nil)
    }

    @Test("Retry-After delays all requests up to five minutes, or until the network returns")
    func leftAlone() throws {
        try device.useOrganisation(#", "remoteCheckInterval": 60"#)
        let busy = IdentityError(.providerUnavailable, "too many requests", retryAfter: .seconds(100_000))
        device.provider.outcome = .unavailable(busy, mayBeUsed: false)
        for _ in 1...3 { device.expectRefused(device.requestToken(), code: .providerUnavailable) }
        try device.report(.of(.doubt))
        device.advance(by: .seconds(299))
        #expect(device.refusalOfToken()?.description.contains("too many requests") == true)
        device.expectRenewals(1)
        device.expectRenewals(2, after: .seconds(2))
        device.expectRefused(device.requestToken(), code: .providerUnavailable)
        device.expectRenewals(2)
        device.provider.outcome = nil
        device.advance(by: .seconds(60))
        try device.report(.of(.networkUp))
        device.expectRenewals(3)
        _ = try device.token()
    }

    @Test("a doubt about the signed-in user makes the broker check, and other events do not")
    func doubt() throws {
        try device.report(
            .of(.doubt, "grace"),
            ProviderEvent(.doubt, issuer: "https://other.example"),
            ProviderEvent(.networkUp, issuer: "https://other.example")
        )
        device.expectRenewals(0)
        device.provider.outcome = .sessionOver
        try device.report(.of(.doubt, "ada"))
        device.expectSignedOut()
        device.expectRenewals(1)
        // Events while signed out do not delay later checks.
        device.provider.outcome = nil
        for _ in 1...100 { try device.report(.of(.networkUp)) }
        try device.signInAtProvider()
        try device.report(.of(.doubt, "ada"))
        device.expectRenewals(2, after: .seconds(31))
    }

    // MARK: Compliance of the device

    @Test("a non-compliant device signs out and refuses sign-ins until it complies")
    func compliance() throws {
        let refusal = Refusal.notCompliant(VirtualProvider.issuer)
        try device.report(.of(.notCompliant, at: now))
        device.expectSignedOut()
        #expect(device.disk.entries(.signedOut).last?.detail?.contains("does not comply") == true)
        // The state is committed before the event is acknowledged.
        #expect(device.disk.compliance?.isCompliant == false)
        #expect(throws: refusal) { try device.beginPage() }
        device.restart()
        for app in [device.prompt, device.identityService] { device.reconnect(app) }
        #expect(throws: refusal) { try device.beginPage() }
        #expect(try device.status()["providerProblem"]?.stringValue?.contains("does not comply") == true)
        // An event that is older than the current state is ignored.
        try device.report(.of(.compliant, at: now - 86_400))
        #expect(throws: refusal) { try device.beginPage() }
        device.advance(by: .seconds(60))
        try device.report(.of(.compliant, at: now))
        try device.signInAtProvider()
        device.expectSignedIn()
    }

    @Test("a compliance event that cannot be committed is not acknowledged")
    func complianceIsKept() throws {
        try device.signOut(by: device.till)
        device.diskMode = .fails("full")
        let number = device.send(device.identityService, .providerEvents([.of(.notCompliant, at: now)]))
        device.expectRefused(number, code: .brokerFailed)
    }

    @Test("removing the device's name from the configuration allows sign-ins again")
    func complianceRemedy() throws {
        try device.report(.of(.notCompliant, at: now))
        #expect(throws: Refusal.notCompliant(VirtualProvider.issuer)) { try device.beginPage() }
        try device.useOrganisation()
        try device.signInAtProvider()
        device.expectSignedIn()
    }
}
