import DBusTransport
import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import SharedDeviceSimulation
import Testing

@testable import SharedDeviceBroker

@Suite("The provider ends somebody's session while they sign in")
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

    /// Somebody has given their answer on the page, and the exchange of the code is under way.
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
        "an end that comes during the exchange signs nobody in, by whichever name it names the session",
        arguments: [("ada", nil), (nil, "sid"), ("ada", "sid")] as [(String?, String?)],
        [true, false]
    )
    func exchange(_ names: (String?, String?), hasDate: Bool) throws {
        let number = try exchange()
        try report(ended(names.0, session: names.1, hasDate ? now : nil))
        device.letProviderAnswer()
        expectNobody(number)
    }

    @Test("an end that comes while the person is at another device signs nobody in", arguments: [true, false])
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

    @Test("an end of another person, of another session, or of before the sign-in ends nothing")
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

    @Test("an end from before the sign-in has the provider asked as soon as the person is signed in")
    func stale() throws {
        let number = try exchange()
        try report(ended("ada", now - 61))
        device.letProviderAnswer()
        try device.expectAnswer(number, "username", .string("ada"))
        device.expectRenewals(1)
    }

    @Test("a doubt that comes during the sign-in has the provider asked afterwards", arguments: ["ada", nil, "grace"])
    func doubt(about person: String?) throws {
        let number = try exchange()
        try report(ProviderEvent(.doubt, issuer: Self.issuer, subject: person, date: now))
        device.letProviderAnswer()
        try device.expectAnswer(number, "username", .string("ada"))
        device.holdsProvider = false
        device.advance(by: .seconds(31))
        #expect(device.provider.renewals.count == (person == "grace" ? 0 : 1))
    }

    @Test("a clock that is set during the sign-in makes no end one of before it", arguments: [-7200.0, 7200])
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

    @Test("an end while the session is written signs nobody in, however long the disk takes")
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

    @Test("who has to prove again who they are, and whose new session ends meanwhile, has proved nothing")
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
        "credentials that change during the sign-in ask for another proof, also while the session is written",
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

    @Test("the next sign-in is not held to what was told during the last one")
    func forgotten() throws {
        let name = try device.beginPage(prompt)
        try report(ended("ada", now))
        try device.ask(prompt, .cancelSignIn(label: name))
        #expect(device.state.provider.heard.count == 0)
        try device.signInAtProvider("ada", by: prompt)
        // Nor is one that has begun since, while another one goes on.
        try device.signOut(by: device.app("org.example.till"))
        _ = try device.beginPage(device.app("org.example.other", user: 1001))
        try report(ended("ada", now))
        device.advance(by: .seconds(1))
        try device.signInAtProvider("ada", by: prompt)
        device.expectSignedIn()
    }

    @Test("what is remembered is bounded; where something was forgotten, nobody is signed in who may have been meant")
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

    @Test("what was forgotten may have meant only those who had begun to sign in when it was heard")
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

    @Test("long names fill no memory either")
    func boundedBytes() throws {
        let number = try exchange()
        for round in 0..<100 { try report(ended(String(repeating: "x", count: 10_000) + "\(round)", now)) }
        #expect(device.state.provider.heard.bytes <= 256 << 10)
        device.letProviderAnswer()
        device.expectRefused(number, code: .interactionRequired)
    }
}
