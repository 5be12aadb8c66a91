import Basics
import DBus
public import Foundation
public import NotifyCenter
import Synchronization

extension NotificationName {
    /// Creates a name with the same text.
    public init(_ name: Notification.Name) { self.init(name.rawValue) }
}

extension Notification.Name {
    /// Creates a name with the same text.
    public init(_ name: NotificationName) { self.init(name.rawValue) }
}

extension Notification {
    init(_ notification: DistributedNotification) {
        self.init(
            name: Notification.Name(notification.name),
            object: notification.object,
            userInfo: notification.userInfo?.foundationValue
        )
    }
}

extension Delivery {
    /// Delivery on an operation queue; `nil` is the main queue (CF-D2).
    init(_ queue: OperationQueue?) {
        guard let queue, queue != .main else {
            self = .main
            return
        }
        let series = OperationSeries(queue)
        self = .scheduled { series.add($0) }
    }
}

/// Runs jobs as operations of a queue. Each job is a separate operation, so that a suspension or a barrier of the queue
/// may come between two. The jobs run one after the other, even on a concurrent queue.
final class OperationSeries: Sendable {
    private let queue: OperationQueue
    private let last = Locked(WeakOperation())

    private struct WeakOperation {
        weak var operation: Operation?
    }

    init(_ queue: OperationQueue) { self.queue = queue }

    func add(_ job: @escaping @Sendable () -> Void) {
        let operation = NotificationOperation(job)
        // Only the reading thread adds, so the jobs enter the queue in this order.
        let previous = last.withLock { last in
            defer { last.operation = operation }
            return last.operation
        }
        if let previous { operation.addDependency(previous) }
        queue.addOperation(operation)
    }
}

/// An operation that ignores `cancelAllOperations()` of its queue. The center counts pending jobs, and each must run to
/// keep that count right. Only its token removes an observer.
private final class NotificationOperation: Operation, @unchecked Sendable {
    // Unchecked: the job never changes.
    private let job: @Sendable () -> Void

    init(_ job: @escaping @Sendable () -> Void) { self.job = job }

    override func main() {
        // An operation retains its dependencies, even after it has run. In a queue that never drains, the chain would
        // keep all operations alive, and freeing it would overflow the stack.
        for dependency in dependencies { removeDependency(dependency) }
        job()
    }

    override func cancel() {}
}
