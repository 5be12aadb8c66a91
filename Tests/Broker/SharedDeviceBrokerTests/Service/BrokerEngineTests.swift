import Foundation
import NotifyCenterTestKit
import SharedDeviceSimulation
import Synchronization
import Testing

@testable import SharedDeviceBroker

@Suite("The engine", .timeLimit(.minutes(1)))
struct BrokerEngineTests {
    @Test("a thread that brings an event gets away, although others bring more of them without end")
    func flood() async throws {
        let engine = BrokerEngine(BrokerState(at: .now))
        let isOver = Atomic(false)
        let announcements = Atomic(0)
        engine.start { _ in
            announcements.add(1, ordering: .relaxed)
            // Each event has an effect, and each effect brings an event.
            if !isOver.load(ordering: .relaxed) { engine.submit(.busRestored) }
        }
        try await onThread { engine.submit(.busRestored) }
        // It is back, and the events go on.
        let before = announcements.load(ordering: .relaxed)
        try await eventually("the engine goes on") { announcements.load(ordering: .relaxed) > before + 1000 }
        isOver.store(true, ordering: .relaxed)
        try await eventually("it comes to rest") { engine.hasGoneOn() }
    }
}
