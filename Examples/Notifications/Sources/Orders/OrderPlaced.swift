public import Foundation
public import NotifyCenterFoundation

/// The message that both programs share. Its properties are the userInfo of the notification.
public struct OrderPlaced: DistributedNotificationCenter.AsyncMessage {
    public static let name = Notification.Name("com.example.order")

    public var total: Double

    public init(total: Double) { self.total = total }
}
