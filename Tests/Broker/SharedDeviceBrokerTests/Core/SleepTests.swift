import Identity
import Testing

@testable import SharedDeviceBroker

@Suite("How long a session lasts without confirmation after the device has slept")
struct SleepTests {
    private let device = VirtualDevice()

    init() throws { try device.useOrganisation(", \"offlineGrace\": 3600") }

    private func sleep(for duration: Duration) {
        device.sleep(for: duration)
        device.feed(.time)
    }

    @Test("a network that returns soon after a sleep saves the session, once per good check")
    func networkAfterSleep() throws {
        let epoch = try device.signInAtProvider()
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
    func questionBeforeSleep(hasFailed: Bool, first: Event) throws {
        try device.signInAtProvider()
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
        try device.signInAtProvider()
        sleep(for: .seconds(10))
        device.expectSignedIn(after: .seconds(1))
        #expect(device.state.provider.problem == nil)
        device.provider.outcome = .noNetwork
        device.advance(by: .seconds(40))
        try device.report(.of(.networkUp))
        device.expectSignedOut(after: .seconds(1))
    }
}
