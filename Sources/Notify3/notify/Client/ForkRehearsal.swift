import CNotify
import CNotify.Private
import Glibc
import Synchronization

/// What a forked child may do, done once in the parent before.
///
/// Swift's runtime makes the types of generic code when they are first used, under locks of its own. Another thread may hold one of them
/// at the moment of a fork, and in the child nobody would ever give it back. What was made before needs no lock.
enum ForkRehearsal {
    private static let isDone = Atomic<Bool>(false)

    /// Before a fork, in the thread that forks.
    static func run() {
        guard ProcessState.existingClient != nil, !isDone.exchange(true, ordering: .relaxed) else { return }
        let name = "self.org.notifycenter.fork"
        var tokens: [CInt] = []
        for register in [notify_register_check, notify_register_plain] {
            var token = NOTIFY_TOKEN_INVALID
            if register(name, &token) == NOTIFY_STATUS_OK { tokens.append(token) }
        }
        var (descriptor, token) = (CInt(-1), NOTIFY_TOKEN_INVALID)
        if notify_register_file_descriptor(name, &descriptor, 0, &token) == NOTIFY_STATUS_OK { tokens.append(token) }
        // Held back, so that nobody gets the signal.
        if notify_register_signal(name, SIGURG, &token) == NOTIFY_STATUS_OK, notify_suspend(token) == NOTIFY_STATUS_OK {
            tokens.append(token)
        }
        _ = notify_post(name)
        for token in tokens {
            var (check, count, state) = (CInt(0), UInt32(0), UInt64(0))
            _ = notify_check(token, &check)
            _ = notify_peek(token, &count)
            _ = notify_set_state(token, 1)
            _ = notify_get_state(token, &state)
            _ = notify_cancel(token)
        }
    }
}
