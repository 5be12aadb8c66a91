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

@Suite("Forms of centers")
struct CenterFormsTests {
    init() { ProcessBus.use() }

    // CF-T1, CF-T2
    @Test("each function always returns the same center")
    func identity() {
        let centers: [CFNotificationCenter] = [.local, .darwinNotify, .distributed]
        #expect(Set(centers + [.local, .darwinNotify, .distributed]).count == 3)
        #expect(centers.map(\.kindOfCenter) == ["local", "darwin", "distributed"])
        #expect(centers.map(\.description).allSatisfy { $0.hasPrefix("<CFNotificationCenter ") })
    }
}
