import DeviceConfiguration
import Foundation
import Identity
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import SharedDeviceBroker

@Suite("How long a session lasts without confirmation after the device has slept")
struct SleepTests {
    private let device = VirtualDevice()
    private let prompt: VirtualDevice.App
    private let service: VirtualDevice.App
    private static let away = IdentityError(.providerUnavailable, "no network")

    init() throws {
        try device.useOrganisation(", \"offlineGrace\": 3600")
        prompt = device.app("org.example.prompt")
        service = device.app(nil, user: 0, isAdministrator: true)
    }

    private var lastEnd: String? { device.journal.last { $0.event == .signedOut }?.detail }

    @Test("a network that returns soon after a sleep saves the session, once per good check")
    func networkAfterSleep() throws {
        let epoch = try device.signInAtProvider("ada", by: prompt)
        device.provider.outcome = .unavailable(Self.away, mayBeUsed: false)
        device.sleep(for: .seconds(50_000))
        device.feed(.time)
        device.advance(by: .seconds(3))
        device.expectSignedIn()
        #expect(device.state.provider.problem != nil)
        // The first check has failed. The return of the network triggers the next one at once.
        device.provider.outcome = nil
        try device.ask(service, .providerEvents([ProviderEvent(.networkUp, issuer: VirtualProvider.issuer)]))
        device.advance(by: .seconds(1))
        device.expectSignedIn()
        #expect(device.state.device.epoch == epoch && device.state.provider.problem == nil)
        // Without a network the session ends, and another sleep does not extend it.
        device.provider.outcome = .unavailable(Self.away, mayBeUsed: false)
        device.sleep(for: .seconds(50_000))
        device.feed(.time)
        device.advance(by: .seconds(60))
        device.expectSignedIn()
        device.sleep(for: .seconds(20))
        device.feed(.time)
        device.expectSignedIn()
        device.advance(by: .seconds(15))
        device.expectSignedOut()
        #expect(lastEnd?.hasPrefix("offline for ") == true)
    }

    @Test(
        "a check that failed or hung before a sleep does not end the session right after",
        arguments: [true, false],
        [Event.time, .busRestored]
    )
    func questionBeforeSleep(hasFailed: Bool, first: Event) throws {
        try device.signInAtProvider("ada", by: prompt)
        if hasFailed {
            device.provider.outcome = .unavailable(Self.away, mayBeUsed: false)
        } else {
            device.provider.hangs = true
        }
        device.advance(by: .seconds(2400))
        device.expectSignedIn()
        #expect((device.state.provider.problem != nil) == hasFailed)
        device.sleep(for: .seconds(50_000))
        device.feed(first)
        device.advance(by: .seconds(60))
        device.expectSignedIn()
        device.advance(by: .seconds(40))
        device.expectSignedOut()
    }

    @Test("without grace a sleep before the last good check gives no extra time")
    func sleepBeforeGoodWord() throws {
        try device.useOrganisation(", \"offlineGrace\": 0")
        try device.signInAtProvider("ada", by: prompt)
        device.sleep(for: .seconds(10))
        device.feed(.time)
        device.advance(by: .seconds(1))
        device.expectSignedIn()
        #expect(device.state.provider.problem == nil)
        device.provider.outcome = .unavailable(Self.away, mayBeUsed: false)
        device.advance(by: .seconds(40))
        try device.ask(service, .providerEvents([ProviderEvent(.networkUp, issuer: VirtualProvider.issuer)]))
        device.advance(by: .seconds(1))
        device.expectSignedOut()
    }
}
