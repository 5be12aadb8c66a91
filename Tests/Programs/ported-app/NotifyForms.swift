// notify(3) in Swift, as in existing projects: one import also imports Dispatch.
import notify

final class LockObserver {
    private var token = NOTIFY_TOKEN_INVALID
    private let queue = DispatchQueue(label: "com.example.forms.lock", qos: .utility)

    init(_ name: String, _ changed: @escaping (UInt64) -> Void) {
        notify_register_dispatch(name, &token, queue) { token in
            var state: UInt64 = 0
            notify_get_state(token, &state)
            changed(state)
        }
    }

    deinit { notify_cancel(token) }
}

func tryNotifyForms() -> Any {
    let observer = LockObserver("com.example.forms.lock") { say("queue \($0)") }

    var main: Int32 = 0
    let status = notify_register_dispatch("com.example.forms.main", &main, DispatchQueue.main) { (token: Int32) in
        say("main \(notify_is_valid_token(token))")
    }
    guard status == UInt32(NOTIFY_STATUS_OK) else { return observer }

    var check: Int32 = 0
    var changed: Int32 = 0
    if notify_register_check("com.example.forms.check", &check) == NOTIFY_STATUS_OK { notify_check(check, &changed) }

    notify_post("com.example.forms.main")
    notify_post("com.example.forms.lock")
    say("check \(changed)")
    return observer
}
