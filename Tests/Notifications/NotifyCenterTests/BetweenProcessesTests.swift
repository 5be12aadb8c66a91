import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("Notifications between real processes", .timeLimit(.minutes(10)))
struct BetweenProcessesTests {
    private let bus: PrivateBus

    init() throws { bus = try PrivateBus() }

    @Test("fifty posts of processes that exit at once are all delivered")
    func posterExits() async throws {
        let observation = try await DarwinNotifyCenter(bus: bus.bus).observe("bye", delivery: .immediate) { _ in }
        for _ in 0..<50 {
            let notifyutil = ChildProcess.built("notifyutil")
            let poster = try ChildProcess(notifyutil, ["-p", "bye"], environment: bus.environment)
            #expect(await poster.exitStatus() == 0)
        }
        try await eventually("all arrive") { observation.counts.delivered == 50 }
    }
}
