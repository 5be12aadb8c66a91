import CoreFoundationNotifications
import Foundation
import Testing

// Serialized, because the process has one local center, and observers of any name get the posts of all tests.
@Suite("The local center", .serialized)
struct CFLocalCenterTests {
    private let first = LocalObserver()
    private let second = LocalObserver()
    // Only the addresses matter; they are never dereferenced.
    private let objectA = UnsafeRawPointer(bitPattern: 0xA0)
    private let objectB = UnsafeRawPointer(bitPattern: 0xB0)

    // CF-D1, CF-D6, CF-P3, CF-P8, CF-U3
    @Test("the post calls its observers on its thread with the posted pointers")
    func pointers() throws {
        let userInfo: CFDictionary = try #require(CFDictionaryCreate(nil, nil, nil, 0, nil, nil))
        let name = makeString("n")
        first.add(nil, object: objectA)
        CFNotificationCenterPostNotification(LocalObserver.center, name, objectA, userInfo, false)
        let expected = LocalObserver.Call(
            name: "n",
            center: address(of: LocalObserver.center),
            nameObject: address(of: name),
            object: 0xA0,
            userInfo: address(of: userInfo),
            thread: UInt(pthread_self())
        )
        #expect(first.calls == [expected])
        LocalObserver.post("n", object: objectA)
        #expect(first.calls.last?.userInfo == 0)
    }

    // CF-P6, CF-P8, CF-A7, CF-S13
    @Test("options and suspension behaviours have no effect")
    func options() {
        for behavior in 0...5 { first.add("n", behavior: behavior) }
        _CFNotificationCenterSetSuspended(LocalObserver.center, true)
        #expect(_CFNotificationCenterIsSuspended(LocalObserver.center) == false)
        CFNotificationCenterPostNotificationWithOptions(LocalObserver.center, makeString("n"), nil, nil, ~0)
        #expect(first.calls.count == 6)
    }

    // CF-R2, CF-R3, CF-R4, CF-R5, CF-A10
    @Test("removing compares name and object, and leaves other observers in place")
    func removing() {
        let cases: [(String?, UnsafeRawPointer?, [String])] = [
            ("n", nil, ["any", "any A", "m"]), (nil, objectA, ["n", "any", "m"]),
            ("n", objectA, ["n", "any", "any A", "m"]), (nil, nil, []),
            ("x", objectB, ["n", "n A", "any", "any A", "m"]),
        ]
        for (name, object, remaining) in cases {
            let registrations: [(String, String?, UnsafeRawPointer?)] = [
                ("n", "n", nil), ("n A", "n", objectA), ("any", nil, nil), ("any A", nil, objectA), ("m", "m", nil),
            ]
            for (_, name, object) in registrations { first.add(name, object: object) }
            second.add("n")
            for _ in 0..<2 { first.remove(name, object: object) }
            let (calls, others) = (first.ownCalls.count, second.ownCalls.count)
            LocalObserver.post("n", object: objectA)
            LocalObserver.post("m")
            let counts = ["n": 1, "n A": 1, "any": 2, "any A": 1, "m": 1]
            let expected = remaining.compactMap { counts[$0] }.reduce(0, +)
            #expect(first.ownCalls.count - calls == expected)
            #expect(second.ownCalls.count - others == 1)
            first.remove(nil)
            second.remove(nil)
        }
    }
}
