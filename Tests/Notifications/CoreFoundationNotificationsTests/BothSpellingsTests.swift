import Basics
import CoreFoundationNotifications
import DBus
import Foundation
import Synchronization
import Testing

@Suite("A program with both the C symbols and Apple's Swift functions")
struct BothSpellingsTests {
    // CF-T2, CF-D6, CF-U3
    @Test("observers of both kinds get local posts of both, and both can remove them")
    func localCenter() throws {
        let heard = Locked<[String]>([])
        let observer = LocalObserver()
        observer.add("com.example.both")
        AppleSpelling.add(observer.address, "com.example.both") { line in heard.withLock { $0.append(line) } }
        AppleSpelling.post("com.example.both", key: "Swift")
        LocalObserver.post(
            "com.example.both",
            userInfo: unsafeBitCast(["key": "C"] as NSDictionary, to: CFDictionary.self)
        )
        LocalObserver.post("com.example.both")
        #expect(heard.withLock { $0 } == ["com.example.both Swift", "com.example.both C", "com.example.both -"])
        #expect(observer.names == ["com.example.both", "com.example.both", "com.example.both"])
        #expect(observer.calls.map { $0.userInfo != 0 } == [true, true, false])
        CFNotificationCenterRemoveEveryObserver(LocalObserver.center, observer.address)
        AppleSpelling.post("com.example.both", key: nil)
        #expect(heard.withLock { $0.count } == 3)
        #expect(observer.calls.count == 3)
    }
}
