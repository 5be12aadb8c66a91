import DBusTransport
import Glibc
import NotifyCenter
import Synchronization

/// Something that other threads hand to the main thread.
enum Arrival: Sendable {
    /// A token of notify(3) was notified on a queue.
    case token(CInt, Timestamp)
    /// This process got a signal.
    case signal(CInt)
    case distributed(CInt, DistributedNotification, Timestamp)
    /// Anybody posted anything.
    case post(MonitoredPost, SenderLookup?)
}

/// Items from other threads for the main thread, in order. Bounded, because a slow reader of standard output may be slower than the posts.
final class Inbox<Item: Sendable>: Sendable {
    private struct State {
        var items: [Item] = []
        var dropped = 0
    }

    private static var capacity: Int { 65_536 }

    /// Readable while something waits.
    let descriptor: CInt
    private let bell: CInt
    private let state = Locked(State())

    /// - Throws: ``DBusError/Code/noResources`` without descriptors.
    init() throws(DBusError) {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else {
            throw DBusError(
                .noResources,
                message: "pipe failed: \(String(cString: strerror(errno)))",
                attempted: "watch",
                remedy: "raise the limit of open files (ulimit -n)"
            )
        }
        (descriptor, bell) = (ends[0], ends[1])
        for end in ends {
            _ = fcntl(end, F_SETFD, FD_CLOEXEC)
            _ = fcntl(end, F_SETFL, O_NONBLOCK)
        }
    }

    deinit {
        close(descriptor)
        close(bell)
    }

    /// Adds one, from any thread. A full inbox drops and counts it.
    func add(_ item: Item) {
        state.withLock { state in
            if state.items.count < Self.capacity { state.items.append(item) } else { state.dropped += 1 }
        }
        wake()
    }

    /// Makes the descriptor readable.
    func wake() {
        var byte: UInt8 = 1
        // A full pipe is readable already.
        _ = write(bell, &byte, 1)
    }

    /// All that waits, and how many were dropped since this was asked last.
    func takeAll() -> (items: [Item], dropped: Int) {
        var bytes = [UInt8](repeating: 0, count: 4096)
        while read(descriptor, &bytes, bytes.count) == bytes.count {}
        return state.withLock { state in
            defer { state = State() }
            return (state.items, state.dropped)
        }
    }
}

/// Reads tokens off a descriptor of notify(3): four bytes each, in network byte order.
struct TokenReader {
    /// The first bytes of a token whose other bytes have not arrived yet.
    private var pending: [UInt8] = []

    /// The tokens that are there; `nil` where no more will ever come. To be called when the descriptor is readable.
    mutating func read(_ descriptor: CInt) -> [CInt]? {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = Glibc.read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return count < 0 && (errno == EINTR || errno == EAGAIN) ? [] : nil }
        return take(buffer[..<count])
    }

    /// The tokens that these bytes complete.
    mutating func take(_ bytes: some Collection<UInt8>) -> [CInt] {
        pending += bytes
        let complete = pending.count / 4 * 4
        let tokens = stride(from: 0, to: complete, by: 4).map { start in
            CInt(bitPattern: pending[start..<start + 4].reduce(0 as UInt32) { $0 << 8 | UInt32($1) })
        }
        pending.removeFirst(complete)
        return tokens
    }
}

/// Waits for signals on a thread of its own, because a signal handler may call too few functions to report an event.
enum SignalThread {
    /// Blocks the signals for this thread and those that it starts from now on. To be done before the library starts its own.
    static func block(_ signals: Set<CInt>) {
        var set = set(signals)
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Calls `handler` on that thread for each of the signals that arrives, for ever.
    static func start(_ signals: Set<CInt>, handler: @escaping @Sendable (CInt) -> Void) {
        final class Work {
            let signals: Set<CInt>
            let handler: @Sendable (CInt) -> Void

            init(_ signals: Set<CInt>, _ handler: @escaping @Sendable (CInt) -> Void) {
                (self.signals, self.handler) = (signals, handler)
            }
        }
        var thread = pthread_t()
        let work = Unmanaged.passRetained(Work(signals, handler))
        let failure = pthread_create(
            &thread,
            nil,
            { context in
                guard let context else { return nil }
                let work = Unmanaged<Work>.fromOpaque(context).takeRetainedValue()
                var set = SignalThread.set(work.signals)
                while true {
                    var signal: CInt = 0
                    if sigwait(&set, &signal) == 0 { work.handler(signal) }
                }
            },
            work.toOpaque()
        )
        guard failure == 0 else {
            Output.error.write(
                "notifyutil: could not start a thread for signals: \(String(cString: strerror(failure)))\n"
            )
            exit(ExitStatus.failed.rawValue)
        }
    }

    private static func set(_ signals: Set<CInt>) -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        return set
    }
}

/// Waits for a time.
enum Pause {
    /// Sleeps, also if signals arrive. Returns at once if the duration is not positive.
    static func sleep(_ duration: Duration) {
        guard duration > .zero else { return }
        let (seconds, attoseconds) = duration.components
        var request = timespec(tv_sec: Int(seconds), tv_nsec: Int(attoseconds / 1_000_000_000))
        var remaining = timespec()
        while nanosleep(&request, &remaining) != 0, errno == EINTR { request = remaining }
    }

    /// For poll(2), rounded up so that the time is over afterwards.
    static func milliseconds(_ duration: Duration) -> CInt {
        let (seconds, attoseconds) = duration.components
        let milliseconds = seconds * 1000 + (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000
        return CInt(clamping: max(0, milliseconds))
    }
}
