import DBus
import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("How long a session lasts without confirmation by the provider")
struct ProviderWordTests {
    private let device = VirtualDevice()
    private let prompt: VirtualDevice.App
    private let till: VirtualDevice.App
    private let service: VirtualDevice.App
    private static let away = IdentityError(.providerUnavailable, "no network")

    init() throws {
        try device.useOrganisation(", \"offlineGrace\": 3600")
        (prompt, till) = (device.app("org.example.prompt"), device.app("org.example.till"))
        service = device.app(nil, user: 0, isAdministrator: true)
    }

    private var lastEnd: String? { device.journal.last { $0.event == .signedOut }?.detail }

    private var reauthentication: ProviderEvent {
        ProviderEvent(.reauthenticate, issuer: VirtualProvider.issuer, subject: "ada", date: device.now.wall)
    }

    private func demandPerson() throws { try device.ask(service, .providerEvents([reauthentication])) }

    @Test("a pending token request is refused once reauthentication is required")
    func tokenAfterDemand() throws {
        try device.signInAtProvider("ada", by: prompt)
        _ = try device.token(for: "ada", [], by: till)
        let other = device.app("org.example.till")
        device.diskMode = .holds
        let request = device.send(other, device.acquireToken(for: "ada", []))
        device.expectUnanswered(request)
        device.send(service, .providerEvents([reauthentication]))
        device.diskMode = .commits
        device.finishWriting()
        device.expectRefused(request, code: .interactionRequired)
    }

    // MARK: Grace

    @Test(
        "the session ends with its grace, whatever prevents the check",
        arguments: [
            .unavailable(away, mayBeUsed: false),
            .unavailable(IdentityError(.providerMisconfigured, "answers with another address"), mayBeUsed: true),
            .unavailable(IdentityError(.providerFailed, "not of one version"), mayBeUsed: true),
            .misconfigured(IdentityError(.providerMisconfigured, "no such client")),
        ] as [RenewalOutcome]
    )
    func grace(_ outcome: RenewalOutcome) throws {
        try device.signInAtProvider("ada", by: prompt)
        device.provider.outcome = outcome
        device.advance(by: .seconds(3590))
        device.expectSignedIn()
        let status = try device.ask(till, .deviceInformation)["providerProblem"]?.stringValue
        #expect(status?.contains("the user stays signed in until ") == true)
        device.advance(by: .seconds(12))
        device.expectSignedOut()
        #expect(lastEnd?.hasPrefix("offline for 360") == true)
    }

