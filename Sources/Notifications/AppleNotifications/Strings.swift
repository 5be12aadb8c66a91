import DBusTransport
public import Foundation
import NotifyCenter
import Synchronization

// MARK: Strings as pointers

extension Unmanaged where Instance == CFString {
    /// As the standard library's function for any object, except that this module keeps the string until 64 others came after it, and
    /// as long as a registration has its pointer as observer or object.
    ///
    /// `Unmanaged.passUnretained("…" as CFString).toOpaque()` is how the object of a distributed notification is written. On Apple the
    /// string is still there when the pointer is used, because the system keeps such strings. On Linux it would end before, and another
    /// object could have its memory.
    public static func passUnretained(_ value: CFString) -> Unmanaged<CFString> {
        let value = KeptString(string: value)
        let displaced = RecentStrings.shared.withLock { $0.keep(value) }
        // Freed outside of the lock: a string class of somebody's own may run code when an object of it ends.
        withExtendedLifetime(displaced) {}
        return fromOpaque(value.address)
    }
}

/// Those of the recent strings that are at one of these addresses.
func recentStrings(at addresses: UnsafeRawPointer?...) -> [KeptString] {
    RecentStrings.shared.withLock { recent in recent.strings.filter { addresses.contains($0.address) } }
}

/// A string that is kept and not looked at. Unchecked for that reason.
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
        // A string that is posted time and again takes one place.
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
    /// What a pointer stands for as the object of this center's notifications.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` where the center is the distributed one and the pointer leads to no `CFString`.
    func object(_ pointer: UnsafeRawPointer?) throws(DBusError) -> CallbackCenter.Object? {
        try callbacks.object(pointer) { pointer throws(DBusError) in
            guard let text = text(of: pointer) else {
                throw DBusError(
                    .invalidArgument,
                    message: "\(pointer) is no CFString, or none any more",
                    attempted: "read the object of a distributed notification",
                    remedy:
                        "pass Unmanaged.passUnretained(text).toOpaque(), and keep the text (as CFString) until the call returns"
                )
            }
            return text
        }
    }
}

/// The text of the `CFString` at an address, if there is one.
///
/// The function first compares the word at the address with the classes of strings, and takes the address for an object only if one of them is
/// there. Freed memory holds another word: a caller passes its address if a temporary reference was the string's only one.
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
