import DBus
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

/// Ada is signed in with the provider, and the grace is an hour.
@Suite("How long a session lasts without confirmation by the provider")
struct ProviderWordTests {
    private let device = VirtualDevice()

    init() throws {
        try device.useOrganisation(", \"offlineGrace\": 3600")
        try device.signInAtProvider()
    }

    /// Expects how many renewals were sent so far, and which of them were sent with a record in doubt.
    private func expectDoubts(_ mayBeUsed: [Bool], sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(device.provider.renewals.map(\.mayBeUsed) == mayBeUsed, sourceLocation: sourceLocation)
    }

    /// Expects that the session lasts this long, and ends at most `more` later.
    private func expectEnd(
        after duration: Duration,
        within more: Duration,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        device.expectSignedIn(after: duration, sourceLocation: sourceLocation)
        device.expectSignedOut(after: more, sourceLocation: sourceLocation)
    }

    /// Ada authenticates again, which begins another session at the provider.
    private func authenticateAgain() throws {
        try device.demandPerson()
        device.provider.session = "second"
        try device.signInAtProvider()
    }

    @Test("a pending token request is refused once reauthentication is required")
    func tokenAfterDemand() throws {
        _ = try device.token([])
        let other = device.app("org.example.till")
        device.diskMode = .holds
        let request = device.send(other, device.acquireToken(for: "ada", []))
        device.expectUnanswered(request)
        device.send(device.identityService, .providerEvents([.of(.reauthenticate, "ada", at: device.now.wall)]))
        device.resumeDisk()
        device.expectRefused(request, code: .interactionRequired)
    }

    // MARK: Grace

    @Test(
        "the session ends with its grace, over a restart and whatever prevents the check",
        arguments: [
            .noNetwork,
            .unavailable(IdentityError(.providerMisconfigured, "responds with another address"), mayBeUsed: true),
            .unavailable(IdentityError(.providerFailed, "not of one version"), mayBeUsed: true),
            .misconfigured(IdentityError(.providerMisconfigured, "no such client")), .scopeRefused,
        ] as [RenewalOutcome]
    )
    func grace(_ outcome: RenewalOutcome) throws {
        device.provider.outcome = outcome
        device.advance(by: .seconds(3590))
        let status = try device.ask(device.till, .deviceInformation)["providerProblem"]?.stringValue
        #expect(status?.contains("the user stays signed in until ") == true)
        // A failure does not change the interval of the checks.
        #expect((10...13).contains(device.provider.renewals.count))
        device.restart()
        expectEnd(after: .seconds(9), within: .seconds(3))
        #expect(device.disk.entries(.signedOut).last?.detail?.hasPrefix("offline for 360") == true)
    }

    @Test(
        "a full or hanging disk or a hanging provider ends the session with its grace",
        arguments: [.fails("the disk is full"), .holds, nil] as [VirtualDevice.DiskMode?]
    )
    func standstill(of disk: VirtualDevice.DiskMode?) {
        if let disk { device.diskMode = disk } else { device.provider.hangs = true }
        expectEnd(after: .seconds(3590), within: .seconds(400))
        device.expectRenewals(disk == nil ? 1 : 0)
        let isNamed = device.signOutCauses.last?.contains("the disk is full") == true
        #expect(isNamed == (disk == .fails("the disk is full")))
    }

    @Test("without grace a failed check or a missing reauthentication ends the session")
    func noGrace() throws {
        try device.useOrganisation(", \"offlineGrace\": 0")
        device.expectSignedIn(after: .seconds(3600))
        device.provider.hangs = true
        expectEnd(after: device.state.provider.nextRequest - device.now.uptime + .seconds(89), within: .seconds(2))
        device.provider.hangs = false
        device.feed(.renewed(device.state.provider.lastNumber, .unavailable(.noNetwork, mayBeUsed: true)))
        try device.signInAtProvider()
        device.provider.outcome = .noNetwork
        device.expectSignedOut(after: .seconds(331))
        device.provider.outcome = nil
        // The user has a prompt's time, which a restart does not extend.
        try device.signInAtProvider()
        try device.demandPerson()
        device.expectSignedIn(after: .seconds(590))
        device.restart()
        device.expectSignedOut(after: .seconds(1))
    }

    @Test("a device that was off for longer than the grace checks before it signs out")
    func longNight() {
        let epoch = device.state.device.epoch
        device.feed(.ending)
        device.pause(for: .seconds(50_000))
        device.restart()
        device.expectSignedIn()
        device.expectEpoch(epoch)
        device.expectSignedIn(after: .seconds(600))
        // The same holds if the broker got no event for as long.
        device.pause(for: .seconds(50_000))
        device.feed(.time)
        device.expectSignedIn(after: .seconds(1))
        #expect(device.state.provider.problem == nil)
    }

    // MARK: Sleep

