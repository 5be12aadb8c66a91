import NotifyCenterTestKit
import Testing

@testable import DBusTransport

#if NOTIFY_CENTER_TSAN
private let isThreadSanitized = true
#else
private let isThreadSanitized = false
#endif

@Suite("A process that ends, or forks")
struct EndOfProcessTests {
    @Test(
        "a process that observes and posts loses no post when it ends",
        arguments: ["observe-post-return", "observe-post-exit", "observe-post-close-exit", "observe-post-flush-_exit"]
    )
    func endOfProcess(_ way: String) async throws {
        let bus = try PrivateBus()
        let counter = try Counter(try DBusConnection.open(bus.bus), MatchRule(interface: "org.example.Ping"))
        for _ in 0..<15 {
            let probe = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, way, "200"])
            #expect(await probe.exitStatus() == 0)
        }
        // The bus forwards in order what it has read by now.
        try await DBusConnection.open(bus.bus).flush()
        try await eventually("all arrive", within: .seconds(30)) { counter.arrived == 3000 }
    }

    @Test(
        "a forked child ends what it inherited without waiting for locks that its parent's threads held",
        .enabled(
            if: !isThreadSanitized,
            "ThreadSanitizer's locks do not survive a fork beside threads"
        )
    )
    func forkedChild() async throws {
        let bus = try PrivateBus()
        let probe = try ChildProcess(ChildProcess.built("bus-probe"), [bus.address, "fork", "200"])
        #expect(await probe.exitStatus() == 0)
    }
}
