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
    private let asItComes = CFNotificationCenterGetLocalCenter()
    private let unwrapped = CFNotificationCenterGetLocalCenter()!
    private let declared: CFNotificationCenter = CFNotificationCenterGetLocalCenter()
    private var computed: CFNotificationCenter { CFNotificationCenterGetLocalCenter() }

    init() { ProcessBus.use() }

    // CF-T1, CF-T2
    @Test("each function always returns the same center")
    func identity() {
        let centers: [CFNotificationCenter] = [.local, .darwinNotify, .distributed]
        #expect(Set(centers + [.local, .darwinNotify, .distributed]).count == 3)
        #expect(centers.map(\.kindOfCenter) == ["local", "darwin", "distributed"])
        #expect(centers.map(\.description).allSatisfy { $0.hasPrefix("<CFNotificationCenter ") })
    }

    // CF-T3
    @Test("a center can be passed on as an optional, unwrapped, or after guard let")
    func holding() {
        guard let bound = CFNotificationCenterGetLocalCenter() else { return #expect(Bool(false)) }
        let forms: [CFNotificationCenter?] = [asItComes, unwrapped, declared, computed, bound]
        let heard = Log()
        for (index, center) in forms.enumerated() {
            let name = "com.example.centers.holding.\(index)"
            CFNotificationCenterAddObserver(
                center,
                Unmanaged.passUnretained(heard).toOpaque(),
                { center, observer, _, _, _ in
                    let heard = Unmanaged<Log>.fromOpaque(observer!).takeUnretainedValue()
                    heard.add("\(center!)")
                },
                name as CFString,
                nil,
                .deliverImmediately
            )
            CFNotificationCenterPostNotification(center, CFNotificationName(name as CFString), nil, nil, true)
            CFNotificationCenterRemoveEveryObserver(center, Unmanaged.passUnretained(heard).toOpaque())
        }
        #expect(heard.all == Array(repeating: "<CFNotificationCenter local>", count: 5))
    }
}
