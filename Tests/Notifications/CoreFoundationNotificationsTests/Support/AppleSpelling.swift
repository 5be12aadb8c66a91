import AppleNotifications
import Foundation

/// Imports AppleNotifications. It is separate from the files that import CoreFoundation, which has the same names.
enum AppleSpelling {
    static func add(_ observer: UnsafeRawPointer, _ name: String, _ note: @escaping @Sendable (String) -> Void) {
        CFNotificationCenterAddObserver(
            CFNotificationCenterGetLocalCenter(),
            observer,
            { _, _, name, _, userInfo in
                note("\(name!.rawValue as String) \((userInfo as? [String: Any])?["key"] as? String ?? "-")")
            },
            name as CFString,
            nil,
            .deliverImmediately
        )
    }

    static func post(_ name: String, key: String?) {
        CFNotificationCenterPostNotification(
            CFNotificationCenterGetLocalCenter(),
            CFNotificationName(name as CFString),
            nil,
            key.map { ["key": $0] as CFDictionary },
            true
        )
    }
}
