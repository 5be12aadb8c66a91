import DBus
import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("The provider ends a user's session during the user's sign-in")
struct EndDuringSignInTests {
    private let device = VirtualDevice()
    private let prompt: VirtualDevice.App
    private let service: VirtualDevice.App
    private static let issuer = VirtualProvider.issuer

    init() throws {
        try device.useOrganisation()
        prompt = device.app("org.example.prompt")
        service = device.app(nil, user: 0, isAdministrator: true)
    }

    private var now: Date { device.now.wall }

    private func report(_ events: ProviderEvent...) throws { try device.ask(service, .providerEvents(events)) }

    private func ended(_ person: String? = "ada", session: String? = nil, _ date: Date? = nil) -> ProviderEvent {
        ProviderEvent(.ended, issuer: Self.issuer, subject: person, session: session, date: date)
    }

    /// The user has answered on the page, and the exchange of the code is in flight.
    private func exchange(_ person: String = "ada") throws -> UInt64 {
        let name = try device.beginPage(prompt)
        device.holdsProvider = true
        return device.send(prompt, device.answerPage(name, person))
    }

    private func expectNobody(_ number: UInt64) {
        let refusal = device.refusal(number)
        #expect(refusal?.code == .interactionRequired && refusal?.description.contains("has ended") == true)
        device.expectSignedOut()
        #expect(device.state.prompts.isEmpty)
        device.expectEnds(of: ["ada"])
        device.advance(by: .seconds(1))
        #expect(device.disk.device.account == nil)
    }

    @Test(
        "an end during the exchange prevents the sign-in, whichever names it gives",
        arguments: [("ada", nil), (nil, "sid"), ("ada", "sid")] as [(String?, String?)],
        [true, false]
    )
    func exchange(_ names: (String?, String?), hasDate: Bool) throws {
        let number = try exchange()
        try report(ended(names.0, session: names.1, hasDate ? now : nil))
        device.letProviderAnswer()
        expectNobody(number)
    }

    @Test("an end during a device-code sign-in prevents the sign-in", arguments: [true, false])
    func deviceCode(isPolled: Bool) throws {
        let begun = try device.ask(prompt, .beginSignIn(Request.PromptWish()))
        let name = try #require(begun["request"]?.stringValue)
        let number = device.send(prompt, .awaitSignIn(name: name, patience: .seconds(60)))
        if isPolled {
            device.holdsProvider = true
            device.advance(by: .seconds(3))
        }
        try report(ended("ada", now))
        device.provider.polled = .success("ada")
        device.letProviderAnswer()
        device.advance(by: .seconds(3))
        expectNobody(number)
    }

    @Test("an end of another user, session or issuer is ignored")
    func others() throws {
        let number = try exchange()
        try report(
            ended("grace", now),
            ended("ada", session: "another", now),
            ProviderEvent(.ended, issuer: "https://other.example", subject: "ada", date: now)
        )
        device.letProviderAnswer()
        try device.expectAnswer(number, "username", .string("ada"))
        device.expectRenewals(0)
    }

    @Test("an end dated before the sign-in makes the broker check with the provider")
    func stale() throws {
        let number = try exchange()
        try report(ended("ada", now - 61))
        device.letProviderAnswer()
        try device.expectAnswer(number, "username", .string("ada"))
        device.expectRenewals(1)
    }

    @Test("a doubt reported during the sign-in makes the broker check afterwards", arguments: ["ada", nil, "grace"])
    func doubt(about person: String?) throws {
        let number = try exchange()
        try report(ProviderEvent(.doubt, issuer: Self.issuer, subject: person, date: now))
        device.letProviderAnswer()
        try device.expectAnswer(number, "username", .string("ada"))
        device.holdsProvider = false
        device.advance(by: .seconds(31))
        #expect(device.provider.renewals.count == (person == "grace" ? 0 : 1))
    }

    @Test("setting the clock during the sign-in does not make an end look older than it", arguments: [-7200.0, 7200])
    func clock(change: Double) throws {
        let name = try device.beginPage(prompt)
        device.advance(by: .seconds(30))
        device.setClock(forwardBy: change)
        device.holdsProvider = true
        let number = device.send(prompt, device.answerPage(name, "ada"))
        try report(ended("ada", now))
        device.letProviderAnswer()
        expectNobody(number)
    }

