import Basics
import Glibc
import Synchronization

/// Waits until the bus has read everything sent before the process ends by `exit` or by returning from `main`;
/// otherwise dbus-daemon drops what it has not read (architecture, D12). Every wait ends after ``timeout``.
///
/// `exit` may run in a signal handler that interrupted the library or `malloc`. So this code takes no lock and
/// allocates nothing, except on a reading thread, where only signals of a crash arrive.
enum ProcessExit {
    /// How long the end of the process, or of a connection, waits for the bus to read.
    static let timeout: Duration = .seconds(2)
    /// The number of sockets with messages that the kernel did not accept. Their reading threads write them.
    static let unsentSockets = Atomic<Int>(0)

    /// The connection that a thread reads.
    private static let readConnection: pthread_key_t = {
        var key = pthread_key_t()
        pthread_key_create(&key, nil)
        return key
    }()

    /// Called before the process has a connection.
    static func prepare() {
        _ = readConnection
        atexit { ProcessExit.waitForBus() }
    }

    /// Called on the reading thread. The thread keeps the connection alive while it runs.
    static func noteReadingThread(of core: ConnectionCore) {
        pthread_setspecific(readConnection, Unmanaged.passUnretained(core).toOpaque())
    }

    private static func waitForBus() {
        ForkedChild.notice()
        let deadline = ContinuousClock.now + timeout
        // Set only on a reading thread: one of its handlers ends the process.
        if let core = pthread_getspecific(readConnection) {
            Unmanaged<ConnectionCore>.fromOpaque(core).takeUnretainedValue().writeAtExit(by: deadline)
        }
        // The kernel gives no event when the bus reads, so this polls.
        var nap: CLong = 50_000
        while !hasBusReadAll, ContinuousClock.now < deadline {
            var time = timespec(tv_sec: 0, tv_nsec: nap)
            nanosleep(&time, nil)
            nap = min(nap * 2, 5_000_000)
        }
    }

    private static var hasBusReadAll: Bool {
        unsentSockets.load(ordering: .relaxed) <= 0
            // A socket that the program has closed, or that the kernel cannot report on, counts as read.
            && ForkedChild.allSockets { !$0.isIntact || hasPeerReadAll($0.number) }
    }

    private static func hasPeerReadAll(_ socket: CInt) -> Bool {
        var unread: CInt = 0
        guard ioctl(socket, UInt(TIOCOUTQ), &unread) == 0 else { return true }
        var state = pollfd(fd: socket, events: 0, revents: 0)
        let isBroken = poll(&state, 1, 0) > 0 && state.revents & CShort(POLLERR | POLLHUP) != 0
        if isBroken { return true }
        guard unread == 0 else { return false }
        return isLocal(socket) || hasPeerEnded(socket)
    }

    /// Over TCP the kernel knows only what the bus's machine has received. So this ends its side of the connection; the
    /// bus reads everything before it ends the other side.
    private static func hasPeerEnded(_ socket: CInt) -> Bool {
        shutdown(socket, CInt(SHUT_WR))
        return discardInput(of: socket) != EAGAIN
    }
}
