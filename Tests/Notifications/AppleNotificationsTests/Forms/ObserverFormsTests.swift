import AppleNotifications
import Foundation
import Testing

private func bridge<T: AnyObject>(_ object: T) -> UnsafeRawPointer {
    UnsafeRawPointer(Unmanaged.passUnretained(object).toOpaque())
}

private let callback:
    @Sendable (
        CFNotificationCenter?, UnsafeMutableRawPointer?, CFNotificationName?, UnsafeRawPointer?, CFDictionary?
    ) -> Void = { _, observer, name, _, _ in
        guard let observer = observer, let name = name else { return }
        Unmanaged<Log>.fromOpaque(observer).takeUnretainedValue().add(name.rawValue as String)
    }

@Suite("Forms of observers")
struct ObserverFormsTests {
    private let center = CFNotificationCenterGetLocalCenter()
    private let heard = Log()

    private func add(_ observer: UnsafeRawPointer!, _ name: String) {
        CFNotificationCenterAddObserver(center, observer, callback, name as CFString, nil, .deliverImmediately)
    }

    private func post(_ name: String) {
        CFNotificationCenterPostNotification(center, CFNotificationName(name as CFString), nil, nil, true)
    }

    // CF-A2, CF-D6
    @Test("every usual way to pass an unretained object means the same observer")
    func unretained() {
        let name = "com.example.observers.unretained"
        add(Unmanaged.passUnretained(heard).toOpaque(), name)
        add(UnsafeRawPointer(Unmanaged.passUnretained(heard).toOpaque()), name)
        add(UnsafeMutableRawPointer(Unmanaged.passUnretained(heard).toOpaque()), name)
        add(bridge(heard), name)
        add(unsafeBitCast(heard, to: UnsafeRawPointer.self), name)
        let declared: UnsafeRawPointer! = UnsafeRawPointer(Unmanaged.passUnretained(heard).toOpaque())
        add(declared, name)
        post(name)
        #expect(heard.all == Array(repeating: name, count: 6))
        CFNotificationCenterRemoveObserver(center, bridge(heard), CFNotificationName(name as CFString), nil)
        post(name)
        #expect(heard.all.count == 6)
    }

    // CF-A2
    @Test("an observer is any pointer, and a retained object lives until its release")
    func retained() {
        let name = "com.example.observers.retained"
        weak var watched: Log?
        let observer: UnsafeMutableRawPointer
        do {
            let box = Log()
            watched = box
            observer = Unmanaged.passRetained(box).toOpaque()
            add(observer, name)
        }
        post(name)
        #expect(watched?.all == [name])
        CFNotificationCenterRemoveEveryObserver(center, observer)
        Unmanaged<Log>.fromOpaque(observer).release()
        #expect(watched == nil)
        weak var unretained: Log?
        do {
            let gone = Log()
            unretained = gone
            add(bridge(gone), "com.example.observers.notRetained")
            CFNotificationCenterRemoveEveryObserver(center, bridge(gone))
        }
        #expect(unretained == nil)
        let context = UnsafeRawPointer(bitPattern: 1)
        let contextName = "com.example.observers.context" as CFString
        let callback: CFNotificationCallback = { [heard] _, observer, _, _, _ in heard.add("\(observer!)") }
        CFNotificationCenterAddObserver(center, context, callback, contextName, nil, .drop)
        CFNotificationCenterPostNotification(center, CFNotificationName(contextName), nil, nil, false)
        CFNotificationCenterRemoveEveryObserver(center, context)
        #expect(heard.all == ["0x0000000000000001"])
    }

    // CF-A2, CF-R4
    @Test("a string that is registered as observer keeps its address until removal")
    func strings() async {
        // In a second process, because a process keeps its last 64 strings. A thousand would displace those of other
        // tests.
        await #expect(processExitsWith: .success) { ObserverFormsTests().judgeStrings() }
    }

    private func judgeStrings() {
        let name = "com.example.observers.strings"
        weak var watched: CFString?
        let observer: UnsafeMutableRawPointer = {
            let text = NSMutableString(string: "a string without a strong reference")
            watched = text
            return Unmanaged.passUnretained(text as CFString).toOpaque()
        }()
        let callback: CFNotificationCallback = { [heard] _, _, _, _, _ in heard.add("heard") }
        CFNotificationCenterAddObserver(center, observer, callback, name as CFString, nil, .deliverImmediately)
        for number in 0..<1_000 {
            let other = Unmanaged.passUnretained(NSMutableString(string: "another string \(number)") as CFString)
            CFNotificationCenterRemoveEveryObserver(center, other.toOpaque())
        }
        post(name)
        #expect(heard.all == ["heard"])
        CFNotificationCenterRemoveEveryObserver(center, observer)
        #expect(watched == nil)
        post(name)
        #expect(heard.all == ["heard"])
    }
}
