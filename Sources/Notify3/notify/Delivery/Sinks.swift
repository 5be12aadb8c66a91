import Basics
import CNotify.Queues
import DBus
import Dispatch
import Glibc
import Synchronization

/// Receives the notices of a registration. The reading thread calls ``notify(_:)``, with three exceptions:
/// - a post of a `self.` name: the poster's thread
/// - `notify_resume`: the caller's thread
/// - a change of a path: the thread that watches paths
///
/// The client's lock is free during each call.
protocol NoticeSink: AnyObject, Sendable {
    /// Notifies of a post of the token's name.
    func notify(_ token: CInt)
    /// Ends the service for this token. Called once.
    func end(_ token: CInt)
}

/// Sends the process a signal. The system chooses a thread that does not block the signal; the library's own threads
/// block all signals but those of a crash.
final class SignalSink: NoticeSink {
    private let signal: CInt
    private let hasEnded = PosixLocked(false)

    /// `nil` if there is no such signal.
    init?(_ signal: CInt) {
        // The C library decides, because it reserves some real-time signals: sent to the process, they would end it.
        var action = sigaction()
        guard sigaction(signal, nil, &action) == 0 else { return nil }
        self.signal = signal
    }

    func notify(_ token: CInt) {
        withSignalsBlocked {
            hasEnded.withLock { hasEnded in
                if !hasEnded { kill(getpid(), signal) }
            }
        }
    }

    /// Waits for a `notify` in progress, because the caller may remove its signal handler after notify_cancel. A signal
    /// that was sent already is delivered when the mask is restored.
    func end(_ token: CInt) { withSignalsBlocked { hasEnded.withLock { $0 = true } } }

    /// Blocks all signals on this thread, so that no signal handler runs while the lock is held.
    private func withSignalsBlocked(_ body: () -> Void) {
        var (all, previous) = (sigset_t(), sigset_t())
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &previous)
        body()
        pthread_sigmask(SIG_SETMASK, &previous, nil)
    }
}

/// Calls a handler on a queue.
///
/// At most ``limit`` calls wait to begin, as many as Darwin's port to a process holds. So at least one call begins
/// after each post, and a slow queue costs no more memory than these calls.
final class QueueSink: NoticeSink {
    typealias Handler = @Sendable (CInt) -> Void
    typealias Scheduling = @Sendable (@escaping @Sendable () -> Void) -> Void

    private struct State {
        var handler: Handler?
        var waiting = 0
    }

    private static let limit = 16

    private let state: Locked<State>
    private let schedule: Scheduling

    init(_ handler: @escaping Handler, schedule: @escaping Scheduling) {
        state = Locked(State(handler: handler))
        self.schedule = schedule
    }

    func notify(_ token: CInt) {
        let isDue = state.withLock { state in
            guard state.handler != nil, state.waiting < Self.limit else { return false }
            state.waiting += 1
            return true
        }
        guard isDue else { return }
        schedule {
            let handler = self.state.withLock { state in
                state.waiting -= 1
                return state.handler
            }
            // Checked right before the call: no call may begin after notify_cancel (Rules, a.7).
            if TokenTable.isValid(token) { handler?(token) }
        }
    }

    /// Releases the handler on its queue (Rules, a.7), after the calls that wait there.
    func end(_ token: CInt) {
        schedule {
            let handler = self.state.withLock { state in
                defer { state.handler = nil }
                return state.handler
            }
            withExtendedLifetime(handler) {}
        }
    }
}

/// A retained queue of the caller's libdispatch.
final class CallersQueue: @unchecked Sendable {
    // Unchecked: the pointer is constant, and libdispatch's queues may be used from any thread.
    private let queue: UnsafeMutableRawPointer

    init(_ queue: OpaquePointer) {
        self.queue = UnsafeMutableRawPointer(queue)
        CDispatchQueues_retain(self.queue)
    }

    deinit { CDispatchQueues_release(queue) }

    func schedule(_ job: @escaping @Sendable () -> Void) {
        let context = Unmanaged.passRetained(Job(job)).toOpaque()
        CDispatchQueues_async(queue, context) { context in
            guard let context else { return }
            Unmanaged<Job>.fromOpaque(context).takeRetainedValue().work()
        }
    }

    private final class Job: Sendable {
        let work: @Sendable () -> Void
        init(_ work: @escaping @Sendable () -> Void) { self.work = work }
    }
}

/// A copy of a block of type `void (^)(int)`. The caller's blocks runtime makes and releases it.
final class CallersBlock: @unchecked Sendable {
    // Unchecked: the pointer is constant, and a C caller is responsible for what its block does on any thread.
    private let block: UnsafeMutableRawPointer

    /// Returns `nil` if there is no memory.
    init?(_ block: UnsafeRawPointer) {
        guard let copy = CDispatchQueues_copyBlock(block) else { return nil }
        self.block = copy
    }

    deinit { CDispatchQueues_releaseBlock(block) }

    @Sendable func call(_ token: CInt) { CDispatchQueues_callBlock(block, token) }
}

/// A function of a C caller with its context. The last release of this object releases the context.
final class CallersFunction: @unchecked Sendable {
    // Unchecked: the pointers are constant, and a C caller is responsible for what its functions do with the context on
    // any thread.
    private let handler: @convention(c) (UnsafeMutableRawPointer?, CInt) -> Void
    private let context: UnsafeMutableRawPointer?
    private let release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)?
    private let isReleasing = Atomic<Bool>(true)

    init(
        _ handler: @escaping @convention(c) (UnsafeMutableRawPointer?, CInt) -> Void,
        _ context: UnsafeMutableRawPointer?,
        _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)?
    ) {
        (self.handler, self.context, self.release) = (handler, context, release)
    }

    deinit {
        if isReleasing.load(ordering: .relaxed) { release?(context) }
    }

    /// Leaves the context to the caller: it is not released.
    func keepContext() { isReleasing.store(false, ordering: .relaxed) }

    @Sendable func call(_ token: CInt) { handler(context, token) }
}
