import Basics
import Dispatch
import Glibc
import Synchronization

/// Threads for work that blocks or computes for long. The broker owns them. A flood of such work, or a disk that hangs,
/// thus occupies no thread of Swift's pool or of libdispatch, which sign-outs need.
public final class Workers: Sendable {
    /// The state that the threads share. They keep it alive, but not the `Workers`.
    private final class Queue: Sendable {
        struct State {
            var jobs: [@Sendable () -> Void] = []
            var started = 0
            var idle = 0
        }

        let state = Locked(State())
        let signal = DispatchSemaphore(value: 0)

        /// Waits for the next job; `nil` at the end.
        func next() -> (@Sendable () -> Void)? {
            state.withLock { $0.idle += 1 }
            signal.wait()
            return state.withLock { state in
                state.idle -= 1
                return state.jobs.isEmpty ? nil : state.jobs.removeFirst()
            }
        }
    }

    private let label: StaticString
    private let count: Int
    private let capacity: Int
    private let queue = Queue()

    /// Up to `count` jobs run at once, and up to `capacity` jobs wait.
    public init(label: StaticString, count: Int, capacity: Int) {
        (self.label, self.count, self.capacity) = (label, count, capacity)
    }

    /// Queued jobs still run.
    deinit { for _ in 0..<queue.state.withLock({ $0.started }) { queue.signal.signal() } }

    /// Runs the job on one of the threads, in the order of the calls; not at all after a `false`: the queue is full, or
    /// the system grants no thread.
    @discardableResult
    public func submit(_ job: @escaping @Sendable () -> Void) -> Bool {
        let isTaken = queue.state.withLock { state in
            guard state.jobs.count < capacity + state.idle else { return false }
            // Without an idle thread, start one. If the system grants none, an existing thread does the job.
            if state.idle <= state.jobs.count, state.started < count {
                if startThread() { state.started += 1 }
                guard state.started > 0 else { return false }
            }
            state.jobs.append(job)
            return true
        }
        if isTaken { queue.signal.signal() }
        return isTaken
    }

    /// Runs `body` and returns its result; `nil` if ``submit(_:)`` does not take it. A cancelled task waits, too.
    @discardableResult
    public func run<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async -> Value? {
        await withCheckedContinuation { continuation in
            if !submit({ continuation.resume(returning: body()) }) { continuation.resume(returning: nil) }
        }
    }

    private func startThread() -> Bool {
        let thread = QuietThread.start(label) { [queue] in
            while let job = queue.next() { job() }
        }
        return thread != nil
    }
}