    private func sleep(for duration: Duration) {
        device.sleep(for: duration)
        device.feed(.time)
    }

    @Test("a network that returns soon after a sleep saves the session, once per good check")
    func networkAfterSleep() throws {
        let epoch = device.state.device.epoch
        device.provider.outcome = .noNetwork
        sleep(for: .seconds(50_000))
        device.expectSignedIn(after: .seconds(3))
        #expect(device.state.provider.problem != nil)
        // The first check has failed. The return of the network triggers the next one at once.
        device.provider.outcome = nil
        try device.report(.of(.networkUp))
        device.expectSignedIn(after: .seconds(1))
        #expect(device.state.device.epoch == epoch && device.state.provider.problem == nil)
        // Without a network the session ends, and another sleep does not extend it.
        device.provider.outcome = .noNetwork
        sleep(for: .seconds(50_000))
        device.expectSignedIn(after: .seconds(60))
        sleep(for: .seconds(20))
        device.expectSignedIn()
        device.expectSignedOut(after: .seconds(15))
        #expect(device.signOutCauses.last?.hasPrefix("offline for ") == true)
    }

    @Test(
        "a check that failed or hung before a sleep does not end the session right after",
        arguments: [true, false],
        [Event.time, .busRestored]
    )
    func questionBeforeSleep(hasFailed: Bool, first: Event) {
        if hasFailed { device.provider.outcome = .noNetwork } else { device.provider.hangs = true }
        device.expectSignedIn(after: .seconds(2400))
        #expect((device.state.provider.problem != nil) == hasFailed)
        device.sleep(for: .seconds(50_000))
        device.feed(first)
        device.expectSignedIn(after: .seconds(60))
        device.expectSignedOut(after: .seconds(40))
    }

    @Test("without grace a sleep before the last good check gives no extra time")
    func sleepBeforeGoodWord() throws {
        try device.useOrganisation(", \"offlineGrace\": 0")
        sleep(for: .seconds(10))
        device.expectSignedIn(after: .seconds(1))
        #expect(device.state.provider.problem == nil)
        device.provider.outcome = .noNetwork
        device.advance(by: .seconds(40))
        try device.report(.of(.networkUp))
        device.expectSignedOut(after: .seconds(1))
    }

    // MARK: Reauthentication

    @Test("without reauthentication the session ends with the grace")
    func demand() throws {
        device.provider.outcome = .noNetwork
        device.advance(by: .seconds(2000))
        try device.demandPerson()
        device.advance(by: .seconds(1590))
        // A repeated demand does not extend the deadline.
        try device.demandPerson()
        expectEnd(after: .zero, within: .seconds(12))
        #expect(device.signOutCauses.last?.contains("has not signed in again") == true)
    }

    @Test("while the user must reauthenticate, a renewal gives no token or ends the session")
    func demandDuringRenewal() throws {
        device.holdsProvider = true
        device.advance(by: .seconds(331))
        #expect(device.state.provider.renewal != nil)
        let newest = device.provider.record(of: "ada")
        try device.demandPerson()
        device.letProviderAnswer()
        #expect(device.state.providerRecord == newest && device.state.provider.tokens.common(at: device.now) == nil)
        device.expectRefused(device.requestToken(["openid"]), code: .interactionRequired)
        try device.signOut(by: device.app("org.example.notes"))
        #expect(device.provider.ends == [newest])
        try device.signInAtProvider()
        device.holdsProvider = true
        device.provider.outcome = .sessionOver
        device.advance(by: .seconds(331))
        try device.demandPerson()
        device.letProviderAnswer()
        device.expectSignedOut()
    }

    // MARK: Starts

    @Test(
        "a restart trusts a settled record and signs out a user disabled since",
        arguments: [true, false],
        [
            nil, .misconfigured(IdentityError(.providerMisconfigured, "no such client")), .noNetwork, .scopeRefused,
        ] as [RenewalOutcome?]
    )
    func start(isCrash: Bool, lastWord: RenewalOutcome?) {
        device.provider.outcome = lastWord
        device.advance(by: .seconds(340))
        expectDoubts([false])
        if !isCrash { device.feed(.ending) }
        device.provider.outcome = .sessionOver
        device.restart()
        expectDoubts([false, false])
        device.expectSignedOut()
    }

    @Test("a broker that ended during a renewal doubts its record, and sends none then")
    func startAfterQuestion() {
        device.provider.hangs = true
        device.restart()
        device.restart()
        expectDoubts([false, true])
        device.provider.hangs = false
        device.restart()
        device.advance(by: .seconds(1))
        device.restart()
        expectDoubts([false, true, true, false])
        device.expectSignedIn()
        device.holdsProvider = true
        device.advance(by: .seconds(331))
        device.feed(.ending)
        device.restart()
        expectDoubts([false, true, true, false, false, true])
        device.feed(.ending)
        device.expectRenewals(6, after: .seconds(400))
    }

