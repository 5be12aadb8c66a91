import Foundation
import NotifyCenterFoundation
import NotifyCenterTestKit
import Testing

@Suite("Foundation's API between real processes")
struct FoundationBetweenProcessesTests {
    private let bus: PrivateBus

    init() throws { bus = try PrivateBus() }

    private func probe(_ arguments: String...) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("notification-probe"), arguments, environment: bus.environment)
    }

    // CF-D2, CF-P10
    @Test("blocks run in other processes, in a main run loop and in dispatchMain")
    func mainLoops() async throws {
        let (looping, dispatching) = (try probe("observe", "com.example.n"), try probe("dispatch", "com.example.n"))
        for observer in [looping, dispatching] { try await observer.line { $0 == "ready" } }
        #expect(try await probe("post", "com.example.n", "object", "text").exitStatus() == 0)
        try await looping.line { $0 == "com.example.n object text true main:true" }
        try await dispatching.line { $0.hasPrefix("com.example.n object text true") }
        DistributedNotificationCenter(bus: bus.bus).post(name: .init("com.example.n"), object: nil)
        try await looping.line { $0 == "com.example.n - - false main:true" }
    }

    /// The same type as in the other process.
    private struct Order: DistributedNotificationCenter.AsyncMessage {
        static let name = Notification.Name("com.example.order")
        var count: Int
        var notes: [String]
    }

    // CF-X10
    @Test("a typed message reaches other processes and plain observers")
    func messages() async throws {
        let center = DistributedNotificationCenter(bus: bus.bus)
        let observer = try probe("messages")
        try await observer.line { $0 == "ready" }
        let (messages, plain) = (try center.messages(for: Order.self), center.notifications(named: Order.name))
        #expect(try await probe("post-message", "till-3", "4").exitStatus() == 0)
        try await observer.line { $0 == "4 [\"a\", \"b\"]" }
        var (typed, untyped) = (messages.makeAsyncIterator(), plain.makeAsyncIterator())
        let order = await typed.next()
        #expect(order?.count == 4 && order?.notes == ["a", "b"])
        let notification = await untyped.next()
        #expect(notification?.object as? String == "till-3" && notification?.userInfo?["count"] as? Int == 4)
        try center.post(Order(count: 5, notes: []))
        try await observer.line { $0 == "5 []" }
    }
}
