import AppleNotifications
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
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

/// Messages by identifier. The instance holds the callbacks in a dictionary. Its registrations report the message's
/// identifier through Foundation's center.
///
/// Unchecked, because the token is set before any other code has the object.
private final class Wormhole: @unchecked Sendable {
    static let messageReceived = Notification.Name("com.example.wrappers.wormhole")

    private let listeners = Mutex<[String: @Sendable (Any?) -> Void]>([:])
    private let messages = Mutex<[String: Data]>([:])
    private var token: (any NSObjectProtocol)?

    init() {
        token = NotificationCenter.default.addObserver(forName: Self.messageReceived, object: nil, queue: nil) {
            [unowned self] notification in
            guard let identifier = notification.userInfo?["identifier"] as? String else { return }
            let listener = listeners.withLock { $0[identifier] }
            let message = messages.withLock { $0[identifier] }.flatMap { try? JSONSerialization.jsonObject(with: $0) }
            listener?(message)
        }
    }

    deinit {
        if let token { NotificationCenter.default.removeObserver(token) }
        CFNotificationCenterRemoveEveryObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            Unmanaged.passUnretained(self).toOpaque()
        )
    }

    func pass(message: [String: String], identifier: String) throws {
        let data = try JSONSerialization.data(withJSONObject: message)
        messages.withLock { $0[identifier] = data }
        CFNotificationCenterPostNotification(
            CFNotificationCenterGetDarwinNotifyCenter(),
            CFNotificationName(rawValue: identifier as CFString),
            nil,
            nil,
            true
        )
    }

    func listen(for identifier: String, _ listener: @escaping @Sendable (Any?) -> Void) {
        listeners.withLock { $0[identifier] = listener }
        CFNotificationCenterAddObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            Unmanaged.passUnretained(self).toOpaque(),
            { _, _, name, _, _ in
                guard let identifier = name?.rawValue as String? else { return }
                NotificationCenter.default.post(
                    name: Wormhole.messageReceived,
                    object: nil,
                    userInfo: ["identifier": identifier]
                )
            },
            identifier as CFString,
            nil,
            .deliverImmediately
        )
    }

    func stopListening(for identifier: String) {
        listeners.withLock { _ = $0.removeValue(forKey: identifier) }
        CFNotificationCenterRemoveObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            Unmanaged.passUnretained(self).toOpaque(),
            CFNotificationName(identifier as CFString),
            nil
        )
    }
}

/// The posts of a name as a stream. The box with its continuation is retained until the stream ends.
private enum DarwinNotifications {
    private final class Box: Sendable {
        let continuation: AsyncStream<String>.Continuation
        init(_ continuation: AsyncStream<String>.Continuation) { self.continuation = continuation }
    }

    static func stream(of name: CFNotificationName) -> AsyncStream<String> {
        AsyncStream { continuation in
            let box = Unmanaged.passRetained(Box(continuation))
            let observer = UInt(bitPattern: box.toOpaque())
            CFNotificationCenterAddObserver(
                CFNotificationCenterGetDarwinNotifyCenter(),
                box.toOpaque(),
                { _, observer, name, _, _ in
                    guard let observer, let name else { return }
                    let box = Unmanaged<Box>.fromOpaque(observer).takeUnretainedValue()
                    box.continuation.yield(name.rawValue as String)
                },
                name.rawValue,
                nil,
                .deliverImmediately
            )
            continuation.onTermination = { @Sendable _ in
                guard let observer = UnsafeMutableRawPointer(bitPattern: observer) else { return }
                CFNotificationCenterRemoveEveryObserver(CFNotificationCenterGetDarwinNotifyCenter(), observer)
                DispatchQueue.main.async { [observer = UInt(bitPattern: observer)] in
                    Unmanaged<Box>.fromOpaque(UnsafeRawPointer(bitPattern: observer)!).release()
                }
            }
        }
    }
}

/// Holds the callback of a distributed observer.
private final class Token {
    var callback: ((CFDictionary?) -> Void)?
    init(_ callback: @escaping (CFDictionary?) -> Void) { self.callback = callback }
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

    @Test("one object can keep callbacks by identifier and pass messages in addition")
    func wormhole() async throws {
        let heard = Log()
        let wormhole = Wormhole()
        for letter in ["a", "b"] {
            wormhole.listen(for: "com.example.wrappers.wormhole.\(letter)") { message in
                heard.add("\(letter) \((message as? [String: String])?["text"] ?? "-")")
            }
        }
        try wormhole.pass(message: ["text": "first"], identifier: "com.example.wrappers.wormhole.a")
        try await eventually("it arrives") { heard.all == ["a first"] }
        wormhole.stopListening(for: "com.example.wrappers.wormhole.a")
        try wormhole.pass(message: ["text": "second"], identifier: "com.example.wrappers.wormhole.a")
        try wormhole.pass(message: ["text": "third"], identifier: "com.example.wrappers.wormhole.b")
        try await eventually("the other arrives") { heard.all.count == 2 }
        #expect(heard.all == ["a first", "b third"])
    }

    @Test("posts come as an async stream")
    func stream() async throws {
        let name = CFNotificationName("com.example.wrappers.stream" as CFString)
        var iterator = DarwinNotifications.stream(of: name).makeAsyncIterator()
        for _ in 0..<2 {
            CFNotificationCenterPostNotification(CFNotificationCenterGetDarwinNotifyCenter(), name, nil, nil, true)
            #expect(await iterator.next() == "com.example.wrappers.stream")
        }
    }

    // CF-R4
    @Test("a retained token observes the distributed center and is freed on removal")
    func token() async throws {
        let heard = Log()
        weak var watched: Token?
        let address: UInt
        do {
            let token = Token { heard.add(($0 as? [String: Any])?["state"] as? String ?? "-") }
            watched = token
            address = UInt(bitPattern: Unmanaged.passUnretained(token).toOpaque())
            CFNotificationCenterAddObserver(
                CFNotificationCenterGetDistributedCenter(),
                UnsafeRawPointer(Unmanaged.passRetained(token).toOpaque()),
                { center, observer, _, _, userInfo in
                    if let observer = observer {
                        Unmanaged<Token>.fromOpaque(observer).takeUnretainedValue().callback?(userInfo)
                    }
                },
                "com.example.wrappers.token" as CFString,
                nil,
                .coalesce
            )
        }
        post(
            CFNotificationCenterGetDistributedCenter(),
            "com.example.wrappers.token",
            userInfo: ["state": "Playing"] as CFDictionary
        )
        try await eventually("it is heard") { heard.all == ["Playing"] }
        await MainActor.run {
            let unmanaged = Unmanaged<Token>.fromOpaque(UnsafeRawPointer(bitPattern: address)!)
            CFNotificationCenterRemoveObserver(
                CFNotificationCenterGetDistributedCenter(),
                UnsafeRawPointer(unmanaged.toOpaque()),
                CFNotificationName("com.example.wrappers.token" as CFString),
                nil
            )
            unmanaged.release()
        }
        #expect(watched == nil)
    }
}
