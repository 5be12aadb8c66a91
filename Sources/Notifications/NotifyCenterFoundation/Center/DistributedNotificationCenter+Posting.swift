public import Foundation
import NotifyCenter

extension DistributedNotificationCenter {
    /// Posts without `Options.deliverImmediately` (CF-X3).
    ///
    /// On return the kernel has the notification; nobody reports who receives it (CF-P11). Name, object and userInfo are copied
    /// (CF-P12). This holds for all functions that post.
    ///
    /// - Parameters:
    ///   - name: any text, the empty one included.
    ///   - object: what it is about; without one, only observers of any object receive it (CF-P2).
    ///   - userInfo: a property list (`PropertyListValue.init(foundationValue:)` names the types) of at most 1 MiB (CF-U9),
    ///     nested at most 20 arrays and dictionaries deep. An empty one arrives as empty, and `nil` as `nil` (CF-U6).
    ///
    /// Where the userInfo cannot travel, or the bus cannot be reached, the function reports to `UnthrownFailures` and posts nothing.
    public func post(name: NSNotification.Name, object: String?, userInfo: [AnyHashable: Any]? = nil) {
        report { try post(name, object, userInfo, []) }
    }

    /// Posts name, object and userInfo of a notification, as ``post(name:object:userInfo:)`` does. Where the object is not text it
    /// reports that and posts nothing (CF-X6).
    public func post(_ notification: Notification) {
        report { try post(notification.name, text(of: notification.object), notification.userInfo, []) }
    }

    /// Posts, and where `deliverImmediately` is true, also to suspended observers at once (CF-P5); otherwise as
    /// ``post(name:object:userInfo:)``.
    public func postNotificationName(
        _ name: NSNotification.Name,
        object: String?,
        userInfo: [AnyHashable: Any]? = nil,
        deliverImmediately: Bool
    ) {
        report { try post(name, object, userInfo, deliverImmediately ? .deliverImmediately : []) }
    }

    /// Posts with options; otherwise as ``post(name:object:userInfo:)``.
    public func postNotificationName(
        _ name: NSNotification.Name,
        object: String?,
        userInfo: [AnyHashable: Any]? = nil,
        options: Options = []
    ) {
        report { try post(name, object, userInfo, options) }
    }

    private func post(
        _ name: NSNotification.Name,
        _ object: String?,
        _ userInfo: [AnyHashable: Any]?,
        _ options: Options
    ) throws {
        let userInfo = try userInfo.map { try UserInfo(propertyList: $0) }
        try center.post(NotificationName(name), object: object, userInfo: userInfo, options: options)
    }

    /// Does the work of one of the class's functions, and reports what it throws.
    func report(in function: String = #function, _ work: () throws -> Void) {
        UnthrownFailures.report(in: "DistributedNotificationCenter.\(function)", work)
    }
}
