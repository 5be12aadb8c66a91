public import Foundation
public import NotifyCenter

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
