import AppleNotifications
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

/// One registration, which its deinit removes.
private final class DarwinObserver {
    private let name: String
    private let callback: () -> Void
    private var cfName: CFNotificationName { CFNotificationName(name as CFString) }

    init(name: String, callback: @escaping () -> Void) {
        self.name = name
        self.callback = callback

        let center = CFNotificationCenterGetDarwinNotifyCenter()
        let observer = UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque())

        CFNotificationCenterAddObserver(
            center,
            observer,
            { (_, observer, _, _, _) in
                guard let observer = observer else { return }
                let mySelf = Unmanaged<DarwinObserver>.fromOpaque(observer).takeUnretainedValue()
                mySelf.callback()
            },
            name as CFString,
            nil,
            .deliverImmediately
        )
    }

    deinit {
        let observer = UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque())
        CFNotificationCenterRemoveObserver(CFNotificationCenterGetDarwinNotifyCenter(), observer, cfName, nil)
    }
}

@Suite("Common wrappers of existing projects", .timeLimit(.minutes(10)))
struct WrapperTests {
    init() { ProcessBus.use() }

    // CF-A2, CF-R2
    @Test("an observing object is called until it is freed")
    func observerObject() async throws {
        let name = "com.example.wrappers.observer"
        let (heard, witness) = (Log(), Log())
        var observer: DarwinObserver? = DarwinObserver(name: name) { heard.add("heard") }
        let other = DarwinObserver(name: name) { witness.add("heard") }
        #expect(observer != nil)
        post(CFNotificationCenterGetDarwinNotifyCenter(), name)
        try await eventually("both hear") { heard.all.count == 1 && witness.all.count == 1 }
        // On the main queue, where callbacks run: elsewhere the object could be freed during a call, on Apple too.
        await MainActor.run { observer = nil }
        post(CFNotificationCenterGetDarwinNotifyCenter(), name)
        try await eventually("the other hears") { witness.all.count == 2 }
        #expect(heard.all.count == 1)
        withExtendedLifetime(other) {}
    }
}
