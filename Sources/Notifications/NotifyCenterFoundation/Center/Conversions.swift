import DBusTransport
public import Foundation
public import NotifyCenter
import Synchronization

extension NotificationName {
    /// The name with the same text.
    public init(_ name: Notification.Name) { self.init(name.rawValue) }
}

extension Notification.Name {
    /// The name with the same text.
    public init(_ name: NotificationName) { self.init(name.rawValue) }
}

extension Notification {
    /// A notification that arrived, in Foundation's types.
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

/// Jobs as operations of a queue. Each is an operation of its own, so that a suspension or a barrier of the queue may come between two.
/// They run one after the other, also on a queue that allows more at once.
final class OperationSeries: Sendable {
    private let queue: OperationQueue
    private let last = Locked(WeakOperation())

    private struct WeakOperation {
        weak var operation: Operation?
    }

    init(_ queue: OperationQueue) { self.queue = queue }

    func add(_ job: @escaping @Sendable () -> Void) {
        let operation = NotificationOperation(job)
        // Only the reading thread adds, so that the jobs get into the queue in this order.
        let previous = last.withLock { last in
            defer { last.operation = operation }
            return last.operation
        }
        if let previous { operation.addDependency(previous) }
        queue.addOperation(operation)
    }
}

/// An operation that runs also when somebody cancels all operations of the queue: the center counts what is on its way, and each job is
/// part of that count. Tokens remove observers.
private final class NotificationOperation: Operation, @unchecked Sendable {
    // Unchecked: the job never changes.
    private let job: @Sendable () -> Void

    init(_ job: @escaping @Sendable () -> Void) { self.job = job }

    override func main() {
        // An operation holds those that it depends on, also after it has run. In a queue that is never empty, the chain would grow to all
        // operations that there ever were, and its end would overflow the stack.
        for dependency in dependencies { removeDependency(dependency) }
        job()
    }

    override func cancel() {}
}
