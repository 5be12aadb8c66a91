import NotifyCenter
import NotifyCenterFoundation

/// What is called for a notification (CF-T5, CF-D6), with
///
/// 1. the center that it was registered with;
/// 2. the pointer that it was registered with;
/// 3. the posted name, also where it was registered for any name;
/// 4. the posted object: from the local center the very pointer; from the distributed one a `CFString`, to be read by
///    `Unmanaged<CFString>.fromOpaque(object).takeUnretainedValue()`; from the Darwin one `nil`;
/// 5. the posted userInfo: from the local center the very dictionary; from the distributed one its values; from the Darwin one
///    `nil`.
///
/// Object and userInfo are valid during the call (CF-D8). Local notifications come on the poster's thread, before its post
/// returns; all others on the main queue (CF-D1, CF-D2). That runs in a running main run loop, and, on Linux by a thread for which
/// `Thread.isMainThread` is `false`, in `dispatchMain()` and in a program with an `async` main.
///
/// On Apple it is a C function pointer, which captures nothing. Here it is a closure: functions, static functions and closure
/// literals serve as they do there, and what is spelled `@convention(c)` does not compile. What it captures, if anything, lives
/// until the registration is removed, and must bear to be used from the thread of delivery; the compiler does not check that.
///
/// In Swift 6 mode a literal that is written in a main actor's code, top-level code included, belongs to that actor, and must not
/// be called from other threads. Only the local center does so, where other threads post to it. A constant of this type outside of
/// functions and isolated types is written `nonisolated(unsafe) let`, or as a function: unlike a C function pointer, a closure is
/// not known to be `Sendable`.
public typealias CFNotificationCallback = (
    _ center: CFNotificationCenter?,
    _ observer: UnsafeMutableRawPointer?,
    _ name: CFNotificationName?,
    _ object: UnsafeRawPointer?,
    _ userInfo: CFDictionary?
) -> Void

extension CFNotificationCenter {
    /// The callback in the form that the centers call.
    func handler(
        _ callback: @escaping CFNotificationCallback,
        observer: UInt?
    ) -> CallbackCenter.Handler {
        // A C function on Apple, which may be called from any thread; see `CFNotificationCallback`.
        nonisolated(unsafe) let callback = callback
        return { notification in
            let observer = observer.flatMap { UnsafeMutableRawPointer(bitPattern: $0) }
            let name = CFNotificationName(notification.name)
            let userInfo = notification.content.dictionary
            switch notification.object {
            case nil: callback(self, observer, name, nil, userInfo)
            case .address(let address): callback(self, observer, name, UnsafeRawPointer(bitPattern: address), userInfo)
            case .text(let text):
                let object = text.text as CFString
                withExtendedLifetime(object) {
                    // As any object: this module's own function for strings would keep it, and let go of a client's for it.
                    callback(self, observer, name, Unmanaged<AnyObject>.passUnretained(object).toOpaque(), userInfo)
                }
            }
        }
    }
}

extension CallbackCenter.Content {
    fileprivate var dictionary: CFDictionary? {
        switch self {
        case .none: nil
        case .local(let content):
            content.userInfo.flatMap(UnsafeRawPointer.init(bitPattern:)).map { address in
                Unmanaged<CFDictionary>.fromOpaque(address).takeUnretainedValue()
            }
        case .distributed(let userInfo): userInfo.foundationValue as CFDictionary
        }
    }
}