    @Test("a full disk prevents checks, and the session ends with its grace")
    func fullDisk() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.diskMode = .fails("the disk is full")
        device.advance(by: .seconds(3540))
        device.expectSignedIn()
        device.expectRenewals(0)
        device.advance(by: .seconds(400))
        device.expectSignedOut()
        #expect(lastEnd?.contains("the disk is full") == true)
    }

    @Test(
        "a hanging disk or provider ends the session with its grace",
        arguments: [true, false]
    )
    func standstill(ofDisk: Bool) throws {
        try device.signInAtProvider("ada", by: prompt)
        if ofDisk { device.diskMode = .holds } else { device.provider.hangs = true }
        device.advance(by: .seconds(3590))
        device.expectSignedIn()
        device.advance(by: .seconds(400))
        device.expectSignedOut()
    }

    @Test("without grace a check may take its time, and its failure ends the session")
    func noGrace() throws {
        try device.useOrganisation(", \"offlineGrace\": 0")
        try device.signInAtProvider("ada", by: prompt)
        device.advance(by: .seconds(3600))
        device.expectSignedIn()
        device.provider.hangs = true
        device.advance(by: device.state.nextCheck - device.now.uptime + .seconds(89))
        device.expectSignedIn()
        device.advance(by: .seconds(2))
        device.expectSignedOut()
        device.provider.hangs = false
        device.feed(.renewed(device.state.provider.lastNumber, .unavailable(Self.away, mayBeUsed: true)))
        try device.signInAtProvider("ada", by: prompt)
        device.provider.outcome = .unavailable(Self.away, mayBeUsed: false)
        device.advance(by: .seconds(331))
        device.expectSignedOut()
    }

    @Test("a device that was off for longer than the grace checks before it signs out")
    func longNight() throws {
        let epoch = try device.signInAtProvider("ada", by: prompt)
        device.feed(.ending)
        device.pause(for: .seconds(50_000))
        device.restart()
        device.expectSignedIn()
        device.expectEpoch(epoch)
        device.advance(by: .seconds(600))
        device.expectSignedIn()
        // The same holds for a device that slept.
        device.pause(for: .seconds(50_000))
        device.feed(.time)
        device.advance(by: .seconds(1))
        device.expectSignedIn()
        #expect(device.state.provider.problem == nil)
    }

    // MARK: Reauthentication

    @Test("without reauthentication the session ends with the grace")
    func demand() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.provider.outcome = .unavailable(Self.away, mayBeUsed: false)
        device.advance(by: .seconds(2000))
        try demandPerson()
        device.advance(by: .seconds(1590))
        device.expectSignedIn()
        // A repeated demand does not extend the deadline.
        try demandPerson()
        device.advance(by: .seconds(12))
        device.expectSignedOut()
        #expect(lastEnd?.contains("has not signed in again") == true)
    }

    @Test("without grace the user has a prompt's time, which a restart does not extend")
    func demandWithoutGrace() throws {
        try device.useOrganisation(", \"offlineGrace\": 0")
        try device.signInAtProvider("ada", by: prompt)
        try demandPerson()
        device.advance(by: .seconds(590))
        device.expectSignedIn()
        device.restart()
        device.advance(by: .seconds(1))
        device.expectSignedOut()
    }

    @Test("a token renewed while reauthentication is required is not handed out")
    func demandDuringRenewal() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.holdsProvider = true
        device.provider.session = "sid"
        device.advance(by: .seconds(331))
        #expect(device.state.provider.renewal != nil)
        let newest = device.provider.record(of: "ada")
        try demandPerson()
        device.letProviderAnswer()
        #expect(device.state.providerRecord == newest && device.state.tokens.common(at: device.now) == nil)
        let number = device.send(till, device.acquireToken(for: "ada", ["openid"]))
        device.expectRefused(number, code: .interactionRequired)
        try device.signOut(by: device.app("org.example.notes"))
        #expect(device.provider.ends == [newest])
    }

    @Test("a renewal that says the session is over counts during a reauthentication too")
    func endDuringDemand() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.holdsProvider = true
        device.provider.outcome = .sessionOver
        device.advance(by: .seconds(331))
        try demandPerson()
        device.letProviderAnswer()
        device.expectSignedOut()
    }

    // MARK: Starts

    @Test(
        "a restart trusts a settled record and signs out a user disabled since",
        arguments: [true, false],
        [
            nil, .misconfigured(IdentityError(.providerMisconfigured, "no such client")),
            .unavailable(away, mayBeUsed: false), .scopeRefused,
        ] as [RenewalOutcome?]
    )
    func start(isCrash: Bool, lastWord: RenewalOutcome?) throws {
        try device.signInAtProvider("ada", by: prompt)
        device.provider.outcome = lastWord
        device.advance(by: .seconds(340))
        #expect(device.provider.renewals.map(\.mayBeUsed) == [false])
        if !isCrash { device.feed(.ending) }
        device.provider.outcome = .sessionOver
        device.restart()
        #expect(device.provider.renewals.map(\.mayBeUsed) == [false, false])
        device.expectSignedOut()
    }

    @Test("a broker killed during a renewal assumes that the record may be used up")
    func startAfterQuestion() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.provider.hangs = true
        device.restart()
        device.restart()
        #expect(device.provider.renewals.map(\.mayBeUsed) == [false, true])
        device.provider.hangs = false
        device.restart()
        device.advance(by: .seconds(1))
        device.restart()
        #expect(device.provider.renewals.map(\.mayBeUsed) == [false, true, true, false])
        device.expectSignedIn()
    }

    @Test("a renewal is sent only after the disk has noted it")
    func questionIsNoted() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        device.send(till, device.acquireToken(for: "ada", ["orders"]))
        device.expectRenewals(0)
        #expect(device.held?.provider??.isSettled == false)
        device.diskMode = .commits
        device.finishWriting()
        device.expectRenewals(1)
    }

    @Test("a broker that stops during a renewal doubts its record, and sends no other one")
    func stopDuringRenewal() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.holdsProvider = true
        device.advance(by: .seconds(331))
        device.feed(.ending)
        device.restart()
        #expect(device.provider.renewals.map(\.mayBeUsed) == [false, true])
        device.feed(.ending)
        device.advance(by: .seconds(400))
        device.expectRenewals(2)
    }

    // Without the bus no response could arrive.
    @Test("without its bus name the broker sends no renewal, and the grace goes on")
    func withoutBus() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.feed(.busLost(mark: 1))
        device.advance(by: .seconds(3000))
        device.expectRenewals(0)
        device.expectSignedIn()
        device.feed(.busRestored)
        device.expectRenewals(1)
        device.feed(.busLost(mark: 1))
        device.advance(by: .seconds(4000))
        device.expectSignedOut()
        device.expectEnds(0)
        device.feed(.busRestored)
        device.expectEnds(1)
    }

    // MARK: Back-off

    @Test("requests to an unavailable provider back off, and cached tokens are still used")
    func pauses() throws {
        try device.signInAtProvider("ada", by: prompt)
        let token = try device.token(for: "ada", ["orders"], by: till)
        device.provider.outcome = .unavailable(Self.away, mayBeUsed: false)
        let before = device.provider.renewals.count
        for _ in 1...100 {
            let refused = device.send(till, device.acquireToken(for: "ada", ["orders"], refresh: true))
            device.expectRefused(refused, code: .providerUnavailable)
        }
        #expect(try device.token(for: "ada", ["orders"], by: till) == token)
        device.expectRenewals(before + 2)
        for _ in 1...600 {
            device.advance(by: .seconds(1))
            device.send(till, device.acquireToken(for: "ada", ["orders", "profile"], refresh: true))
        }
        // Each pause doubles, up to a minute.
        #expect((before + 10...before + 18).contains(device.provider.renewals.count))
        device.provider.outcome = nil
        device.advance(by: .seconds(60))
        #expect(try device.token(for: "ada", ["orders"], refresh: true, by: till) != token)
        let after = device.provider.renewals.count
        #expect(try device.token(for: "ada", ["orders"], refresh: true, by: till) != token)
        device.expectRenewals(after + 1)
    }

    @Test("Retry-After is respected, up to five minutes")
    func retryAfter() throws {
        try device.signInAtProvider("ada", by: prompt)
        let busy = IdentityError(.providerUnavailable, "429", retryAfter: .seconds(100_000))
        device.provider.outcome = .unavailable(busy, mayBeUsed: false)
        device.send(till, device.acquireToken(for: "ada", ["orders"]))
        let before = device.provider.renewals.count
        for _ in 1...29 {
            device.advance(by: .seconds(10))
            device.send(till, device.acquireToken(for: "ada", ["orders"]))
        }
        device.expectRenewals(before)
        device.advance(by: .seconds(50))
        device.expectRenewals(before + 1)
    }

    // MARK: Revocation

    @Test("reauthentication revokes the old tokens and keeps the session")
    func replaced() throws {
        let epoch = try device.signInAtProvider("ada", by: prompt)
        let first = try #require(device.state.providerRecord)
        try demandPerson()
        device.provider.session = "second"
        try device.signInAtProvider("ada", by: prompt)
        device.expectEnds(0)
        #expect(device.provider.revocations == [first])
        device.expectEpoch(epoch)
        // Tokens of the same session end with it, and revoking them might end the session.
        try demandPerson()
        try device.signInAtProvider("ada", by: prompt)
        #expect(device.provider.revocations.count == 1)
        device.advance(by: .seconds(1))
        #expect(device.disk.outbox.isEmpty)
    }

    @Test("after a revocation, a refused renewal is in doubt until one succeeds")
    func revokedTogether() throws {
        func isDoubted() -> Bool? {
            device.advance(by: .seconds(331))
            return device.provider.renewals.last?.mayBeUsed
        }
        try device.signInAtProvider("ada", by: prompt)
        try demandPerson()
        device.provider.session = "second"
        try device.signInAtProvider("ada", by: prompt)
        #expect(device.provider.revocations.count == 1)
        device.advance(by: .seconds(1))
        device.restart()
        #expect(device.provider.renewals.last?.mayBeUsed == true)
        #expect(isDoubted() == false)
    }

    @Test("a renewal that completes after the reauthentication is revoked too")
    func late() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.provider.hangs = true
        device.send(till, device.acquireToken(for: "ada", ["orders"]))
        let number = device.state.provider.lastNumber
        try demandPerson()
        device.provider.session = "second"
        try device.signInAtProvider("ada", by: prompt)
        // The record is not revoked before the renewal's response. A provider may end the whole session if a refresh
        // token is used twice.
        #expect(device.provider.revocations.isEmpty)
        let session = device.provider.session
        device.provider.session = "sid"
        let answer = device.provider.renewed(device.provider.record(of: "ada"), ["orders"], at: device.now)
        let newest = device.provider.record(of: "ada")
        device.provider.session = session
        device.provider.hangs = false
        device.feed(.renewed(number, answer))
        device.expectEnds(0)
        #expect(device.provider.revocations == [newest])
        #expect(device.state.providerRecord?.session == "second")
    }

    @Test("a record renewed after the sign-out is stored, and a restart ends that session")
    func renewedAtSignOut() throws {
        try device.signInAtProvider("ada", by: prompt)
        device.provider.hangs = true
        device.send(till, device.acquireToken(for: "ada", ["orders"]))
        try device.signOut(by: till)
        device.expectEnds(0)
        let answer = device.provider.renewed(device.provider.record(of: "ada"), ["orders"], at: device.now)
        device.feed(.renewed(device.state.provider.lastNumber, answer))
        device.restart()
        let newest = device.provider.record(of: "ada")
        #expect(device.provider.ends == [newest, newest])
    }

    @Test("a pending revocation survives a restart")
    func replacedOverStart() throws {
        try device.signInAtProvider("ada", by: prompt)
        try demandPerson()
        device.provider.session = "second"
        let name = try device.beginPage(prompt)
        device.provider.error = Self.away
        try device.ask(prompt, device.answerPage(name, "ada"))
        #expect(device.provider.revocations.count == 1)
        device.restart()
        device.expectEnds(0)
        #expect(device.provider.revocations.count == 2)
        // An earlier attempt at the revocation may have succeeded unnoticed.
        #expect(device.provider.renewals.last?.mayBeUsed == true)
    }
}
