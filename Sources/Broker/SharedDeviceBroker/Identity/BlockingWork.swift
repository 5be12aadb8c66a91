import DBusTransport
import Dispatch
import Synchronization

/// Runs work that blocks or computes for long on a few threads of its own. Tasks wait for it without holding a thread of
/// Swift's pool.
final class BlockingWork: Sendable {
    /// The queue is full.
    struct Full: Error {}

    private struct State: ~Copyable {
        var running = 0
        var waiting: [@Sendable () -> Void] = []
    }

    private let width: Int
    private let capacity: Int
    private let queue: DispatchQueue
    private let state = Locked(State())

    /// - Parameters:
    ///   - width: How many bodies run at once, at most.
    ///   - capacity: How many more wait, at most.
    init(label: String, width: Int, capacity: Int) {
        self.width = width
        self.capacity = capacity
        // Of no raised priority: that takes a privilege, without which libdispatch complains in the system's log.
        queue = DispatchQueue(label: label, attributes: .concurrent)
    }

    /// Runs `body` on a thread of the queue, in the order of the calls, and returns what it returns. A task that is
    /// cancelled meanwhile waits all the same.
    ///
    /// - Throws: `Full` where too many wait already; `body` is not run then.
    func run<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async throws(Full) -> Value {
        let value: Value? = await withCheckedContinuation { continuation in
            if !submit({ continuation.resume(returning: body()) }) { continuation.resume(returning: nil) }
        }
        guard let value else { throw Full() }
        return value
    }

    private func submit(_ job: @escaping @Sendable () -> Void) -> Bool {
        enum Decision {
            case start
            case wait
            case refuse
        }
        let decision = state.withLock { state -> Decision in
            if state.running < width {
                state.running += 1
                return .start
            }
            guard state.waiting.count < capacity else { return .refuse }
            state.waiting.append(job)
            return .wait
        }
        if decision == .start { queue.async { self.work(through: job) } }
        return decision != .refuse
    }

    private func work(through job: @escaping @Sendable () -> Void) {
        var next: (@Sendable () -> Void)? = job
        while let job = next {
            job()
            next = state.withLock { state -> (@Sendable () -> Void)? in
                if state.waiting.isEmpty {
                    state.running -= 1
                    return nil
                }
                return state.waiting.removeFirst()
            }
        }
    }
}
