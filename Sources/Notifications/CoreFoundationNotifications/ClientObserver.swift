import CoreFoundation
import NotifyCenter

/// `CFNotificationCallback`. Sendable, because a client that registers it says that the center may call it on its threads.
@usableFromInline
typealias Callback =
    @convention(c) @Sendable (
        _ center: UnsafeMutableRawPointer?,
        _ observer: UnsafeMutableRawPointer?,
        _ name: UnsafeRawPointer?,
        _ object: UnsafeRawPointer?,
        _ userInfo: UnsafeRawPointer?
    ) -> Void

/// A client's callback, and the pointer that it is called with.
struct ClientObserver: @unchecked Sendable {
    // Unchecked: the pointer is compared and handed back, never followed (CF-A2).
    let pointer: UnsafeRawPointer?
    let callback: Callback

    /// The pointer by which a removal finds it; no removal finds NULL (CF-A1).
    var identity: UInt? { pointer.map { UInt(bitPattern: $0) } }

    /// Calls with pointers that a client owns (CF-U3).
    func call(
        center: UnsafeMutableRawPointer,
        name: UnsafeRawPointer?,
        object: UnsafeRawPointer?,
        userInfo: UnsafeRawPointer?
    ) {
        callback(center, UnsafeMutableRawPointer(mutating: pointer), name, object, userInfo)
    }

    /// Calls with objects that are made for this call, and valid as long as it runs (CF-D8).
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
