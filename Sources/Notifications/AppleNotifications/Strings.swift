import Basics
import DBus
public import Foundation
import NotifyCenter
import Synchronization

// MARK: Strings as pointers

extension Unmanaged where Instance == CFString {
    /// Does the same as the standard library's function for any object. This module also keeps the string until 64
    /// other strings have followed it, and while a registration has its pointer as observer or object.
    ///
    /// `Unmanaged.passUnretained("…" as CFString).toOpaque()` is the usual way to pass the object of a distributed
    /// notification. On Apple the string still exists when the pointer is used, because the system keeps such strings.
    /// On Linux it would be freed earlier, and another object could occupy its memory.
    public static func passUnretained(_ value: CFString) -> Unmanaged<CFString> {
        let value = KeptString(string: value)
        let displaced = RecentStrings.shared.withLock { $0.keep(value) }
        // Freed outside of the lock: the deinit of a client's string class may run code.
        withExtendedLifetime(displaced) {}
        return fromOpaque(value.address)
    }
}

func recentStrings(at addresses: UnsafeRawPointer?...) -> [KeptString] {
    RecentStrings.shared.withLock { recent in recent.strings.filter { addresses.contains($0.address) } }
}

/// A string that is kept alive. Unchecked: its contents are never read.
struct KeptString: @unchecked Sendable {
    let string: CFString

    var address: UnsafeRawPointer { UnsafeRawPointer(Unmanaged<AnyObject>.passUnretained(string).toOpaque()) }
}

private struct RecentStrings {
    static let shared = PerProcess(RecentStrings())

    private static let capacity = 64
    private(set) var strings: [KeptString] = []
    private var oldest = 0

    /// Returns the string that it displaces.
    mutating func keep(_ string: KeptString) -> KeptString? {
        // A string that is posted repeatedly takes one place.
        if strings.contains(where: { $0.string === string.string }) { return nil }
        guard strings.count == Self.capacity else {
            strings.append(string)
            return nil
        }
        let displaced = strings[oldest]
        strings[oldest] = string
        oldest = (oldest + 1) % Self.capacity
        return displaced
    }
}

// MARK: Pointers as strings

extension CFNotificationCenter {
    /// Converts a pointer to the object of this center's notifications.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` if the center is the distributed one and the pointer does not lead
    ///   to a `CFString`.
    func object(_ pointer: UnsafeRawPointer?) throws(DBusError) -> CallbackCenter.Object? {
        try callbacks.object(pointer) { pointer throws(DBusError) in
            guard let text = text(of: pointer) else {
                throw DBusError(
                    .invalidArgument,
                    message: "\(pointer) is not a CFString, or was released",
                    attempted: "read the object of a distributed notification",
                    remedy:
                        "pass Unmanaged.passUnretained(text).toOpaque(), and keep the text (as CFString) until the call returns"
                )
            }
            return text
        }
    }
}

/// Returns the text of the `CFString` at an address, or `nil` if there is none.
///
/// The function first compares the word at the address with the string classes, and treats the address as an object
/// only if one of them matches. If a temporary reference was the string's only one, the caller passes the address of
/// freed memory, which holds another word.
private func text(of pointer: UnsafeRawPointer) -> String? {
    guard classesOfStrings.contains(pointer.loadUnaligned(as: UInt.self)) else { return nil }
    return Unmanaged<CFString>.fromOpaque(pointer).takeUnretainedValue() as String
}

/// The first word of each kind of string object. Foundation's two inner classes are those of CoreFoundation's strings.
private let classesOfStrings: Set<UInt> = {
    let inner = ["Foundation._NSCFString", "Foundation._NSCFConstantString"].compactMap { NSClassFromString($0) }
    let classes: [AnyClass] = [NSString.self, NSMutableString.self] + inner
    return Set(classes.map { unsafeBitCast($0, to: UInt.self) })
}()
