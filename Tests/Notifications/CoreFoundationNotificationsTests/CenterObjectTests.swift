import CoreFoundationNotifications
import Foundation
import NotifyCenter
import Testing

@Suite("The centers as CoreFoundation objects")
struct CenterObjectTests {
    private static let getters: [@Sendable () -> CFNotificationCenter?] = [
        { CFNotificationCenterGetLocalCenter() }, { CFNotificationCenterGetDarwinNotifyCenter() },
        { CFNotificationCenterGetDistributedCenter() },
    ]

    // CF-T1, CF-T2, CF-T3
    @Test("each getter returns one object on all threads, which survives releases")
    func identity() async {
        let seen = await withTaskGroup(of: [UInt].self) { group in
            for _ in 0..<64 { group.addTask { Self.getters.map { address(of: $0()) } } }
            return await group.reduce(into: Set<[UInt]>()) { $0.insert($1) }
        }
        #expect(seen.count == 1)
        #expect(Set(seen.first ?? []).subtracting([0]).count == 3)
        for getter in Self.getters {
            for _ in 0..<10_000 { getter().map { Unmanaged.passUnretained($0).release() } }
            for _ in 0..<20_000 { getter().map { _ = Unmanaged.passUnretained($0).retain() } }
            #expect(CFGetTypeID(getter()) == CFNotificationCenterGetTypeID())
        }
    }

    // CF-T1, CF-T2
    @Test("centers have a type, a description, and are equal only to themselves")
    func values() {
        #expect(text(CFCopyTypeIDDescription(CFNotificationCenterGetTypeID())) == "CFNotificationCenter")
        let centers = Self.getters.compactMap { $0() }
        let isEqual = centers.map { center in centers.map { CFEqual(center, $0) } }
        #expect(isEqual == [[true, false, false], [false, true, false], [false, false, true]])
        #expect(Set(centers.map { CFHash($0) }).count == 3)
        for (center, name) in zip(centers, ["{local}", "{Darwin notify}", "{distributed}"]) {
            let description = text(CFCopyDescription(center))
            #expect(description.hasPrefix("<CFNotificationCenter 0x") && description.hasSuffix(name), "\(description)")
        }
    }

    // CF-T7, CF-T8
    @Test("the constants are the same as in the Swift API")
    func constants() {
        let behaviors: [CFNotificationSuspensionBehavior] = [.drop, .coalesce, .hold, .deliverImmediately]
        #expect(behaviors.map(\.rawValue) == SuspensionBehavior.allCases.map(\.rawValue))
        let options = [kCFNotificationDeliverImmediately, kCFNotificationPostToAllSessions].map { UInt($0) }
        #expect(options == [PostingOptions.deliverImmediately, .postToAllSessions].map(\.rawValue))
    }
}
