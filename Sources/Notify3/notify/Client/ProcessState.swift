import CNotify
import CNotify.Private
import DBus
import Glibc
import Synchronization

/// The process's client, and its end in a forked child.
///
/// In the child the reading thread is missing, and other threads may have held locks. So the child touches nothing of
/// the parent's client, not even to free it. It begins with a new client. If the parent had used a bus, the new client
/// registers only `self.` names (Rules, a.12).
enum ProcessState {
    /// The address of a ``NotifyClient``, which is never released; 0 while there is none.
    private static let current = Atomic<UInt>(0)
    /// Whether `notify_set_options` switched the library off.
    static let isOff = Atomic<Bool>(false)
    private static let handlesForks = Atomic<Bool>(false)
    /// The process that made the client; 0 while there is none.
    private static let owner = Atomic<pid_t>(0)

    /// The client. The first use makes it.
    static var client: NotifyClient {
        if let client = client(at: current.load(ordering: .acquiring)) { return client }
        let fresh = Unmanaged.passRetained(NotifyClient())
        let address = UInt(bitPattern: fresh.toOpaque())
        let (isMine, other) = current.compareExchange(expected: 0, desired: address, ordering: .acquiringAndReleasing)
        guard isMine else {
            defer { fresh.release() }
            return client(at: other) ?? fresh.takeUnretainedValue()
        }
        owner.store(getpid(), ordering: .releasing)
        if !handlesForks.exchange(true, ordering: .acquiringAndReleasing) {
            let child: @convention(c) () -> Void = { ProcessState.forked() }
            pthread_atfork(nil, nil, child)
            if !ForkRehearsal.isLeftOut.load(ordering: .relaxed) { ForkRehearsal.run(fresh.takeUnretainedValue()) }
        }
        return fresh.takeUnretainedValue()
    }

    private static func client(at address: UInt) -> NotifyClient? {
        UnsafeRawPointer(bitPattern: address).map { Unmanaged<NotifyClient>.fromOpaque($0).takeUnretainedValue() }
    }

    /// Whether the functions that need the bus or notifyd are disabled, except for posts in a forked child.
    static var isDisabled: Bool { ForkedChild.isCurrent || isOff.load(ordering: .relaxed) }

    /// Does the work after a fork, if this process is a forked child in which it has not been done.
    static func checkFork() {
        ForkedChild.notice()
        let owner = owner.load(ordering: .acquiring)
        if owner != 0, owner != getpid() { forked() }
    }

    /// Called in the child before `fork` returns. The fork may have come in a signal handler, with any lock held, so
    /// this only stores numbers.
    private static func forked() {
        TokenTable.forget()
        current.store(0, ordering: .releasing)
        owner.store(0, ordering: .releasing)
    }
}

/// Runs the operations that a forked child may need, once, when the client is made.
///
/// Swift's runtime creates the types of generic code at their first use, under its own locks. Another thread may hold
/// such a lock at the moment of a fork, and in the child it is never released. A type that exists already needs no
/// lock. The fork itself is too late for the rehearsal: it may come in a signal handler that has interrupted a function
/// of this library.
package enum ForkRehearsal {
    static let isLeftOut = Atomic<Bool>(false)

    /// Leaves the rehearsal out, for a program that never forks and starts often: it costs more than a post. Call this
    /// before the library is used.
    package static func leaveOut() { isLeftOut.store(true, ordering: .relaxed) }

    static func run(_ client: NotifyClient) {
        let name = "self.org.notifycenter.fork"
        var tokens: [CInt] = []
        for register in [notify_register_check, notify_register_plain] {
            var token = NOTIFY_TOKEN_INVALID
            if register(name, &token) == NOTIFY_STATUS_OK { tokens.append(token) }
        }
        var (descriptor, token) = (CInt(-1), NOTIFY_TOKEN_INVALID)
        if notify_register_file_descriptor(name, &descriptor, 0, &token) == NOTIFY_STATUS_OK { tokens.append(token) }
        // Suspended, so that the signal is not sent.
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
        client.reuseNumbers(of: tokens)
    }
}
