import AppleNotifications
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

extension CFNotificationCenter {
    fileprivate static var local: CFNotificationCenter { CFNotificationCenterGetLocalCenter() }
    fileprivate static var darwinNotify: CFNotificationCenter { CFNotificationCenterGetDarwinNotifyCenter() }
    fileprivate static let distributed: CFNotificationCenter = CFNotificationCenterGetDistributedCenter()

    fileprivate var kindOfCenter: String? {
        switch self {
        case CFNotificationCenterGetLocalCenter(): return "local"
        case CFNotificationCenterGetDarwinNotifyCenter(): return "darwin"
        case CFNotificationCenterGetDistributedCenter(): return "distributed"
        default: return .none
        }
    }
}

@Suite("The functions' signatures")
struct SignatureTests {
    init() { ProcessBus.use() }

    // CF-T8, CF-T9, CF-T1, CF-T2
    @Test("the functions return one center each, and have Apple's optional arguments")
    func optionals() {
        let centers: [CFNotificationCenter] = [.local, .darwinNotify, .distributed]
        #expect(Set(centers + [.local, .darwinNotify, .distributed]).count == 3)
        #expect(centers.map(\.kindOfCenter) == ["local", "darwin", "distributed"])
        #expect(centers.map(\.description).allSatisfy { $0.hasPrefix("<CFNotificationCenter ") })
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
