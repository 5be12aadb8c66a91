import Dispatch
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing
import notify

@Suite struct DispatchTests {
    private let heard = SharedLines()

    init() { ProcessBus.use() }

    private func observe(_ name: String) async throws -> NotificationObservation {
        try await DarwinNotifyCenter.default.observe(NotificationName(name)) { [heard] _ in heard.append("center") }
    }

    @Test func theDarwinCenterHearsAPostAndItsPostIsHeard() async throws {
        let (name, calls) = (uniqueName(), SharedLines())
        var token: Int32 = -1
        notify_register_dispatch(name, &token, .global()) { calls.append("\($0)") }
        defer { notify_cancel(token) }
        let observation = try await observe(name)
        notify_post(name)
        try await eventually { calls.lines.count == 1 && heard.lines.count == 1 }
        try DarwinNotifyCenter.default.post(NotificationName(name))
        try await eventually { calls.lines.count == 2 && heard.lines.count == 2 }
        observation.cancel()
    }

    // Rules, a.4: nothing is lost, and nothing reaches the bus.
    @Test func aPrivateNameReachesThisProcessAlone() async throws {
        let (name, calls) = ("self.\(uniqueName())", SharedLines())
        let queue = DispatchQueue(label: "test")
        var (token, check): (Int32, Int32) = (-1, -1)
        notify_register_dispatch(name, &token, queue) { calls.append("\($0)") }
        defer { notify_cancel(token) }
        let observation = try await observe(name)
        for _ in 0..<5 {
            #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
            notify_check(token, &check)
            #expect(check == 1)
        }
        queue.sync {}
        #expect(calls.lines.count == 5)
        // A post of that name by another process does not arrive either.
        try DarwinNotifyCenter.default.post(NotificationName(name))
        try await eventually { heard.lines.count == 1 }
        queue.sync {}
        #expect(calls.lines.count == 5)
        observation.cancel()
    }
}