    @Test("an end during the session's write prevents the sign-in, however slow the disk")
    func slowDisk() throws {
        let name = try device.beginPage(prompt)
        device.diskMode = .holds
        let number = device.send(prompt, device.answerPage(name, "ada"))
        let date = now
        device.advance(by: .seconds(100))
        try report(ended("ada", date))
        device.diskMode = .commits
        device.finishWriting()
        expectNobody(number)
    }

    @Test("a reauthentication does not count if its new session ends first")
    func again() throws {
        let epoch = try device.signInAtProvider("ada", by: prompt)
        try report(ProviderEvent(.reauthenticate, issuer: Self.issuer, subject: "ada", date: now))
        device.provider.session = "second"
        let number = try exchange()
        try report(ended("ada", session: "second", now))
        device.letProviderAnswer()
        device.expectRefused(number, code: .interactionRequired)
        #expect(device.state.device.epoch == epoch && device.state.provider.needsPerson)
        #expect(device.provider.ends.map(\.session) == ["second"])
    }

    @Test(
        "credentials changed during the sign-in require reauthentication",
        arguments: [true, false]
    )
    func credentialChange(isWritten: Bool) throws {
        let change = ProviderEvent(.reauthenticate, issuer: Self.issuer, subject: "ada", date: now)
        let number: UInt64
        if isWritten {
            let name = try device.beginPage(prompt)
            device.diskMode = .holds
            number = device.send(prompt, device.answerPage(name, "ada"))
            try report(change)
            device.diskMode = .commits
            device.finishWriting()
        } else {
            number = try exchange()
            try report(change)
            device.letProviderAnswer()
        }
        try device.expectAnswer(number, "username", .string("ada"))
        device.expectPersonWanted()
    }

    @Test("an end reported during one sign-in does not affect the next one")
    func forgotten() throws {
        let name = try device.beginPage(prompt)
        try report(ended("ada", now))
        try device.ask(prompt, .cancelSignIn(label: name))
        #expect(device.state.provider.heard.count == 0)
        try device.signInAtProvider("ada", by: prompt)
        // The same holds for a sign-in that began after the report, while another sign-in goes on.
        try device.signOut(by: device.app("org.example.till"))
        _ = try device.beginPage(device.app("org.example.other", user: 1001))
        try report(ended("ada", now))
        device.advance(by: .seconds(1))
        try device.signInAtProvider("ada", by: prompt)
        device.expectSignedIn()
    }

    @Test("remembered ends are bounded, and after an overflow the sign-in is refused")
    func bounded() throws {
        let number = try exchange()
        for round in 0..<12 {
            let events = (0..<100).map { ended("person \(round * 100 + $0)", now) }
            try device.ask(service, .providerEvents(events))
        }
        #expect(device.state.provider.heard.count <= 1000)
        device.letProviderAnswer()
        device.expectRefused(number, code: .interactionRequired)
        device.expectSignedOut()
        try device.signInAtProvider("ada", by: prompt)
        #expect(device.state.provider.heard.count == 0)
    }

    @Test("an overflow affects only sign-ins that had begun when it happened")
    func boundedForOthers() throws {
        _ = try device.beginPage(device.app("org.example.other", user: 1001))
        for round in 0..<10 {
            let events = (0..<100).map { ended("person \(round * 100 + $0)", now) }
            try device.ask(service, .providerEvents(events))
        }
        device.advance(by: .seconds(1))
        let number = try exchange()
        try report(ended("grace", now))
        device.letProviderAnswer()
        try device.expectAnswer(number, "username", .string("ada"))
    }

    @Test("long names do not exceed the memory limit")
    func boundedBytes() throws {
        let number = try exchange()
        for round in 0..<100 { try report(ended(String(repeating: "x", count: 10_000) + "\(round)", now)) }
        #expect(device.state.provider.heard.bytes <= 256 << 10)
        device.letProviderAnswer()
        device.expectRefused(number, code: .interactionRequired)
    }
}
