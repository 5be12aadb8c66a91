import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing
import notify

@Suite struct SignalTests {
    init() { ProcessBus.use() }

    // Rules, a.1. The C library reserves the first two real-time signals; by default they end the process.
    @Test func everySignalOfTheProcessIsAcceptedAndNoOtherNumber() {
        for number: Int32 in [-1, 0, 32, 33, 65, .max] {
            var token: Int32 = 7
            let result = status(notify_register_signal(uniqueName(), number, &token))
            #expect(result == NOTIFY_STATUS_INVALID_SIGNAL && token == NOTIFY_TOKEN_INVALID, "\(number)")
        }
        for number in [SIGHUP, SIGURG, SIGUSR2, 34, 64] {
            var token: Int32 = -1
            #expect(status(notify_register_signal(uniqueName(), number, &token)) == NOTIFY_STATUS_OK, "\(number)")
            #expect(status(notify_cancel(token)) == NOTIFY_STATUS_OK, "\(number)")
        }
    }
}
