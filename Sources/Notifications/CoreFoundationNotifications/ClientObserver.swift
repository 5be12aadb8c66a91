import CoreFoundation
import NotifyCenter

/// `CFNotificationCallback`. Sendable: by registering it, the client allows the center to call it on the center's
/// threads.
@usableFromInline
typealias Callback =
    @convention(c) @Sendable (
        _ center: UnsafeMutableRawPointer?,
        _ observer: UnsafeMutableRawPointer?,
        _ name: UnsafeRawPointer?,
        _ object: UnsafeRawPointer?,
        _ userInfo: UnsafeRawPointer?
    ) -> Void

/// A client's callback, and the observer pointer to call it with.
struct ClientObserver: @unchecked Sendable {
    // Unchecked: the pointer is compared and handed back, never dereferenced (CF-A2).
    let pointer: UnsafeRawPointer?
    let callback: Callback

    /// The pointer by which a removal finds the observer; a removal never finds NULL (CF-A1).
    var identity: UInt? { pointer.map { UInt(bitPattern: $0) } }

    /// Calls the callback with pointers that a client owns (CF-U3).
    func call(
        center: UnsafeMutableRawPointer,
        name: UnsafeRawPointer?,
        object: UnsafeRawPointer?,
        userInfo: UnsafeRawPointer?
    ) {
        callback(center, UnsafeMutableRawPointer(mutating: pointer), name, object, userInfo)
    }

    /// Calls the callback with objects that are made for this call and valid only during it (CF-D8).
    func call(center: UnsafeMutableRawPointer, name: String, object: String?, userInfo: UserInfo?) {
        let name = makeCFString(name)
        let object = object.map(makeCFString)
        let userInfo = userInfo.map(makeCFDictionary)
        withExtendedLifetime((name, object, userInfo)) {
            call(center: center, name: pointer(to: name), object: pointer(to: object), userInfo: pointer(to: userInfo))
        }
    }

    private func pointer(to object: (some AnyObject)?) -> UnsafeRawPointer? {
        object.map { UnsafeRawPointer(Unmanaged.passUnretained($0).toOpaque()) }
    }
}
