import AppleNotifications
import Foundation
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("The distributed center", .timeLimit(.minutes(10)))
struct DistributedCenterTests {
    private let center: CFNotificationCenter
    private let observer: Observer

    init() {
        ProcessBus.use()
        Failures.collect()
        center = CFNotificationCenterGetDistributedCenter()
        observer = Observer(center)
    }

    private func pointer(_ text: CFString) -> UnsafeMutableRawPointer { Unmanaged.passUnretained(text).toOpaque() }

    // CF-M1, CF-M2, CF-M4, CF-P2, CF-B5, CF-R2, CF-R3, CF-R8
    @Test("names and objects match as the table says, and post and removal compare text")
    func matching() async throws {
        let (n, m) = ("com.example.distributed.matching.n", "com.example.distributed.matching.m")
        // The objects differ from those of other tests, which post at the same time.
        let (a, b, sameText) = ("matching A" as CFString, "matching B" as CFString, "matching A" as CFString)
        observer.add(n, label: "n/any")
        observer.add(n, object: pointer(a), label: "n/A")
        observer.add(nil, object: pointer(a), label: "any/A")
        post(center, n)
        post(center, n, object: pointer(sameText))
        post(center, n, object: pointer(b))
        post(center, m, object: pointer(sameText))
        try await eventually("all arrive") { observer.heard.all.last == "any/A \(m)" }
        #expect(
            observer.heard.all == ["n/any \(n)", "n/any \(n)", "n/A \(n)", "any/A \(n)", "n/any \(n)", "any/A \(m)"]
        )
        observer.remove(n, object: pointer(sameText))
        post(center, n, object: pointer(a))
        try await eventually("the others hear") { observer.heard.all.count == 8 }
        #expect(Array(observer.heard.all.suffix(2)) == ["n/any \(n)", "any/A \(n)"])
        withExtendedLifetime((sameText, a, b)) {}
    }

    // CF-D2, CF-D6, CF-D8, CF-P10
    @Test("the callback runs on the main queue after the post, with the object as CFString")
    @MainActor func arguments() async throws {
        observer.add("com.example.distributed.arguments") { center, observer, name, object, userInfo in
            let object = Unmanaged<CFString>.fromOpaque(object!).takeUnretainedValue() as String
            Observer.at(observer).heard.add(
                "\(center!) \(name!.rawValue as String) \(object) \(userInfo == nil) \(isOnMainQueue())"
            )
        }
        let object = "till \u{0} 3, \u{1F4B6}" as CFString
        post(center, "com.example.distributed.arguments", object: pointer(object))
        #expect(observer.heard.all.isEmpty)
        try await eventually("it arrives") { observer.heard.all.count == 1 }
        #expect(
            observer.heard.all == [
                "<CFNotificationCenter distributed> com.example.distributed.arguments till \u{0} 3, \u{1F4B6} true true"
            ]
        )
        withExtendedLifetime(object) {}
    }

    // CF-D8, CF-U8: the module keeps a client's last strings. Posts of other processes must not displace them.
    @Test("a callback's object is not kept after the call")
    func objectsOfCallbacks() async throws {
        let kept = WeakString()
        observer.add("com.example.distributed.notKept") { [heard = observer.heard] _, _, _, object, _ in
            kept.string = Unmanaged<CFString>.fromOpaque(object!).takeUnretainedValue()
            heard.add("called")
        }
        let object = "a text that is too long to be stored in a reference" as CFString
        post(center, "com.example.distributed.notKept", object: Unmanaged<AnyObject>.passUnretained(object).toOpaque())
        try await eventually("it arrives") { !observer.heard.all.isEmpty }
        try await eventually("it ends") { kept.string == nil }
        withExtendedLifetime(object) {}
    }

    // CF-U1, CF-U6, CF-U7, CF-P4
    @Test("property lists keep their types, and an empty userInfo differs from none")
    func userInfo() async throws {
        let userInfo: [String: Any] = [
            "text": "a\u{0}b", "count": 3, "large": UInt64.max, "one": 1.0, "isOn": true,
            "date": Date(timeIntervalSinceReferenceDate: 0.125), "data": Data(),
            "array": [1, "x", [String: Any]()] as [Any],
            "nested": ["deeper": ["deepest": false]],
        ]
        let name = "com.example.distributed.userInfo"
        observer.add(name) { [heard = observer.heard] _, _, _, _, info in
            guard let info else { return heard.add("nil") }
            guard let userInfo = info as? [String: Any], !userInfo.isEmpty,
                let nested = userInfo["nested"] as? [String: [String: Bool]]
            else {
                return heard.add("\(info.count)")
            }
            heard.add(userInfo["text"] as? String ?? "-")
            heard.add("\(userInfo["count"] as! Int) \(userInfo["large"] as! UInt64) \(userInfo["one"] as! Double)")
            heard.add("\(userInfo["isOn"] as! Bool) \((userInfo["date"] as! Date).timeIntervalSinceReferenceDate)")
            heard.add("\((userInfo["data"] as! Data).count) \((userInfo["array"] as! [Any]).count) \(nested)")
            heard.add("\((info as NSDictionary).count) \((info as! [AnyHashable: Any]).count)")
        }
        for userInfo in [userInfo as CFDictionary, [:] as CFDictionary, nil] {
            post(center, name, userInfo: userInfo)
        }
        try await eventually("all arrive") { observer.heard.all.last == "nil" }
        #expect(
            observer.heard.all == [
                "a\u{0}b", "3 18446744073709551615 1.0", "true 0.125", "0 3 [\"deeper\": [\"deepest\": false]]", "9 9",
                "0", "nil",
            ]
        )
        _ = observer.heard.take()
        let truth = "com.example.distributed.truth"
        observer.add(truth) { [heard = observer.heard] _, _, _, _, userInfo in
            let values = userInfo as? [String: CFBoolean] ?? [:]
            let flags = ["on", "off"].map { CFBooleanGetValue(values[$0]) }
            heard.add("\(flags) \(userInfo as? [String: Bool] ?? [:])")
        }
        post(center, truth, userInfo: ["on": kCFBooleanTrue!] as CFDictionary)
        post(center, truth, userInfo: ["off": kCFBooleanFalse as Any] as CFDictionary)
        try await eventually("both arrive") { observer.heard.all.count == 2 }
        #expect(observer.heard.all == [#"[true, false] ["on": true]"#, #"[false, false] ["off": false]"#])
        #expect(!CFBooleanGetValue(nil))
    }

    // CF-P3, CF-U2
    @Test("a wrong or freed object and a wrong userInfo are reported and have no effect")
    func wrongObject() async throws {
        let name = "com.example.distributed.wrongObject"
        let number = NSNumber(value: 1)
        let wrong = Unmanaged.passUnretained(number).toOpaque()
        observer.add(name, label: "heard")
        observer.add(name, object: wrong, label: "wrong")
        observer.remove(name, object: wrong)
        post(center, name, object: wrong)
        // Like the memory of a released string: the first word is not a class.
        let released = UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 16)
        released.initializeMemory(as: UInt8.self, repeating: 0x5A, count: 64)
        defer { released.deallocate() }
        post(center, name, object: released)
        post(center, name, userInfo: ["nested": ["nothing": NSNull()]] as CFDictionary)
        post(center, name)
        try await eventually("the last one arrives") { !observer.heard.all.isEmpty }
        #expect(observer.heard.all == ["heard \(name)"])
        for function in ["AddObserver", "RemoveObserver", "PostNotification"] {
            #expect(Failures.contains("CFNotificationCenter\(function)", "\(wrong)", "CFString"))
        }
        #expect(Failures.contains("CFNotificationCenterPostNotification", "\(released)", "was released"))
        #expect(Failures.contains("CFNotificationCenterPostNotification", "[\"nested\"][\"nothing\"]", "NSNull"))
        withExtendedLifetime(number) {}
    }

    // CF-P3, CF-M4
    @Test("the object may be an unretained string, in adding, posting and removing")
    func passingString() async throws {
        let name = "com.example.distributed.passing"
        let till = 3
        for object in ["till 3 of the shop", "till 4 of the shop"] {
            // The string is temporary.
            let pointer = Unmanaged.passUnretained(object as CFString).toOpaque()
            observer.add(name, object: pointer) { [heard = observer.heard] _, _, _, object, userInfo in
                let object = Unmanaged<CFString>.fromOpaque(object!).takeUnretainedValue()
                heard.add("\(object as String) \((userInfo as? [String: Int])?["total"] ?? -1)")
            }
        }
        for total in 0..<100 {
            CFNotificationCenterPostNotification(
                center,
                CFNotificationName(name as CFString),
                Unmanaged.passUnretained("till \(till) of the shop" as CFString).toOpaque(),
                ["total": total] as CFDictionary,
                true
            )
        }
        try await eventually("all arrive") { observer.heard.all.count == 100 }
        #expect(observer.heard.all == (0..<100).map { "till 3 of the shop \($0)" })
        CFNotificationCenterRemoveObserver(
            center,
            observer.pointer,
            nil,
            UnsafeRawPointer(Unmanaged.passUnretained("till 3 of the shop" as CFString).toOpaque())
        )
        post(center, name, object: Unmanaged.passUnretained("till 3 of the shop" as CFString).toOpaque())
        let mutable = NSMutableString(string: "till 4 of the shop")
        post(center, name, object: Unmanaged.passUnretained(mutable).toOpaque())
        try await eventually("the other is heard") { observer.heard.all.count == 101 }
        #expect(observer.heard.all.last == "till 4 of the shop -1")
        withExtendedLifetime(mutable) {}
    }

    // CF-D3, CF-P5, CF-P6, CF-P7, CF-S10, CF-B8
    @Test("each option reaches each behaviour, post by post in order of registration")
    func options() async throws {
        let name = CFNotificationName("com.example.distributed.options" as CFString)
        for number in 0...4 {
            let behavior = CFNotificationSuspensionBehavior(rawValue: number)!
            observer.add(name.rawValue as String, behavior: behavior, label: "\(number)")
        }
        for options in [0, kCFNotificationDeliverImmediately, kCFNotificationPostToAllSessions] {
            CFNotificationCenterPostNotificationWithOptions(center, name, nil, nil, options)
        }
        CFNotificationCenterPostNotification(center, name, nil, nil, false)
        let each = (0...4).map { "\($0) \(name.rawValue as String)" }
        try await eventually("all hear") { observer.heard.all == each + each + each + each }
    }

    // CF-T7
    @Test("each suspension behaviour has Apple's number, and every number is a behaviour")
    func behaviorNumbers() {
        let behaviors: [CFNotificationSuspensionBehavior] = [.drop, .coalesce, .hold, .deliverImmediately]
        #expect(behaviors.map(\.rawValue) == [1, 2, 3, 4])
        let numbered = (0...5).map { CFNotificationSuspensionBehavior(rawValue: $0)! }
        #expect(Array(numbered[1...4]) == behaviors)
        #expect(numbered.map(\.rawValue) == Array(0...5))
    }

    @Test("it is the same center as DistributedNotifyCenter and Foundation's")
    func ownCenter() async throws {
        let a = "A" as CFString
        let sequence = try await DistributedNotifyCenter.default.notifications(named: "com.example.distributed.own")
        observer.add("com.example.distributed.own", object: pointer(a), label: "heard")
        post(center, "com.example.distributed.own", object: pointer(a), userInfo: ["k": [true]] as CFDictionary)
        var iterator = sequence.makeAsyncIterator()
        let notification = try #require(await iterator.next())
        #expect(notification.object == "A")
        #expect(notification.userInfo == ["k": [true]])
        try DistributedNotifyCenter.default.post("com.example.distributed.own", object: "A")
        DistributedNotificationCenter.default().post(name: .init("com.example.distributed.own"), object: "A")
        try await eventually("all are heard") { observer.heard.all.count == 3 }
        withExtendedLifetime(a) {}
    }

    // CF-A7, CF-S1, CF-S3, CF-S4, CF-S5, CF-S8, CF-P5
    @Test("while the process's center is suspended, each registration follows its behaviour")
    func suspension() async {
        // In a second process, because a suspension applies to the whole process.
        await #expect(processExitsWith: .success) {
            let bus = try #require(ProcessBus.environment[Bus.environmentVariable])
            let name = "com.example.distributed.suspension"
            let center: CFNotificationCenter = CFNotificationCenterGetDistributedCenter()
            let observer = Observer(center)
            observer.add(name, behavior: .drop, label: "drop")
            observer.add(name, behavior: .coalesce, label: "coalesce")
            observer.add(name, behavior: .hold, label: "hold")
            observer.add(name, behavior: CFNotificationSuspensionBehavior(rawValue: 0)!, label: "0")
            DistributedNotificationCenter.default().suspended = true
            for _ in 0..<2 { post(center, name, immediately: false) }
            // This observer uses the same connection, so its notification arrives after the others.
            let other = DistributedNotifyCenter(bus: .address(bus))
            var after = try await other.notifications(named: "after").makeAsyncIterator()
            post(center, "after", immediately: false)
            _ = await after.next()
            try #require(observer.heard.all.isEmpty)
            DistributedNotificationCenter.default().suspended = false
            try await eventually("what waited is delivered") { observer.heard.all.count == 4 }
            try #require(
                observer.heard.all.sorted() == ["0 \(name)", "coalesce \(name)", "hold \(name)", "hold \(name)"]
            )
            DistributedNotificationCenter.default().suspended = true
            post(center, name, immediately: true)
            try await eventually("all hear at once") { observer.heard.all.count == 8 }
        }
    }
}

/// Unchecked: the runtime writes and reads weak references atomically.
private final class WeakString: @unchecked Sendable {
    weak var string: CFString?
}
