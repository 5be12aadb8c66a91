import Basics
import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Synchronization
import Testing

@Suite("Notifications between real processes", .timeLimit(.minutes(10)))
struct BetweenProcessesTests {
    private let bus: PrivateBus
    private let notifyutil = ChildProcess.built("notifyutil")

    init() throws { bus = try PrivateBus() }

    private func run(_ arguments: String...) throws -> ChildProcess {
        try ChildProcess(notifyutil, arguments, environment: bus.environment)
    }

    /// Posts until the child gets a notification. The child's registration is in force when the bus has its rule, and
    /// the test cannot see that from outside.
    private func post(_ name: String, until child: ChildProcess, hears condition: (ChildProcess) -> Bool) async throws {
        let center = DarwinNotifyCenter(bus: bus.bus)
        try await eventually("\(name) is heard") {
            try center.post(NotificationName(name))
            return condition(child)
        }
    }

    @Test("two processes observe and a third posts: both are notified")
    func twoSubscribers() async throws {
        let subscribers = try [run("-w", "news"), run("-w", "news", "-w", "other")]
        for subscriber in subscribers { try await post("news", until: subscriber) { !$0.lines.isEmpty } }
        let before = subscribers.map(\.lines.count)
        let poster = try run("-p", "news")
        #expect(await poster.exitStatus() == 0)
        for (subscriber, count) in zip(subscribers, before) {
            try await eventually("both hear the third") { subscriber.lines.count > count }
            #expect(Set(subscriber.lines) == ["news"])
        }
    }

    @Test("fifty posts of processes that exit at once are all delivered")
    func posterExits() async throws {
        let heard = Locked(0)
        let observation = try await DarwinNotifyCenter(bus: bus.bus).observe("bye", delivery: .immediate) { _ in
            heard.withLock { $0 += 1 }
        }
        for _ in 0..<50 { #expect(try await run("-p", "bye").exitStatus() == 0) }
        try await eventually("all arrive") { heard.withLock { $0 } == 50 }
        withExtendedLifetime(observation) {}
    }

    @Test("an observer in another process is notified again after a bus restart")
    func busRestart() async throws {
        let subscriber = try run("-w", "news")
        try await post("news", until: subscriber) { !$0.lines.isEmpty }
        try bus.restart()
        let before = subscriber.lines.count
        try await post("news", until: subscriber) { $0.lines.count > before }
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
        #expect(notification?.object == "object")
        #expect(notification?.userInfo == nil)
    }
}
