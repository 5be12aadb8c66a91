import Basics
import CoreFoundationNotifications
import Foundation
import Synchronization

/// An observer of the process's local center that records its calls. Its deinit removes its registrations.
final class LocalObserver: Sendable {
    struct Call: Sendable, Equatable {
        let name: String
        // Addresses, as they were passed.
        let center: UInt
        let nameObject: UInt
        let object: UInt
        let userInfo: UInt
        let thread: UInt
    }

    private let recorded = Locked<[Call]>([])

    /// The existing observers by address: a post of another suite may call an observer that is being freed.
    fileprivate static let living = Locked<[UInt: Reference]>([:])

    fileprivate struct Reference: Sendable {
        weak var observer: LocalObserver?
    }

    init() {
        let address = UInt(bitPattern: address)
        Self.living.withLock { $0[address] = Reference(observer: self) }
    }

    deinit {
        CFNotificationCenterRemoveEveryObserver(Self.center, address)
        let address = UInt(bitPattern: address)
        Self.living.withLock { $0[address] = nil }
    }

    static var center: CFNotificationCenter! { CFNotificationCenterGetLocalCenter() }

    /// The observer pointer of its registrations.
    var address: UnsafeRawPointer { UnsafeRawPointer(Unmanaged.passUnretained(self).toOpaque()) }
    var calls: [Call] { recorded.withLock { $0 } }
    var names: [String] { calls.map(\.name) }
    /// The calls by posts of this thread. An observer of all names also gets the posts of other suites.
    var ownCalls: [Call] {
        let thread = UInt(pthread_self())
        return calls.filter { $0.thread == thread }
    }

    func add(_ name: String?, object: UnsafeRawPointer? = nil, behavior: Int = 0) {
        CFNotificationCenterAddObserver(
            Self.center,
            address,
            callback,
            name.map(makeString),
            object,
            CFNotificationSuspensionBehavior(rawValue: behavior) ?? .coalesce
        )
    }

    func remove(_ name: String?, object: UnsafeRawPointer? = nil) {
        CFNotificationCenterRemoveObserver(Self.center, address, name.map(makeString), object)
    }

    static func post(_ name: String, object: UnsafeRawPointer? = nil, userInfo: CFDictionary? = nil) {
        CFNotificationCenterPostNotification(center, makeString(name), object, userInfo, false)
    }

    fileprivate func record(_ call: Call) { recorded.withLock { $0.append(call) } }
}

private let callback: CFNotificationCallback = { center, observer, name, object, userInfo in
    let key = UInt(bitPattern: observer)
    LocalObserver.living.withLock { $0[key]?.observer }?.record(
        LocalObserver.Call(
            name: name.map(text) ?? "NULL",
            center: address(of: center),
            nameObject: address(of: name),
            object: UInt(bitPattern: object),
            userInfo: address(of: userInfo),
            thread: UInt(pthread_self())
        )
    )
}

/// The address of a CoreFoundation object; 0 for NULL.
func address(of object: AnyObject?) -> UInt {
    object.map { UInt(bitPattern: Unmanaged.passUnretained($0).toOpaque()) } ?? 0
}

func makeString(_ text: String) -> CFString {
    let units = Array(text.utf16)
    return CFStringCreateWithCharacters(nil, units, units.count)
}

func text(_ string: CFString) -> String {
    var units = [UniChar](repeating: 0, count: CFStringGetLength(string))
    CFStringGetCharacters(string, CFRange(location: 0, length: units.count), &units)
    return String(decoding: units, as: UTF16.self)
}
