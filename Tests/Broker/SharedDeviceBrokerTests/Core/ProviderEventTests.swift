import Basics
import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("Events from the provider, and a returning network")
struct ProviderEventTests {
    private let device = VirtualDevice()
    private let prompt: VirtualDevice.App
    private let service: VirtualDevice.App
    private let issuer = VirtualProvider.issuer

    init() throws {
        let signals = #"{"endpoint": "https://login.example/poll", "device": "till-7"}"#
        try device.useOrganisation(#", "sharedSignals": \#(signals)"#)
        prompt = device.app("org.example.prompt")
        service = device.app(nil, user: 0, isAdministrator: true)
    }

    private func report(_ events: ProviderEvent...) throws { try device.ask(service, .providerEvents(events)) }

    private var now: Date { device.now.wall }

    private var asked: Int { device.provider.renewals.count }

    // MARK: Dates of events

    @Test("an event from before the sign-in causes a check and does not sign out")
    func stale() throws {
        try device.signInAtProvider("ada", by: prompt)
        let before = asked
        try report(ProviderEvent(.ended, issuer: issuer, subject: "ada", date: now - 86_400))
        device.expectSignedIn()
        device.expectRenewals(before + 1)
        // Within the permitted difference of the clocks the event counts.
        try report(ProviderEvent(.ended, issuer: issuer, subject: "ada", date: now - 59))
        device.expectSignedOut()
    }

    @Test("an event from before a reauthentication requires no other one")
    func staleProof() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.advance(by: .seconds(3600))
        let change = ProviderEvent(.reauthenticate, issuer: issuer, subject: "ada", date: now)
        try report(change)
        #expect(device.state.provider.needsPerson)
        device.advance(by: .seconds(100))
        try device.signInAtProvider("ada", by: prompt)
        try report(change)
        #expect(!device.state.provider.needsPerson)
        // The time of the reauthentication survives a restart.
        device.restart()
        device.reconnect(service)
        try report(change, ProviderEvent(.ended, issuer: issuer, subject: "ada", date: change.date))
        device.expectSignedIn()
        #expect(!device.state.provider.needsPerson)
        try report(ProviderEvent(.ended, issuer: issuer, subject: "ada", date: now))
        device.expectSignedOut()
    }

