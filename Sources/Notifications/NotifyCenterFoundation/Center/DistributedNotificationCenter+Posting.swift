public import Foundation
import NotifyCenter

extension DistributedNotificationCenter {
    /// Posts without ``Options/deliverImmediately`` (CF-X3).
    ///
    /// On return the kernel has the notification, so that the process may end at once; who receives it is not reported (CF-P11).
    /// Name, object and userInfo are copied (CF-P12). So do all functions that post.
    ///
    /// - Parameters:
    ///   - name: any text, the empty one included.
    ///   - object: what it is about; without one, only observers of any object receive it (CF-P2).
    ///   - userInfo: a property list (`PropertyListValue.init(foundationValue:)` names the types) of at most 16 MiB,
    ///     nested at most 20 arrays and dictionaries deep. An empty one arrives as empty, and none as none (CF-U6).
    ///
    /// A userInfo that cannot travel, and a bus that cannot be reached, are reported to `UnthrownFailures`;
    /// then nobody gets the notification.
    public func post(name: NSNotification.Name, object: String?, userInfo: [AnyHashable: Any]? = nil) {
        report { try post(name, object, userInfo, []) }
    }

    /// Posts name, object and userInfo of a notification, as ``post(name:object:userInfo:)`` does. An object that is not text is
    /// reported, and nothing posted (CF-X6).
    public func post(_ notification: Notification) {
        report { try post(notification.name, ObjectText.text(notification.object), notification.userInfo, []) }
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

    /// Posts with options; otherwise as ``post(name:object:userInfo:)``. A post to all sessions that the bus cannot reach is
    /// reported, and nobody gets it.
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
        var propertyList: UserInfo?
        if let userInfo { propertyList = try UserInfo(propertyList: userInfo) }
        try center.post(
            NotificationName(name),
            object: object,
            userInfo: propertyList,
            options: PostingOptions(rawValue: options.rawValue)
        )
    }

    private func report(in function: String = #function, _ work: () throws -> Void) {
        do { try work() } catch { UnthrownFailures.report(error, in: "DistributedNotificationCenter.\(function)") }
    }
}
