import DBusTransport
import Dispatch
import Foundation
import Glibc
import Synchronization

/// Threads for work that blocks or computes for long. They are the broker's own: neither a flood of such work nor a disk that stands still
/// takes a thread from Swift's pool or libdispatch's, by which sign-outs go on.
package final class Workers: Sendable {
    /// The queue is full.
    package struct Full: Error {}

    /// What the threads share. They keep it, and not their owner, alive.
    private final class Queue: Sendable {
        struct State {
            var jobs: [@Sendable () -> Void] = []
            var started = 0
            var idle = 0
        }

        let state = Locked(State())
        let signal = DispatchSemaphore(value: 0)

        /// The next job, as soon as there is one; `nil` at the end.
        func next() -> (@Sendable () -> Void)? {
            state.withLock { $0.idle += 1 }
            signal.wait()
            return state.withLock { state in
                state.idle -= 1
                return state.jobs.isEmpty ? nil : state.jobs.removeFirst()
            }
        }
    }

    private let label: String
    private let count: Int
    private let capacity: Int
    private let queue = Queue()

    /// - Parameters:
    ///   - count: how many jobs run at once, at most.
    ///   - capacity: how many more wait, at most.
    package init(label: String, count: Int, capacity: Int) {
        self.label = label
        self.count = count
        self.capacity = capacity
    }

    /// Jobs that wait are still done.
    deinit { for _ in 0..<queue.state.withLock({ $0.started }) { queue.signal.signal() } }

    /// Runs the job on one of the threads, in the order of the calls.
    ///
    /// - Returns: `false` where too many wait already; the job is not run then.
    @discardableResult
    package func submit(_ job: @escaping @Sendable () -> Void) -> Bool {
        let (isTaken, starts) = queue.state.withLock { [count, capacity] state -> (Bool, Bool) in
            guard state.jobs.count < capacity + state.idle else { return (false, false) }
            state.jobs.append(job)
            guard state.idle < state.jobs.count, state.started < count else { return (true, false) }
            state.started += 1
            return (true, true)
        }
        guard isTaken else { return false }
        if starts { start() }
        queue.signal.signal()
        return true
    }

    /// Runs `body` and returns what it returns. A task that is cancelled meanwhile waits all the same.
    ///
    /// - Throws: ``Full``; `body` is not run then.
    package func run<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async throws(Full) -> Value {
        let value: Value? = await withCheckedContinuation { continuation in
            if !submit({ continuation.resume(returning: body()) }) { continuation.resume(returning: nil) }
        }
        guard let value else { throw Full() }
        return value
    }

    private func start() {
        let thread = Thread { [queue] in
            while let job = queue.next() { job() }
        }
        thread.name = label
        thread.start()
    }
}
