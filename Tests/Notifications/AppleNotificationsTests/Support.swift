import AppleNotifications
import DBus
import Dispatch
import Foundation
import NotifyCenter

/// Registers, posts and removes like ported code, and records the received notifications.
///
/// Its address is the observer, so it removes its registrations in its deinit.
final class Observer: Sendable {
    let center: CFNotificationCenter
    let heard = Log()

    init(_ center: CFNotificationCenter) { self.center = center }
    deinit { CFNotificationCenterRemoveEveryObserver(center, Unmanaged.passUnretained(self).toOpaque()) }

    var pointer: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

    /// Records each notification as `label` and its name. The callback captures values instead of following the
    /// pointer: an observer of any name also gets posts of other tests while this object is being freed.
    func add(
        _ name: String?,
        object: UnsafeRawPointer? = nil,
        behavior: CFNotificationSuspensionBehavior = .deliverImmediately,
        label: String
    ) {
        CFNotificationCenterAddObserver(
            center,
            pointer,
            { [heard] _, _, name, _, _ in heard.add("\(label) \(name!.rawValue as String)") },
            name as CFString?,
            object,
            behavior
        )
    }

    func remove(_ name: String?, object: UnsafeRawPointer? = nil) {
        CFNotificationCenterRemoveObserver(center, pointer, name.map { CFNotificationName($0 as CFString) }, object)
    }

    /// Registers a callback, which finds this object by ``at(_:)``.
    func add(_ name: String, object: UnsafeRawPointer? = nil, callback: @escaping CFNotificationCallback) {
        CFNotificationCenterAddObserver(center, pointer, callback, name as CFString, object, .deliverImmediately)
    }

    /// Returns the object whose address a callback gets.
    static func at(_ pointer: UnsafeMutableRawPointer?) -> Observer {
        Unmanaged<Observer>.fromOpaque(pointer!).takeUnretainedValue()
    }
}

func post(
    _ center: CFNotificationCenter,
    _ name: String,
    object: UnsafeRawPointer? = nil,
    userInfo: CFDictionary? = nil,
    immediately: Bool = true
) {
    CFNotificationCenterPostNotification(center, CFNotificationName(name as CFString), object, userInfo, immediately)
}

/// The failures that functions could not throw, from the first use on.
enum Failures {
    private static let reported = Log()
    private static let observation = UnthrownFailures.observe { reported.add($0.description) }

    static func collect() { _ = observation }

    static func contains(_ function: String, _ texts: String...) -> Bool {
        reported.all.contains { line in line.hasPrefix(function + ":") && texts.allSatisfy(line.contains) }
    }
}

/// Whether this runs on the main queue. `Thread.isMainThread` does not show that: in a program with an `async` main,
/// such as the tests, Linux runs the main queue on another thread.
func isOnMainQueue() -> Bool { MainQueue.isCurrent }

private enum MainQueue {
    private static let key: DispatchSpecificKey<Bool> = {
        let key = DispatchSpecificKey<Bool>()
        DispatchQueue.main.setSpecific(key: key, value: true)
        return key
    }()

    static var isCurrent: Bool { DispatchQueue.getSpecific(key: key) == true }
}
