import NotifyCenter
import NotifyCenterTestKit
import Testing

@Suite("Suspension between real processes")
struct SuspensionBetweenProcessesTests {
    private let bus: PrivateBus
    private let receiver: ChildProcess

    init() throws {
        bus = try PrivateBus()
        receiver = try ChildProcess(ChildProcess.built("notification-probe"), environment: bus.environment)
    }

    private func tell(_ command: String, answer: String) async throws {
        let before = receiver.lines.filter { $0 == answer }.count
        try receiver.write(command)
        try await eventually(answer) { receiver.lines.filter { $0 == answer }.count > before }
    }

    private func observe(_ behaviors: String...) async throws {
        for behavior in behaviors {
            try await tell("observe \(behavior) \(behavior) * *", answer: "observing \(behavior)")
        }
    }

    /// Posts from a second process, one notification after the other.
    private func post(_ posts: String...) async throws {
        let poster = try ChildProcess(ChildProcess.built("notification-probe"), environment: bus.environment)
        for post in posts { try poster.write("post \(post)") }
        try await eventually("all are posted") { poster.lines.filter { $0 == "posted" }.count == posts.count }
        try poster.closeInput()
        #expect(await poster.exitStatus() == 0)
    }

    /// Waits until this many deliveries wait in the receiver, which has then read the posts.
    private func untilWaiting(_ count: Int) async throws {
        try await eventually("\(count) wait") {
            try receiver.write("waiting")
            return receiver.lines.last { $0.hasPrefix("waiting ") } == "waiting \(count)"
        }
    }

    private var deliveries: [String] {
        receiver.lines.filter { line in SuspensionBehavior.allCases.contains { line.hasPrefix("\($0) ") } }
    }

    private func expectDeliveries(_ expected: [String]) async throws {
        try await eventually("\(expected), and not \(deliveries)") { deliveries.count >= expected.count }
        #expect(deliveries == expected)
    }

    // CF-S3…S8, CF-S11, CF-S15, CF-P5, CF-B7
    @Test("a suspended process delivers as behaviours and immediate posts say, in order")
    func table() async throws {
        try await observe("drop", "coalesce", "hold")
        try await tell("suspend", answer: "suspended")
        try await post("n A", "n A", "n B", "m A")
        try await untilWaiting(7)
        #expect(deliveries == [])
        try await post("now * immediately", "n C")
        let backlog = [
            "hold n A", "coalesce n A", "hold n A", "coalesce n B", "hold n B", "coalesce m A", "hold m A",
            "drop now -", "coalesce now -", "hold now -",
        ]
        try await expectDeliveries(backlog)
        try await untilWaiting(2)
        try await tell("resume", answer: "resumed")
        try await post("last *")
        try await expectDeliveries(
            backlog + ["coalesce n C", "hold n C", "drop last -", "coalesce last -", "hold last -"]
        )
    }

    // CF-B6, D4: GNUstep loses the connection, and the poster ends with an exception.
    @Test("20 000 posts to a suspended process harm neither process and fill the buffer")
    func backPressure() async throws {
        try await observe("hold")
        try await tell("suspend", answer: "suspended")
        let poster = DistributedNotifyCenter(bus: bus.bus)
        for number in 0..<20_000 { try poster.post("n", object: "\(number)") }
        try await eventually("all have arrived") {
            try await tell("resume", answer: "resumed")
            return deliveries.last == "hold n 19999"
        }
        #expect(deliveries.count >= 4096)
    }
}
