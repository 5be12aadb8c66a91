import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing
import notify

@Suite struct CheckTests {
    init() { ProcessBus.use() }

    // Rules, a.8: holds even if the bus is not asked, because another part of the process already observes the name.
    @Test func aPostIsSeenAfterTheFirstRegistrationOfAnObservedName() throws {
        let name = uniqueName()
        var (token, check): (Int32, Int32) = (-1, -1)
        #expect(status(notify_register_check(name, &token)) == NOTIFY_STATUS_OK)
        defer { notify_cancel(token) }
        notify_check(token, &check)
        for _ in 0..<100 {
            let observed = uniqueName()
            let observation = try DarwinNotifyCenter.default.observe(NotificationName(observed)) { _ in }
            defer { observation.cancel() }
            var other: Int32 = -1
            #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
            #expect(status(notify_register_check(observed, &other)) == NOTIFY_STATUS_OK)
            #expect(status(notify_check(token, &check)) == NOTIFY_STATUS_OK)
            #expect(check == 1)
            notify_cancel(other)
        }
    }
}
