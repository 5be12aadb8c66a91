import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Testing
import notify

@Suite struct SignalTests {
    init() { ProcessBus.use() }

    // Rules, a.1. The C library reserves the first two real-time signals; by default they end the process.
    @Test(arguments: [-1, 0, 32, 33, 65, .max]) func aNumberThatIsNoSignalOfTheProcessIsRefused(_ number: Int32) {
        var token: Int32 = 7
        #expect(status(notify_register_signal(uniqueName(), number, &token)) == NOTIFY_STATUS_INVALID_SIGNAL)
        #expect(token == NOTIFY_TOKEN_INVALID)
    }

    @Test(arguments: [SIGHUP, SIGURG, SIGUSR2, 34, 64]) func everySignalIsAccepted(_ number: Int32) {
        var token: Int32 = -1
        #expect(status(notify_register_signal(uniqueName(), number, &token)) == NOTIFY_STATUS_OK)
        #expect(status(notify_cancel(token)) == NOTIFY_STATUS_OK)
    }
}
