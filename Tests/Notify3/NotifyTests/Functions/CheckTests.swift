import NotifyCenter
import NotifyCenterTestKit
import Testing
import notify

@Suite struct CheckTests {
    init() { ProcessBus.use() }

    // Rules, a.7, and CF-W6: the first check is true, for each token.
    @Test func theFirstCheckOfEachTokenIsTrue() {
        let name = uniqueName()
        var tokens: [Int32] = []
        for _ in 0..<3 {
            var token: Int32 = -1
            #expect(status(notify_register_check(name, &token)) == NOTIFY_STATUS_OK)
            tokens.append(token)
        }
        for token in tokens {
            var check: Int32 = -1
            #expect(status(notify_check(token, &check)) == NOTIFY_STATUS_OK)
            #expect(check == 1)
            #expect(status(notify_check(token, &check)) == NOTIFY_STATUS_OK)
            #expect(check == 0)
        }
        for token in tokens { #expect(status(notify_cancel(token)) == NOTIFY_STATUS_OK) }
        var check: Int32 = 7
        #expect(status(notify_check(tokens[0], &check)) == NOTIFY_STATUS_INVALID_TOKEN)
        #expect(check == 7)
    }

    // Rules, a.8: also if the bus is not asked, because another part of the process already observes the name.
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

    // Rules, a.8: post, then any call that waits for an answer.
    @Test func aPostIsSeenAfterACallThatWaits() {
        let name = uniqueName()
        var (token, other, check): (Int32, Int32, Int32) = (-1, -1, -1)
        #expect(status(notify_register_check(name, &token)) == NOTIFY_STATUS_OK)
        defer { notify_cancel(token) }
        notify_check(token, &check)
        for _ in 0..<100 {
            #expect(status(notify_post(name)) == NOTIFY_STATUS_OK)
            // The name is already registered: the fence costs a round trip.
            #expect(status(notify_register_check(name, &other)) == NOTIFY_STATUS_OK)
            notify_cancel(other)
            #expect(status(notify_check(token, &check)) == NOTIFY_STATUS_OK)
            #expect(check == 1)
            notify_check(token, &check)
            #expect(check == 0)
        }
    }
}
