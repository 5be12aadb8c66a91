import NotifyCenter
import NotifyCenterTestKit
import Testing

#if NOTIFY_CENTER_TSAN
private let isThreadSanitized = true
#else
private let isThreadSanitized = false
#endif

/// Rules, a.12; CF-B10.
@Suite(
    "A forked child of a process whose threads are busy",
    .disabled(if: isThreadSanitized, "ThreadSanitizer's own locks do not survive a fork beside threads")
)
struct ForkTests {
    @Test(
        "a child posts through its own connection, and is told that it cannot observe",
        arguments: ["notify", "darwin", "distributed", "callback"]
    )
    func posts(_ way: String) async throws { try await forks(100, way) }

    @Test("ten thousand children do so", .timeLimit(.minutes(30)), arguments: ["notify", "darwin", "distributed"])
    func tenThousandForks(_ way: String) async throws { try await forks(10_000, way) }

    private func forks(_ count: Int, _ way: String) async throws {
        let bus = try PrivateBus()
        let name: NotificationName = "org.example.fork.child"
        let observation =
            if way == "distributed" {
                try await DistributedNotifyCenter(bus: bus.bus).observe(name, delivery: .immediate) { _ in }
            } else {
                try await DarwinNotifyCenter(bus: bus.bus).observe(name, delivery: .immediate) { _ in }
            }
        let probe = try ChildProcess(
            ChildProcess.built("notify-probe"),
            ["fork", way, "\(count)"],
            environment: bus.environment
        )
        #expect(await probe.exitStatus(within: .seconds(1500)) == 0)
        #expect(probe.lines == ["forked \(count)"])
        try await eventually("each post is heard") { observation.counts.delivered >= UInt64(count) }
        #expect(observation.counts.delivered == UInt64(count))
    }
}
