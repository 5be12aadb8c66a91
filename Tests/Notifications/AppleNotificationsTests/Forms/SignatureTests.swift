import AppleNotifications
import Foundation
import Testing

@Suite("The functions' signatures")
struct SignatureTests {
    // CF-T8, CF-T9
    @Test("each function has Apple's arguments, and all pointers and objects are optional")
    func optionals() {
        let add:
            (
                CFNotificationCenter?, UnsafeRawPointer?, CFNotificationCallback?, CFString?, UnsafeRawPointer?,
                CFNotificationSuspensionBehavior
            ) -> Void = CFNotificationCenterAddObserver
        let remove: (CFNotificationCenter?, UnsafeRawPointer?, CFNotificationName?, UnsafeRawPointer?) -> Void =
            CFNotificationCenterRemoveObserver
        let removeEvery: (CFNotificationCenter?, UnsafeRawPointer?) -> Void = CFNotificationCenterRemoveEveryObserver
        let post: (CFNotificationCenter?, CFNotificationName?, UnsafeRawPointer?, CFDictionary?, Bool) -> Void =
            CFNotificationCenterPostNotification
        let postWithOptions:
            (CFNotificationCenter?, CFNotificationName?, UnsafeRawPointer?, CFDictionary?, CFOptionFlags) -> Void =
                CFNotificationCenterPostNotificationWithOptions
        let heard = Log()
        let center: CFNotificationCenter? = CFNotificationCenterGetLocalCenter()
        let observer: UnsafeRawPointer? = UnsafeRawPointer(Unmanaged.passUnretained(heard).toOpaque())
        let name: CFNotificationName? = CFNotificationName("com.example.signatures" as CFString)
        let userInfo: [String: Any]? = ["count": 1]
        add(
            center,
            observer,
            { _, observer, _, _, userInfo in
                Unmanaged<Log>.fromOpaque(observer!).takeUnretainedValue().add("\(userInfo?.count ?? 0)")
            },
            name?.rawValue,
            nil,
            .coalesce
        )
        post(center, name, nil, userInfo as CFDictionary?, false)
        postWithOptions(center, name, nil, nil, kCFNotificationDeliverImmediately | kCFNotificationPostToAllSessions)
        remove(center, observer, name, nil)
        removeEvery(center, observer)
        post(center, name, nil, nil, true)
        #expect(heard.all == ["1", "0"])
        #expect([kCFNotificationDeliverImmediately, kCFNotificationPostToAllSessions] == [1, 2])
    }
}
