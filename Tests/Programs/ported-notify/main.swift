// Swift code as on Apple's platforms with `import notify`. It uses nothing else of this package. It prints a line for
// each notification.

import Dispatch
import Foundation
import notify

/// Wraps a token, as most projects do.
final class DarwinNotification {
    private var token: Int32 = NOTIFY_TOKEN_INVALID
    private var count = 0
    var onChange: ((Int, UInt64) -> Void)?

    init?(name: String, queue: DispatchQueue) {
        let status = notify_register_dispatch(name, &token, queue) { [weak self] token in
            guard let self else { return }
            var state: UInt64 = 0
            if notify_get_state(token, &state) != NOTIFY_STATUS_OK { state = .max }
            self.count += 1
            self.onChange?(self.count, state)
        }
        guard status == NOTIFY_STATUS_OK else { return nil }
    }

    deinit { notify_cancel(token) }

    func set(_ state: UInt64) -> Bool { notify_set_state(token, state) == NOTIFY_STATUS_OK }
}

let name = CommandLine.arguments[1]
let handler: notify_handler_t = { _ in
    print("handler")
    fflush(stdout)
}
var plain: Int32 = 0
guard notify_register_dispatch(name, &plain, DispatchQueue.main, handler) == NOTIFY_STATUS_OK,
    let notification = DarwinNotification(name: name, queue: .main)
else { exit(1) }
notification.onChange = { count, state in
    print("change \(count) state \(state)")
    fflush(stdout)
    if count == 2 { exit(0) }
}
print("ready \(notification.set(42))")
fflush(stdout)
RunLoop.main.run()
