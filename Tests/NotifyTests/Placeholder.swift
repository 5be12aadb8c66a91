import CNotify
import Testing
import notify

@Test func posts() {
    var token: CInt = 0
    #expect(notify_post("x") == NOTIFY_STATUS_FAILED)
    #expect(notify_register_check("x", &token) == NOTIFY_STATUS_FAILED)
}
