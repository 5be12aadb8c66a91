import DeviceConfiguration
import Foundation
import Identity
import SharedDevice
import SharedDeviceSimulation
import Testing

@testable import SharedDeviceBroker

@Suite("How long a session lasts without the provider's word when the device has slept")
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

    @Test("a network that comes back seconds after a sleep saves the session, once after each good word")
    func networkAfterSleep() throws {
        let epoch = try device.signInAtProvider("ada", by: prompt)
        device.provider.outcome = .unavailable(Self.away, mayBeUsed: false)
        device.sleep(for: .seconds(50_000))
        device.feed(.time)
        device.advance(by: .seconds(3))
        device.expectSignedIn()
        #expect(device.state.provider.problem != nil)
        // The first question has failed. The network's return has the next one put at once.
        device.provider.outcome = nil
        try device.ask(service, .providerEvents([ProviderEvent(.networkUp, issuer: VirtualProvider.issuer)]))
        device.advance(by: .seconds(1))
        device.expectSignedIn()
        #expect(device.state.device.epoch == epoch && device.state.provider.problem == nil)
        // With no network at all it ends, and to sleep once more gives it no more time.
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
        "a question that had failed, or had no answer yet, before the sleep ends nothing at its end, whatever is heard first",
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

    @Test("without any grace a sleep before the last good word gives no time after it")
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
