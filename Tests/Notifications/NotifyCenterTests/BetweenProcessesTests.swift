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

    @Test("any D-Bus tool can post")
    func foreignTool() async throws {
        let sequence = try await DistributedNotifyCenter(bus: bus.bus).notifications(named: "com.example.tool")
        let tool = try ChildProcess(
            "dbus-send",
            [
                "--session", "--type=signal", "/org/notifycenter",
                "org.notifycenter.Distributed1.com.example.tool.Posted",
                "string:com.example.tool", "string:object", "uint32:0",
            ],
            environment: bus.environment
        )
        #expect(await tool.exitStatus() == 0)
        var iterator = sequence.makeAsyncIterator()
        let notification = await iterator.next()
        #expect(notification?.object == "object" && notification?.userInfo == nil)
    }
}
