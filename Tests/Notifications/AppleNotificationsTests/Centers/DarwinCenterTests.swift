import AppleNotifications
import Foundation
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("The Darwin center", .timeLimit(.minutes(10)))
struct DarwinCenterTests {
    private let center: CFNotificationCenter
    private let observer: Observer

    init() {
        ProcessBus.use()
        center = CFNotificationCenterGetDarwinNotifyCenter()
        observer = Observer(center)
    }

    // CF-A8, CF-D2, CF-D6, CF-D7, CF-M6, CF-P10, CF-U4, CF-W1
    @Test("the callback runs on the main queue after the post, with the name only")
    @MainActor func arguments() async throws {
        let name = "com.example.darwin.arguments"
        // Objects that the distributed center would refuse. The Darwin center does not look at them.
        let (one, other) = (UnsafeRawPointer(bitPattern: 0x10), UnsafeRawPointer(bitPattern: 0x20))
        observer.add(name, object: one) { center, observer, name, object, userInfo in
            Observer.at(observer).heard.add(
                "\(center!) \(name!.rawValue as String) \(object == nil) \(userInfo == nil) \(isOnMainQueue())"
            )
        }
        post(center, name, object: other, userInfo: ["a": NSNull()] as CFDictionary)
        // This runs on the main queue, which stays busy until the next line.
        #expect(observer.heard.all.isEmpty)
        try await eventually("it arrives") { observer.heard.all.count == 1 }
        #expect(observer.heard.all == ["<CFNotificationCenter darwin> \(name) true true true"])
    }

    // CF-A11, CF-P6, CF-T8
    @Test("it is the same center as DarwinNotifyCenter, and posts with each option")
    func ownCenter() async throws {
        let sequence = try await DarwinNotifyCenter.default.notifications(named: "com.example.darwin.own")
        observer.add("com.example.darwin.own", label: "heard")
        post(center, "com.example.darwin.own")
        var iterator = sequence.makeAsyncIterator()
        #expect(await iterator.next()?.name == "com.example.darwin.own")
        try await eventually("it is heard") { observer.heard.all.count == 1 }
        try DarwinNotifyCenter.default.post("com.example.darwin.own")
        try await eventually("it is heard") { observer.heard.all.count == 2 }
        let name = CFNotificationName("com.example.darwin.own" as CFString)
        let both = kCFNotificationDeliverImmediately | kCFNotificationPostToAllSessions
        let options = [0, kCFNotificationDeliverImmediately, kCFNotificationPostToAllSessions, both]
        for (count, options) in options.enumerated() {
            CFNotificationCenterPostNotificationWithOptions(center, name, nil, nil, options)
            try await eventually("it is heard") { observer.heard.all.count == count + 3 }
        }
    }
}
