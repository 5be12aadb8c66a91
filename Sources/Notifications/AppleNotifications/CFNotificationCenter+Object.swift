import DBusTransport
import Foundation
import NotifyCenter

extension CFNotificationCenter {
    /// What a pointer stands for as the object of this center's notifications.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` where it must be a `CFString` and is none.
    func object(_ pointer: UnsafeRawPointer?) throws(DBusError) -> CallbackCenter.Object? {
        guard let pointer else { return nil }
        switch kind {
        case .local: return .address(UInt(bitPattern: pointer))
        case .darwin: return nil
        case .distributed:
            guard let text = text(of: pointer) else {
                throw DBusError(
                    .invalidArgument,
                    message: "\(pointer) is no CFString, or none any more",
                    attempted: "read the object of a distributed notification",
                    remedy:
                        "pass Unmanaged.passUnretained(text).toOpaque(), and keep the text (as CFString) until the call returns"
                )
            }
            return .text(text)
        }
    }
}

/// The text of the `CFString` at an address, if there is one.
///
/// What is there is not taken for an object before its first word says so: that is another one in freed memory, to which the pointer
/// leads where a string's only reference was a temporary one.
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
