import CNotify
import Glibc
import Synchronization

/// What of the library is the process's own, and what becomes of it in a forked child.
///
/// In the child the reading thread is missing, and other threads may have held locks: nothing of the parent's client is touched
/// any more, not even to free it. The child begins with a client of its own, which takes `self.` names only if the parent's was on the
/// bus (notify(3), a.12).
enum ProcessState {
    /// The address of a ``NotifyClient``, retained for good; 0 for none.
    private static let current = Atomic<UInt>(0)
    /// Whether this process is the child of one that was on the bus.
    private static let isForked = Atomic<Bool>(false)
    /// Whether `notify_set_options` switched the library off.
    private static let isSwitchedOff = Atomic<Bool>(false)
    /// Whether any client has used the bus.
    private static let wasOnBus = Atomic<Bool>(false)
    private static let handlesForks = Atomic<Bool>(false)
    /// The process that made the client; 0 for none.
    private static let owner = Atomic<pid_t>(0)

    /// The client; made with the first use.
    static var client: NotifyClient {
        if let client = existingClient { return client }
        let fresh = Unmanaged.passRetained(NotifyClient())
        let address = UInt(bitPattern: fresh.toOpaque())
        let (isMine, other) = current.compareExchange(expected: 0, desired: address, ordering: .acquiringAndReleasing)
        guard isMine else {
            defer { fresh.release() }
            return client(at: other) ?? fresh.takeUnretainedValue()
        }
        owner.store(getpid(), ordering: .releasing)
        if !handlesForks.exchange(true, ordering: .acquiringAndReleasing) {
            let prepare: @convention(c) () -> Void = { ForkRehearsal.run() }
            let child: @convention(c) () -> Void = { ProcessState.forked() }
            pthread_atfork(prepare, nil, child)
        }
        return fresh.takeUnretainedValue()
    }

    /// The client, if there is one.
    static var existingClient: NotifyClient? { client(at: current.load(ordering: .acquiring)) }

    private static func client(at address: UInt) -> NotifyClient? {
        UnsafeRawPointer(bitPattern: address).map { Unmanaged<NotifyClient>.fromOpaque($0).takeUnretainedValue() }
    }

    /// Whether what needs the bus or notifyd is out of use.
    static var isDisabled: Bool { isForked.load(ordering: .relaxed) || isSwitchedOff.load(ordering: .relaxed) }

    static func setSwitchedOff(_ isOff: Bool) { isSwitchedOff.store(isOff, ordering: .relaxed) }

    /// Notes that this process goes to the bus: before it does, because a fork may come in the middle.
    static func isOnBus() { wasOnBus.store(true, ordering: .relaxed) }

    /// Does what a fork does, if this is the child of one and it has not been done.
    static func checkFork() {
        let owner = owner.load(ordering: .acquiring)
        if owner != 0, owner != getpid() { forked() }
    }

    /// In the child, before `fork` returns: stores and nothing else.
    private static func forked() {
        if wasOnBus.load(ordering: .relaxed) { isForked.store(true, ordering: .relaxed) }
        TokenTable.forget()
        current.store(0, ordering: .releasing)
        owner.store(0, ordering: .releasing)
    }
}
