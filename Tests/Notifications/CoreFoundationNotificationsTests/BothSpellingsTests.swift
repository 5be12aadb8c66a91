import CoreFoundationNotifications
import Foundation
import Testing

@Suite("A program with both the C symbols and Apple's Swift functions")
struct BothSpellingsTests {
    // CF-T2, CF-D6, CF-U3
    @Test("observers of both kinds get local posts of both, and both can remove them")
    func localCenter() throws {
        let heard = Log()
        let observer = LocalObserver()
        observer.add("com.example.both")
        AppleSpelling.add(observer.address, "com.example.both") { heard.add($0) }
        AppleSpelling.post("com.example.both", key: "Swift")
        LocalObserver.post(
            "com.example.both",
            userInfo: unsafeBitCast(["key": "C"] as NSDictionary, to: CFDictionary.self)
        )
        LocalObserver.post("com.example.both")
        #expect(heard.all == ["com.example.both Swift", "com.example.both C", "com.example.both -"])
        #expect(observer.names == Array(repeating: "com.example.both", count: 3))
        #expect(observer.calls.map { $0.userInfo != 0 } == [true, true, false])
        CFNotificationCenterRemoveEveryObserver(LocalObserver.center, observer.address)
        AppleSpelling.post("com.example.both", key: nil)
        #expect(heard.all.count == 3 && observer.calls.count == 3)
    }
}
