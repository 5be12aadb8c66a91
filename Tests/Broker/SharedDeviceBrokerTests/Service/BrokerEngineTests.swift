import DeviceConfiguration
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing
import simulate

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("The broker engine", .timeLimit(.minutes(5)))
struct BrokerEngineTests {
    @Test("a thread that submits an event returns although other threads keep submitting")
    func flood() async throws {
        let engine = BrokerEngine(BrokerState(at: .now))
        let isOver = Atomic(false)
        let announcements = Atomic(0)
        engine.start { _ in
            announcements.add(1, ordering: .relaxed)
            // Each event has an effect, and each effect submits an event.
            if !isOver.load(ordering: .relaxed) { engine.submit(.busRestored) }
        }
        await onThread { engine.submit(.busRestored) }
        // The call has returned, and the events go on.
        let before = announcements.load(ordering: .relaxed)
        try await eventually("the engine goes on") { announcements.load(ordering: .relaxed) > before + 1000 }
        isOver.store(true, ordering: .relaxed)
        try await eventually("the engine comes to rest") { engine.hasGoneOn() }
    }

    @Test("a sign-out that waits for the disk blocks no submitter and keeps the order")
    func note() async throws {
        var content = StoredContent()
        content.device = DeviceState(mode: .shared, account: .named("ada"), epoch: 7)
        let state = BrokerState(content, at: .now)
        let engine = BrokerEngine(state)
        let disk = DispatchSemaphore(value: 0)
        let done = Shared<[String]>([])
        engine.start { effect in
            switch effect {
            case .noteState:
                // A timeout, so that a blocked thread is released even if the test fails.
                _ = disk.wait(timeout: .now() + 60)
                done.withLock { $0.append("noted") }
            case .announce: done.withLock { $0.append("announced") }
            default: break
            }
        }
        // A thread of Swift's pool, like that of a provider's response.
        await Task { engine.submit(.configured(DevicePolicy())) }.value
        #expect(done.withLock { $0 } == [])
        engine.submit(.busRestored)
        disk.signal()
        try await eventually("all is announced") { done.withLock { $0 } == ["noted", "announced", "announced"] }
    }

    @Test("events before the start, such as a clock jump, are processed at the start")
    func early() {
        let engine = BrokerEngine(BrokerState(at: .now))
        engine.submit(.time)
        engine.submit(.busRestored)
        let announcements = Atomic(0)
        engine.start { if case .announce = $0 { announcements.add(1, ordering: .relaxed) } }
        #expect(announcements.load(ordering: .relaxed) == 1)
        engine.submit(.busRestored)
        #expect(announcements.load(ordering: .relaxed) == 2)
    }

    @Test("each change of the clock is noticed", .enabled(if: Self.setsClock(), "this user may not set the clock"))
    func clock() async throws {
        let jumps = Shared(0)
        let watch = try #require(ClockWatch { jumps.withLock { $0 += 1 } })
        for count in 1...3 {
            #expect(Self.setsClock())
            try await eventually("the jump is reported") { jumps.withLock { $0 } >= count }
        }
        withExtendedLifetime(watch) {}
    }

    private static func setsClock() -> Bool {
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return clock_settime(CLOCK_REALTIME, &now) == 0
    }
}
