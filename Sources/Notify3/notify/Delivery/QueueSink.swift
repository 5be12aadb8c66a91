import CDispatchQueues
import DBusTransport
import Dispatch
import Synchronization

/// Calls a handler on a queue.
///
/// At most ``limit`` calls wait to begin, which is as many as Darwin's port to a process holds: after a post at least one
/// begins, in constant memory, whatever the queue does.
final class QueueSink: NoticeSink {
    typealias Handler = @Sendable (CInt) -> Void

    /// Has a job run on a queue.
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
            // Asked right before the call: after notify_cancel none begins (notify(3), a.7).
            if TokenTable.isValid(token) { handler?(token) }
        }
    }

    /// The handler is released on its queue (notify(3), a.7), after the calls that wait there.
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

/// A queue of the caller's libdispatch, held.
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
