import DBusTransport
import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import SharedDeviceSimulation
import Testing

@testable import SharedDeviceBroker

@Suite("What the provider tells, and the network's coming back")
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

    // MARK: When it happened

    @Test("an event from before the sign-in ends nobody's session, and has the provider asked")
    func stale() throws {
        try device.signInAtProvider("ada", by: prompt)
        let before = asked
        try report(ProviderEvent(.ended, issuer: issuer, subject: "ada", date: now - 86_400))
        device.expectSignedIn()
        device.expectRenewals(before + 1)
        // As far as the clocks may differ it counts.
        try report(ProviderEvent(.ended, issuer: issuer, subject: "ada", date: now - 59))
        device.expectSignedOut()
    }

    @Test("an event from before the person has proved again who they are asks for no further proof")
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
        // A start of the broker knows when that was.
        device.restart()
        device.reconnect(service)
        try report(change, ProviderEvent(.ended, issuer: issuer, subject: "ada", date: change.date))
        device.expectSignedIn()
        #expect(!device.state.provider.needsPerson)
        try report(ProviderEvent(.ended, issuer: issuer, subject: "ada", date: now))
        device.expectSignedOut()
    }

    @Test("who has to prove again who they are has to after a start of the broker, too; the event waits for the disk")
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

    // MARK: Asking before the time

    @Test("the network is back: the provider is asked and told at once, and no more than twice a minute")
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

    @Test("after a sleep of a second, and not where the clock is set, the provider is asked at once")
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
        // With nobody signed in there is nobody to ask about.
        device.advance(by: .seconds(60))
        device.sleep(for: .seconds(1))
        device.feed(.time)
        device.expectRenewals(before + 1)
    }

    @Test("reasons that come while nobody is signed in put off no later question")
    func reasonsInVain() throws {
        for _ in 1...100 { try report(ProviderEvent(.networkUp, issuer: issuer)) }
        try device.signInAtProvider("ada", by: prompt)
        let before = asked
        try report(ProviderEvent(.doubt, issuer: issuer, subject: "ada"))
        device.advance(by: .seconds(31))
        device.expectRenewals(before + 1)
    }

    @Test("a question from before the network was back is followed by another one")
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

    @Test(
        "a provider that says how long it wants to be left alone is not asked before, unless the network has come back"
    )
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

    @Test("a doubt about this person has the provider asked; about another person, or another provider's, it does not")
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

    // MARK: The device

    @Test("a device that does not comply signs out and lets nobody in, also after a start, until it complies")
    func compliance() throws {
        try device.signInAtProvider("ada", by: prompt)
        try report(ProviderEvent(.notCompliant, issuer: issuer, date: now))
        device.expectSignedOut()
        #expect(device.disk.entries(.signedOut).last?.detail?.contains("does not comply") == true)
        // The disk has it before the provider hears that it was taken.
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
        // Told late, and overtaken.
        try report(ProviderEvent(.compliant, issuer: issuer, date: now - 86_400))
        #expect(try refusal() == .notCompliant(issuer))
        device.advance(by: .seconds(60))
        try report(ProviderEvent(.compliant, issuer: issuer, date: now))
        try device.signInAtProvider("ada", by: prompt)
        device.expectSignedIn()
    }

    @Test("what the disk does not take of it is not acknowledged")
    func complianceIsKept() throws {
        device.diskMode = .fails("full")
        let number = device.send(service, .providerEvents([ProviderEvent(.notCompliant, issuer: issuer, date: now)]))
        device.expectRefused(number, code: .brokerFailed)
    }

    @Test("an administrator who takes the device's name out of the configuration lets people in")
    func complianceRemedy() throws {
        try report(ProviderEvent(.notCompliant, issuer: issuer, date: now))
        try device.useOrganisation()
        try device.signInAtProvider("ada", by: prompt)
        device.expectSignedIn()
    }
}

extension VirtualDevice {
    /// Somebody signs in although the provider cannot be told of ends.
    fileprivate func signInAtOtherTime(_ person: String, by prompt: App) throws {
        let error = provider.error
        provider.error = nil
        try signInAtProvider(person, by: prompt)
        provider.error = error
    }
}
