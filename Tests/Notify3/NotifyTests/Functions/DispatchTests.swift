import Basics
import DBus
import Dispatch
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing
import notify

@Suite struct DispatchTests {
    init() { ProcessBus.use() }

    /// The tokens in the order of their calls.
    private final class Calls: Sendable {
        private let tokens = Locked<[Int32]>([])
        var all: [Int32] { tokens.withLock { $0 } }
        func add(_ token: Int32) { tokens.withLock { $0.append(token) } }
    }

    @Test func theDarwinCenterHearsAPostAndItsPostIsHeard() async throws {
        let (name, calls) = (uniqueName(), Calls())
        var token: Int32 = -1
        notify_register_dispatch(name, &token, .global()) { calls.add($0) }
        defer { notify_cancel(token) }
        let heard = Locked(0)
        let observation = try await DarwinNotifyCenter.default.observe(NotificationName(name)) { _ in
            heard.withLock { $0 += 1 }
        }
        notify_post(name)
        try await eventually { calls.all.count == 1 && heard.withLock { $0 } == 1 }
        try DarwinNotifyCenter.default.post(NotificationName(name))
        try await eventually { calls.all.count == 2 && heard.withLock { $0 } == 2 }
        observation.cancel()
    }

    // Rules, a.4: nothing is lost, and nothing reaches the bus.
    @Test func aPrivateNameReachesThisProcessAlone() async throws {
        let (name, calls) = ("self.\(uniqueName())", Calls())
        let queue = DispatchQueue(label: "test")
        var (token, check): (Int32, Int32) = (-1, -1)
        notify_register_dispatch(name, &token, queue) { calls.add($0) }
        defer { notify_cancel(token) }
        let outside = Locked(0)
        let observation = try await DarwinNotifyCenter.default.observe(NotificationName(name)) { _ in
            outside.withLock { $0 += 1 }
        }
        for _ in 0..<5 {
            #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
            notify_check(token, &check)
            #expect(check == 1)
        }
        queue.sync {}
        #expect(calls.all.count == 5)
        // A post of that name by another process does not arrive either.
        try DarwinNotifyCenter.default.post(NotificationName(name))
        try await eventually { outside.withLock { $0 } == 1 }
        queue.sync {}
        #expect(calls.all.count == 5)
        #expect(status(notify_set_state(token, 9)) == NOTIFY_STATUS_OK)
        var state: UInt64 = 0
        #expect(status(notify_get_state(token, &state)) == NOTIFY_STATUS_OK)
        #expect(state == 9)
        observation.cancel()
    }
}
