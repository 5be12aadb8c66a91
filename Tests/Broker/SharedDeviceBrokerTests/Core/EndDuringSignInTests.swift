import DBus
import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import Testing
import simulate

@testable import BrokerCore

@Suite("The provider ends a user's session during the user's sign-in")
struct EndDuringSignInTests {
    private let device = VirtualDevice()
    /// The time of the device at the start of a test.
    private static let start = Date(timeIntervalSince1970: 1_000_000)

    init() throws { try device.useOrganisation() }

    private static func event(
        _ kind: ProviderEvent.Kind = .ended,
        _ person: String? = "ada",
        session: String? = nil,
        issuer: String = VirtualProvider.issuer,
        at date: Date? = Self.start
    ) -> ProviderEvent {
        ProviderEvent(kind, issuer: issuer, subject: person, session: session, date: date)
    }

    /// Completes the page as Ada. The exchange of the code, or the write of her session, is then in flight.
    private func answerPage(isWritten: Bool = false) throws -> UInt64 {
        let name = try device.beginPage()
        if isWritten { device.diskMode = .holds } else { device.holdsProvider = true }
        return device.sendPage(name)
    }

    /// Lets the exchange or the write go on.
    private func resume() {
        device.letProviderAnswer()
        device.resumeDisk()
    }

    private func expectNobody(_ number: UInt64) {
        let refusal = device.refusal(number)
        #expect(refusal?.code == .interactionRequired && refusal?.description.contains("has ended") == true)
        device.expectSignedOut()
        #expect(device.state.signIns.prompts.isEmpty)
        device.expectEnds(of: ["ada"])
        device.advance(by: .seconds(1))
        #expect(device.disk.device.account == nil)
    }

    private func expectAda(_ number: UInt64) throws { try device.expectAnswer(number, "username", .string("ada")) }

    @Test(
        "an end during the exchange prevents the sign-in, whichever names it gives",
        arguments: [("ada", nil), (nil, "sid"), ("ada", "sid")] as [(String?, String?)],
        [start, nil]
    )
    func exchange(_ names: (String?, String?), date: Date?) throws {
        let number = try answerPage()
        try device.report(Self.event(.ended, names.0, session: names.1, at: date))
        resume()
        expectNobody(number)
    }

    @Test("an end during a device-code sign-in prevents the sign-in", arguments: [true, false])
    func deviceCode(isPolled: Bool) throws {
        let name = try device.begin(by: device.prompt)
        let number = device.send(device.prompt, .awaitSignIn(name: name, patience: .seconds(60)))
        if isPolled {
            device.holdsProvider = true
            device.advance(by: .seconds(3))
        }
        try device.report(Self.event(at: device.now.wall))
        device.provider.polled = .success("ada")
        resume()
        device.advance(by: .seconds(3))
        expectNobody(number)
    }

    /// Events, and how many checks each of them causes.
    private static let harmless: [(ProviderEvent, Int)] = [
        (event(.ended, "grace"), 0), (event(session: "another"), 0), (event(issuer: "https://other.example"), 0),
        // This event may be about a session that is older than the sign-in.
        (event(at: start - 61), 1),
        (event(.doubt, "grace"), 0), (event(.doubt, "ada"), 1), (event(.doubt, nil), 1),
    ]

    @Test("an event that does not end this session leads at most to a check", arguments: harmless)
    func others(event: ProviderEvent, checks: Int) throws {
        let number = try answerPage()
        try device.report(event)
        resume()
        try expectAda(number)
        device.advance(by: .seconds(31))
        device.expectRenewals(checks)
    }

    @Test("a clock change during a sign-in does not make an end older than the sign-in", arguments: [-7200.0, 7200])
    func clock(change: Double) throws {
        let name = try device.beginPage()
        device.advance(by: .seconds(30))
        device.setClock(forwardBy: change)
        device.holdsProvider = true
        let number = device.sendPage(name)
        try device.report(Self.event(at: device.now.wall))
        resume()
        expectNobody(number)
    }

    @Test("an end during the session's write prevents the sign-in, however slow the disk")
    func slowDisk() throws {
        let number = try answerPage(isWritten: true)
        device.advance(by: .seconds(100))
        try device.report(Self.event())
        resume()
        expectNobody(number)
    }

    @Test("a reauthentication does not count if its new session ends first")
    func again() throws {
        let epoch = try device.signInAtProvider()
        try device.report(Self.event(.reauthenticate))
        device.provider.session = "second"
        let number = try answerPage()
        try device.report(Self.event(session: "second"))
        resume()
        device.expectRefused(number, code: .interactionRequired)
        device.expectPersonWanted()
        device.expectEpoch(epoch)
        #expect(device.provider.ends.map(\.session) == ["second"])
    }

    @Test("credentials changed during the sign-in require reauthentication", arguments: [true, false])
    func credentialChange(isWritten: Bool) throws {
        let number = try answerPage(isWritten: isWritten)
        try device.report(Self.event(.reauthenticate))
        resume()
        try expectAda(number)
        device.expectPersonWanted()
    }

    @Test("an end reported during one sign-in does not affect the next one")
    func forgotten() throws {
        let name = try device.beginPage()
        try device.report(Self.event())
        try device.ask(device.prompt, .cancelSignIn(label: name))
        #expect(device.state.provider.heard.count == 0)
        try device.signInAtProvider()
        // The same holds for a sign-in that began after the report, while another sign-in goes on.
        try device.signOut(by: device.app("org.example.till"))
        _ = try device.beginPage(device.app("org.example.other", user: 1001))
        try device.report(Self.event())
        device.advance(by: .seconds(1))
        try device.signInAtProvider()
        device.expectSignedIn()
    }

    @Test(
        "remembered ends are bounded, and after an overflow the sign-in is refused",
        arguments: [(1200, "person"), (100, String(repeating: "x", count: 10_000))]
    )
    func bounded(count: Int, name: String) throws {
        let number = try answerPage()
        for person in 0..<count { try device.report(Self.event(.ended, "\(name) \(person)")) }
        #expect(device.state.provider.heard.count <= 1000 && device.state.provider.heard.bytes <= 256 << 10)
        resume()
        device.expectRefused(number, code: .interactionRequired)
        device.expectSignedOut()
        try device.signInAtProvider()
        #expect(device.state.provider.heard.count == 0)
    }

    @Test("an overflow during the session's write leads to a check")
    func boundedDuringWrite() throws {
        let number = try answerPage(isWritten: true)
        for person in 0..<1200 { try device.report(Self.event(.ended, "person \(person)")) }
        resume()
        try expectAda(number)
        device.advance(by: .seconds(31))
        device.expectRenewals(1)
    }

    @Test("an overflow affects only sign-ins that had begun when it happened")
    func boundedForOthers() throws {
        _ = try device.beginPage(device.app("org.example.other", user: 1001))
        for person in 0..<1000 { try device.report(Self.event(.ended, "person \(person)")) }
        device.advance(by: .seconds(1))
        let number = try answerPage()
        try device.report(Self.event(.ended, "grace"))
        resume()
        try expectAda(number)
    }
}