    @Test("a renewal is sent only after the disk has noted it")
    func questionIsNoted() {
        device.advance(by: .seconds(1))
        device.diskMode = .holds
        device.requestToken()
        device.expectRenewals(0)
        #expect(device.held?.provider??.isSettled == false)
        device.resumeDisk()
        device.expectRenewals(1)
    }

    // Without the bus no response could arrive.
    @Test("without its bus name the broker sends no renewal, and the grace goes on")
    func withoutBus() {
        device.feed(.busLost(mark: 1))
        device.expectRenewals(0, after: .seconds(3000))
        device.expectSignedIn()
        device.feed(.busRestored)
        device.expectRenewals(1)
        device.feed(.busLost(mark: 1))
        device.expectSignedOut(after: .seconds(4000))
        device.expectEnds(0)
        device.feed(.busRestored)
        device.expectEnds(1)
    }

    // MARK: Back-off

    @Test("requests to an unavailable provider back off, and cached tokens are still used")
    func pauses() throws {
        let token = try device.token()
        device.provider.outcome = .noNetwork
        let before = device.provider.renewals.count
        for _ in 1...100 { device.expectRefused(device.requestToken(refresh: true), code: .providerUnavailable) }
        #expect(try device.token() == token)
        device.expectRenewals(before + 2)
        for _ in 1...600 {
            device.advance(by: .seconds(1))
            device.requestToken(["orders", "profile"], refresh: true)
        }
        // Each pause doubles, up to a minute.
        #expect((before + 10...before + 18).contains(device.provider.renewals.count))
        device.provider.outcome = nil
        device.advance(by: .seconds(60))
        #expect(try device.token(refresh: true) != token)
        let after = device.provider.renewals.count
        #expect(try device.token(refresh: true) != token)
        device.expectRenewals(after + 1)
    }

    @Test("the log has the first failed renewal, another reason, and the recovery")
    func failureLog() {
        func renew(_ outcome: RenewalOutcome?) {
            device.provider.outcome = outcome
            for _ in 1...3 {
                device.advance(by: .seconds(120))
                device.requestToken(refresh: true)
            }
        }
        renew(.noNetwork)
        renew(.unavailable(IdentityError(.providerFailed, "another reason"), mayBeUsed: false))
        renew(nil)
        let notes = device.notes.filter { $0.hasPrefix("the provider gives") }
        let failure = "the provider gives no token"
        #expect(notes == [failure, failure, "the provider gives tokens again"])
    }

    // MARK: Revocation

    @Test("reauthentication revokes the old tokens, which puts the next renewal in doubt")
    func replaced() throws {
        let epoch = device.state.device.epoch
        let first = try #require(device.state.providerRecord)
        try authenticateAgain()
        device.expectEnds(0)
        #expect(device.provider.revocations == [first])
        device.expectEpoch(epoch)
        device.advance(by: .seconds(1))
        device.restart()
        #expect(device.provider.renewals.last?.mayBeUsed == true)
        device.advance(by: .seconds(331))
        #expect(device.provider.renewals.last?.mayBeUsed == false)
        // The second reauthentication keeps the provider's session. The old tokens end with that session, and revoking
        // them might end it.
        for app in [device.prompt, device.identityService] { device.reconnect(app) }
        try authenticateAgain()
        #expect(device.provider.revocations.count == 1)
        device.advance(by: .seconds(1))
        #expect(device.disk.outbox.isEmpty)
    }

    @Test("a renewal that completes after the reauthentication is revoked too")
    func late() throws {
        device.provider.hangs = true
        device.requestToken()
        let number = device.state.provider.lastNumber
        try authenticateAgain()
        // The record is not revoked before the renewal's response. A provider may end the whole session if a refresh
        // token is used twice.
        #expect(device.provider.revocations.isEmpty)
        device.provider.session = "sid"
        let answer = device.provider.renewed(device.provider.record(of: "ada"), ["orders"], at: device.now)
        let newest = device.provider.record(of: "ada")
        device.provider.session = "second"
        device.provider.hangs = false
        device.feed(.renewed(number, answer))
        device.expectEnds(0)
        #expect(device.provider.revocations == [newest])
        #expect(device.state.providerRecord?.session == "second")
    }

    @Test("a pending revocation survives a restart")
    func replacedOverStart() throws {
        try device.demandPerson()
        device.provider.session = "second"
        let name = try device.beginPage()
        device.provider.error = .noNetwork
        try device.ask(device.prompt, device.answerPage(name, "ada"))
        #expect(device.provider.revocations.count == 1)
        device.restart()
        device.expectEnds(0)
        #expect(device.provider.revocations.count == 2)
        // An earlier attempt at the revocation may have succeeded unnoticed.
        #expect(device.provider.renewals.last?.mayBeUsed == true)
    }
}
