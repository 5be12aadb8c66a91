import AppleNotifications
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("The local center")
struct LocalCenterTests {
    private let center: CFNotificationCenter = CFNotificationCenterGetLocalCenter()
    private let observer = Observer(CFNotificationCenterGetLocalCenter())
    private let first = NSObject()
    private let second = NSObject()
    private var a: UnsafeMutableRawPointer { Unmanaged.passUnretained(first).toOpaque() }
    private var b: UnsafeMutableRawPointer { Unmanaged.passUnretained(second).toOpaque() }

    // CF-D1, CF-D6, CF-P3, CF-U3
    @Test("the callback runs on the poster's thread with the posted pointer and dictionary")
    func sameThread() async {
        let heard = await onThread { [observer] in
            let (userInfo, thread) = (NSMutableDictionary(), Thread.current)
            observer.add("com.example.local.sameThread") { [heard = observer.heard] _, _, _, object, posted in
                heard.add("\(posted === userInfo) \(UInt(bitPattern: object)) \(Thread.current === thread)")
            }
            let object = UnsafeRawPointer(bitPattern: 0x10)
            post(observer.center, "com.example.local.sameThread", object: object, userInfo: userInfo)
            return observer.heard.all
        }
        #expect(heard == ["true 16 true"])
    }

    // CF-U3
    @Test("values of any type are handed on and can be read in every usual way")
    func userInfo() {
        final class Anything {}
        let userInfo: [String: Any] = ["anything": Anything(), "count": 3, "isOn": true, "text": "t"]
        let name = "com.example.local.userInfo"
        observer.add(name) { (_, observer, _, _, userInfo) in
            let heard = Observer.at(observer).heard
            guard let userInfo = userInfo else { return heard.add("nil") }
            if let dictionary = userInfo as? [String: Any], dictionary["anything"] is Anything {
                heard.add("\(dictionary["count"] as! Int) \(dictionary["isOn"] as! Bool)")
            }
            heard.add((userInfo as NSDictionary)["text"] as? String ?? "-")
            heard.add("\((userInfo as! [String: Any]).count)")
        }
        for userInfo in [userInfo as CFDictionary, ["text": "u"] as CFDictionary, [:] as CFDictionary, nil] {
            post(center, name, userInfo: userInfo)
        }
        #expect(observer.heard.all == ["3 true", "t", "4", "u", "1", "-", "0", "nil"])
    }

    // CF-R2, CF-R3, CF-R4, CF-A10
    @Test("a removal compares name and object, and nil means any")
    func criteria() {
        let (n, m) = ("com.example.local.criteria.n", "com.example.local.criteria.m")
        func heard(after removal: () -> Void) -> [String] {
            let before = observer.heard.all.count
            observer.add(n, label: "n/any")
            observer.add(n, object: a, label: "n/A")
            observer.add(m, object: a, label: "m/A")
            removal()
            post(center, n, object: a)
            post(center, m, object: a)
            observer.remove(nil)
            return observer.heard.all[before...].map { String($0.prefix { $0 != " " }) }
        }
        #expect(heard { observer.remove(n, object: a) } == ["n/any", "m/A"])
        #expect(heard { observer.remove(n) } == ["m/A"])
        #expect(heard { observer.remove(nil, object: a) } == ["n/any"])
        #expect(heard { observer.remove(nil) } == [])
        #expect(heard { CFNotificationCenterRemoveEveryObserver(center, observer.pointer) } == [])
        #expect(heard { observer.remove(n, object: b) } == ["n/any", "n/A", "m/A"])
    }

    // CF-A1, CF-A3, CF-P1, CF-R1
    @Test("a nil center or callback does nothing; a nil name or observer is reported")
    func nils() {
        let failures = Log()
        let observation = UnthrownFailures.observe { failures.add($0.description) }
        let name = "com.example.local.nils"
        let callback: CFNotificationCallback = { _, observer, _, _, _ in Observer.at(observer).heard.add("called") }
        CFNotificationCenterAddObserver(nil, observer.pointer, callback, name as CFString, nil, .drop)
        CFNotificationCenterAddObserver(center, observer.pointer, nil, name as CFString, nil, .drop)
        post(center, name)
        #expect(observer.heard.all.isEmpty)
        CFNotificationCenterAddObserver(center, observer.pointer, callback, name as CFString, nil, .drop)
        // Without an observer, the registration is called and cannot be removed.
        let anonymous: CFNotificationCallback = { [heard = observer.heard] _, observer, _, _, _ in
            heard.add("\(observer == nil)")
        }
        CFNotificationCenterAddObserver(center, nil, anonymous, name as CFString, nil, .drop)
        CFNotificationCenterRemoveObserver(nil, observer.pointer, nil, nil)
        CFNotificationCenterRemoveObserver(center, nil, nil, nil)
        CFNotificationCenterRemoveEveryObserver(nil, observer.pointer)
        CFNotificationCenterRemoveEveryObserver(center, nil)
        CFNotificationCenterPostNotification(nil, CFNotificationName(name as CFString), nil, nil, true)
        CFNotificationCenterPostNotification(center, nil, nil, nil, true)
        CFNotificationCenterPostNotificationWithOptions(nil, nil, nil, nil, 0)
        CFNotificationCenterPostNotificationWithOptions(center, nil, nil, nil, 0)
        #expect(observer.heard.all.isEmpty)
        post(center, name)
        #expect(observer.heard.all == ["called", "true"])
        observation.cancel()
        for (function, attempted, argument) in [
            ("RemoveObserver", "remove an observer", "observer"),
            ("RemoveEveryObserver", "remove an observer", "observer"),
            ("PostNotification", "post a notification", "name"),
            ("PostNotificationWithOptions", "post a notification", "name"),
        ] {
            let report = "could not \(attempted): there is no \(argument), so nothing was done; pass the \(argument)"
            // Other tests cause failures at the same time.
            #expect(failures.all.contains("CFNotificationCenter\(function): \(report)"))
        }
    }
}