    @Test("a demand for reauthentication is committed before its event is acknowledged")
    func lastingDemand() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.diskMode = .holds
        let change = ProviderEvent(.reauthenticate, issuer: issuer, subject: "ada", date: now)
        let number = device.send(service, .providerEvents([change]))
        #expect(device.state.provider.needsPerson)
        device.expectUnanswered(number)
        device.diskMode = .commits
        device.finishWriting()
        #expect(try device.answer(number).isEmpty)
        let before = asked
        device.restart(afterPowerCut: true)
        #expect(device.state.provider.needsPerson && device.state.providerRecord != nil)
        device.expectRenewals(before)
        device.reconnect(prompt)
        try device.signInAtProvider("ada", by: prompt)
        device.restart()
        #expect(!device.state.provider.needsPerson)
    }

    // MARK: Early checks

    @Test("when the network returns the provider is asked at once, at most twice a minute")
    func networkUp() throws {
        try device.signInAtProvider("grace", by: prompt)
        device.provider.error = IdentityError(.providerUnavailable, "no network")
        try device.signOut(by: device.app("org.example.till"))
        try device.signInAtOtherTime("ada", by: prompt)
        device.provider.outcome = .unavailable(IdentityError(.providerUnavailable, "no network"), mayBeUsed: false)
        device.advance(by: .seconds(1000))
        let (before, told) = (asked, device.provider.ends.count)
        device.provider.outcome = nil
        device.provider.error = nil
        try report(ProviderEvent(.networkUp, issuer: issuer))
        device.expectEnds(told + 1)
        device.expectRenewals(before + 1)
        #expect(device.state.provider.problem == nil && device.disk.outbox.isEmpty)
        for _ in 1...100 { try report(ProviderEvent(.networkUp, issuer: issuer)) }
        device.expectRenewals(before + 1)
        device.advance(by: .seconds(29))
        device.expectRenewals(before + 1)
        device.advance(by: .seconds(2))
        device.expectRenewals(before + 2)
    }

    @Test("a sleep of a second, unlike a clock change, makes the broker check at once")
    func slept() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.advance(by: .seconds(5))
        let before = asked
        device.provider.outcome = .sessionOver
        device.setClock(forwardBy: 1)
        device.sleep(for: .milliseconds(999))
        device.feed(.time)
        device.expectRenewals(before)
        device.sleep(for: .seconds(1))
        device.feed(.time)
        device.expectRenewals(before + 1)
        device.expectSignedOut()
        // While signed out there is no session to check.
        device.advance(by: .seconds(60))
        device.sleep(for: .seconds(1))
        device.feed(.time)
        device.expectRenewals(before + 1)
    }

    @Test("events while signed out do not delay later checks")
    func reasonsInVain() throws {
        for _ in 1...100 { try report(ProviderEvent(.networkUp, issuer: issuer)) }
        try device.signInAtProvider("ada", by: prompt)
        let before = asked
        try report(ProviderEvent(.doubt, issuer: issuer, subject: "ada"))
        device.advance(by: .seconds(31))
        device.expectRenewals(before + 1)
    }

    @Test("a check that began before the network returned is repeated")
    func networkUpDuringQuestion() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.holdsProvider = true
        device.provider.outcome = .unavailable(IdentityError(.providerUnavailable, "no network"), mayBeUsed: false)
        device.advance(by: .seconds(331))
        let before = asked
        try report(ProviderEvent(.networkUp, issuer: issuer))
        device.expectRenewals(before)
        device.provider.outcome = nil
        device.letProviderAnswer()
        #expect(asked == before + 1 && device.state.provider.problem == nil)
    }

    @Test("Retry-After delays all requests unless the network has returned")
    func leftAlone() throws {
        try device.useOrganisation(#", "remoteCheckInterval": 60"#)
        try device.signInAtProvider("ada", by: prompt)
        let till = device.app("org.example.till")
        func refusal() throws -> Refusal? {
            device.refusal(device.send(till, device.acquireToken(for: "ada", ["orders"])))
        }
        let busy = IdentityError(.providerUnavailable, "too many requests", retryAfter: .seconds(200))
        device.provider.outcome = .unavailable(busy, mayBeUsed: false)
        let before = asked
        for _ in 1...3 { #expect(try refusal()?.code == .providerUnavailable) }
        try report(ProviderEvent(.doubt, issuer: issuer))
        device.advance(by: .seconds(199))
        #expect(try refusal()?.description.contains("too many requests") == true)
        device.expectRenewals(before + 1)
        device.advance(by: .seconds(2))
        device.expectRenewals(before + 2)
        #expect(try refusal()?.code == .providerUnavailable)
        device.expectRenewals(before + 2)
        device.provider.outcome = nil
        device.advance(by: .seconds(60))
        try report(ProviderEvent(.networkUp, issuer: issuer))
        device.expectRenewals(before + 3)
        #expect(try refusal() == nil)
    }

    @Test("a doubt about the signed-in user makes the broker check, and other doubts do not")
    func doubt() throws {
        try device.signInAtProvider("ada", by: prompt)
        let before = asked
        try report(
            ProviderEvent(.doubt, issuer: issuer, subject: "grace"),
            ProviderEvent(.doubt, issuer: "https://other.example"),
            ProviderEvent(.networkUp, issuer: "https://other.example")
        )
        device.expectRenewals(before)
        device.provider.outcome = .sessionOver
        try report(ProviderEvent(.doubt, issuer: issuer, subject: "ada"))
        device.expectSignedOut()
        device.expectRenewals(before + 1)
    }

    // MARK: Compliance of the device

    @Test("a non-compliant device signs out and refuses sign-ins until it complies")
    func compliance() throws {
        try device.signInAtProvider("ada", by: prompt)
        try report(ProviderEvent(.notCompliant, issuer: issuer, date: now))
        device.expectSignedOut()
        #expect(device.disk.entries(.signedOut).last?.detail?.contains("does not comply") == true)
        // The state is committed before the event is acknowledged.
        #expect(device.disk.compliance?.isCompliant == false)
        func refusal() throws -> Refusal? {
            do {
                _ = try device.beginPage(prompt)
                return nil
            } catch let refusal as Refusal {
                return refusal
            }
        }
        #expect(try refusal() == .notCompliant(issuer))
        device.restart()
        for app in [prompt, service] { device.reconnect(app) }
        #expect(try refusal() == .notCompliant(issuer))
        let status = try device.ask(device.administrator, .status(known: nil, patience: .zero))
        #expect(status["providerProblem"]?.stringValue?.contains("does not comply") == true)
        // An event that is older than the current state is ignored.
        try report(ProviderEvent(.compliant, issuer: issuer, date: now - 86_400))
        #expect(try refusal() == .notCompliant(issuer))
        device.advance(by: .seconds(60))
        try report(ProviderEvent(.compliant, issuer: issuer, date: now))
        try device.signInAtProvider("ada", by: prompt)
        device.expectSignedIn()
    }

    @Test("a compliance event that cannot be committed is not acknowledged")
    func complianceIsKept() throws {
        device.diskMode = .fails("full")
        let number = device.send(service, .providerEvents([ProviderEvent(.notCompliant, issuer: issuer, date: now)]))
        device.expectRefused(number, code: .brokerFailed)
    }

    @Test("removing the device's name from the configuration allows sign-ins again")
    func complianceRemedy() throws {
        try report(ProviderEvent(.notCompliant, issuer: issuer, date: now))
        try device.useOrganisation()
        try device.signInAtProvider("ada", by: prompt)
        device.expectSignedIn()
    }
}

extension VirtualDevice {
    /// Signs in although the provider cannot be told about ended sessions.
    fileprivate func signInAtOtherTime(_ person: String, by prompt: App) throws {
        let error = provider.error
        provider.error = nil
        try signInAtProvider(person, by: prompt)
        provider.error = error
    }
}
