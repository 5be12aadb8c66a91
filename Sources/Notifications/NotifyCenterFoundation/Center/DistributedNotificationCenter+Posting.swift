public import Foundation
import NotifyCenter

extension DistributedNotificationCenter {
    /// Posts without `Options.deliverImmediately` (CF-X3).
    ///
    /// On return the kernel has the notification; no report tells who receives it (CF-P11). Name, object and userInfo
    /// are copied (CF-P12). This holds for all functions that post.
    ///
    /// - Parameters:
    ///   - name: any text, including the empty text.
    ///   - object: the object that the notification is about; with `nil`, only observers of any object receive it
    ///     (CF-P2).
    ///   - userInfo: a property list (`PropertyListValue.init(foundationValue:)` names the types) of at most 1 MiB
    ///     (CF-U9),
    ///     nested at most 20 arrays and dictionaries deep. An empty one arrives as empty, and `nil` as `nil` (CF-U6).
    ///
    /// If the userInfo cannot be sent, or the bus cannot be reached, the function reports to `UnthrownFailures` and
    /// posts nothing.
    public func post(name: NSNotification.Name, object: String?, userInfo: [AnyHashable: Any]? = nil) {
        report { try post(name, object, userInfo, []) }
    }

    /// Posts the name, object and userInfo of a notification like ``post(name:object:userInfo:)``. If the object is not
    /// text, the function reports that and posts nothing (CF-X6).
    public func post(_ notification: Notification) {
        report { try post(notification.name, text(of: notification.object), notification.userInfo, []) }
    }

    /// Posts like ``post(name:object:userInfo:)``. If `deliverImmediately` is true, suspended observers get the
    /// notification at once too (CF-P5).
    public func postNotificationName(
        _ name: NSNotification.Name,
        object: String?,
        userInfo: [AnyHashable: Any]? = nil,
        deliverImmediately: Bool
    ) {
        report { try post(name, object, userInfo, deliverImmediately ? .deliverImmediately : []) }
    }

    /// Posts like ``post(name:object:userInfo:)``, with options.
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

    /// Runs `work` for one of this class's functions, and reports its error.
    func report(in function: String = #function, _ work: () throws -> Void) {
        UnthrownFailures.report(in: "DistributedNotificationCenter.\(function)", work)
    }
}
