import DBusTransport
public import Foundation
public import NotifyCenter
import Synchronization

extension NotificationName {
    /// The name with the text of Foundation's.
    public init(_ name: Notification.Name) { self.init(name.rawValue) }
}

extension Notification.Name {
    /// The name with the text of NotifyCenter's.
    public init(_ name: NotificationName) { self.init(name.rawValue) }
}

extension Notification {
    /// What arrived, in Foundation's types.
    init(_ notification: DistributedNotification) {
        self.init(
            name: Notification.Name(notification.name),
            object: notification.object,
            userInfo: notification.userInfo?.foundationValue
        )
    }
}

extension Delivery {
    /// `nil` is the main queue (CF-D2).
    init(_ queue: OperationQueue?) {
        guard let queue, queue != .main else {
            self = .main
            return
        }
        let series = OperationSeries(queue)
        self = .scheduled { series.add($0) }
    }
}

/// Jobs as operations of a queue: one operation each, so that the queue's suspension and barriers come in between, and one after the
/// other, also on a queue that allows more at once.
final class OperationSeries: Sendable {
    private let queue: OperationQueue
    private let last = Locked(WeakOperation())

    private struct WeakOperation {
        weak var operation: Operation?
    }

    init(_ queue: OperationQueue) { self.queue = queue }

    func add(_ job: @escaping @Sendable () -> Void) {
        let operation = NotificationOperation(job)
        // One thread adds, that which reads the bus, so that the order of this is that of the queue.
        let previous = last.withLock { last in
            defer { last.operation = operation }
            return last.operation
        }
        if let previous { operation.addDependency(previous) }
        queue.addOperation(operation)
    }
}

/// An operation that always runs: what it does not deliver because somebody cancels all operations would be missing from the account of
/// what is on its way. Observers are removed by their token.
private final class NotificationOperation: Operation, @unchecked Sendable {
    // Unchecked: the job never changes.
    private let job: @Sendable () -> Void

    init(_ job: @escaping @Sendable () -> Void) { self.job = job }

    override func main() {
        // An operation that has run holds those it depended on: in a queue that is never empty all there ever were, and freeing
        // such a chain at last overflows the stack.
        for dependency in dependencies { removeDependency(dependency) }
        job()
    }

    override func cancel() {}
}
