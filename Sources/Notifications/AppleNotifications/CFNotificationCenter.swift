import DBus
public import Foundation
import NotifyCenter
import NotifyCenterFoundation

/// A notification center (CF-T1). Three functions each return one center, always the same (CF-T2):
///
/// | | reaches | carries | compares objects |
/// |---|---|---|---|
/// | ``CFNotificationCenterGetLocalCenter()`` | this process | object, userInfo | by address |
/// | ``CFNotificationCenterGetDarwinNotifyCenter()`` | all processes of the bus | the name alone | – |
/// | ``CFNotificationCenterGetDistributedCenter()`` | all processes of the bus | object, userInfo | as text |
///
/// All functions may be called from any thread, and also within callbacks (CF-C6). Centers are never freed.
public final class CFNotificationCenter: Sendable {
    static let local = CFNotificationCenter(.local)
    static let darwin = CFNotificationCenter(.darwin)
    static let distributed = CFNotificationCenter(.distributed)

    let callbacks: CallbackCenter

    private init(_ callbacks: CallbackCenter) { self.callbacks = callbacks }
}

extension CFNotificationCenter: Hashable, CustomStringConvertible {
    /// Whether both are the same center.
    public static func == (left: CFNotificationCenter, right: CFNotificationCenter) -> Bool { left === right }

    /// Hashes the center's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }

    /// The kind of center: local, Darwin or distributed.
    public var description: String { "<CFNotificationCenter \(callbacks.kind)>" }
}

/// The center within this process. It calls observers on the poster's thread, in the order of their registration,
/// before the post returns (CF-D1, CF-D3).
///
/// On Apple, Foundation's `NotificationCenter.default` shares its observers. Here the two are separate.
public func CFNotificationCenterGetLocalCenter() -> CFNotificationCenter! { .local }

/// The center that carries names alone between all processes of the bus (CF-W1). It calls its observers on the main
/// queue. Posts that arrive while an observer is busy are coalesced (CF-W2).
///
/// On Apple it reaches the whole system. Here it reaches one bus: `NOTIFY_CENTER_BUS` names it when the center is first
/// used.
public func CFNotificationCenterGetDarwinNotifyCenter() -> CFNotificationCenter! { .darwin }

/// The center that carries an object and a userInfo between all processes of the bus. It calls its observers on the
/// main queue (CF-A9, CF-D2).
///
/// On Apple only macOS has it. `DistributedNotificationCenter.default()` is the same center: a post to either reaches
/// the observers of both.
public func CFNotificationCenterGetDistributedCenter() -> CFNotificationCenter! { .distributed }

/// Returns the type number of notification centers (CF-T1), which never changes.
///
/// No CoreFoundation type has this number: ``CFNotificationCenter`` is a Swift class, which `CFGetTypeID` does not
/// know.
public func CFNotificationCenterGetTypeID() -> CFTypeID { 52 }

/// The function that a center calls for a notification (CF-T5, CF-D6). Its arguments are:
///
/// 1. the center of the registration;
/// 2. the observer pointer of the registration;
/// 3. the posted name, even if the observer registered for any name;
/// 4. the posted object. The local center passes the posted pointer itself. The distributed center passes a `CFString`:
///    read it with `Unmanaged<CFString>.fromOpaque(object).takeUnretainedValue()`. The Darwin center passes `nil`;
/// 5. the posted userInfo. The local center passes the posted dictionary itself, the distributed center a copy of its
///    values, and the Darwin center `nil`.
///
/// Object and userInfo are valid during the call (CF-D8). The local center calls on the poster's thread, before the
/// post returns. The others call on the main queue (CF-D1, CF-D2). A running main run loop, `dispatchMain()` and an
/// `async` main serve that queue. On Linux, `Thread.isMainThread` is false in the latter two.
///
/// On Apple the type is a C function pointer, which captures nothing. Here it is a closure. Functions, static functions
/// and closure literals work as they do on Apple. Captured values live until the registration is removed. They must be
/// safe to use on the thread of delivery; the compiler does not check that.
///
/// Two things do not compile: a parameter `callback: CFNotificationCallback` without `@escaping`, and `@convention(c)`
/// in front of the type. The page “Porting guide” of the module NotifyCenter quotes the compiler's messages.
///
/// In Swift 6 mode, a closure literal in code of the main actor belongs to that actor. This includes top-level code.
/// Such a closure traps if another thread calls it. Only the local center can cause that, when another thread posts to
/// it. Outside of functions and isolated types, declare a constant of this type as `nonisolated(unsafe) let`, or write
/// a function: unlike a C function pointer, a closure is not known to be `Sendable`.
public typealias CFNotificationCallback = (
    _ center: CFNotificationCenter?,
    _ observer: UnsafeMutableRawPointer?,
    _ name: CFNotificationName?,
    _ object: UnsafeRawPointer?,
    _ userInfo: CFDictionary?
) -> Void

// MARK: Functions

/// Registers a callback. The registration is in force on return: the callback gets every matching post that any process
/// makes from then on (CF-A11). To ensure this, the Darwin and the distributed center wait for the bus to confirm the
/// match rule, for at most 25 seconds. Equal registrations coexist (CF-A5). Earlier posts are not delivered (CF-A6).
///
/// - Parameters:
///   - center: the center; with `nil`, nothing happens.
///   - observer: the pointer that the callback gets and by which the registration is removed. It is neither
///     dereferenced nor retained (CF-A2), except for a string from `Unmanaged.passUnretained(_:)`: the center keeps
///     that string as long as the registration exists. A registration with `nil` cannot be removed (CF-A1).
///   - callBack: the function to call; with `nil`, nothing happens (CF-A3).
///   - name: `nil` for any (CF-A4). The Darwin center never calls an observer of any name (CF-A8).
///   - object: `nil` for any. The local center compares the address and does not dereference it (CF-M5). The
///     distributed center reads a `CFString` during this call and compares it as text (CF-M4):
///     `Unmanaged.passUnretained("…" as CFString).toOpaque()`. If you make the pointer in another way, keep the string
///     until this function returns. The Darwin center ignores the object (CF-M6).
///   - suspensionBehavior: what happens while the distributed center is suspended.
///
/// The function reports to `UnthrownFailures` if the bus cannot be reached or refuses the match rule. The center keeps
/// the observer anyway: the callback gets the posts made after the bus is there and has accepted the rule. If the
/// object is not a `CFString`, the function reports that and registers nothing.
public func CFNotificationCenterAddObserver(
    _ center: CFNotificationCenter!,
    _ observer: UnsafeRawPointer!,
    _ callBack: CFNotificationCallback!,
    _ name: CFString!,
    _ object: UnsafeRawPointer!,
    _ suspensionBehavior: CFNotificationSuspensionBehavior
) {
    guard let center, let callBack else { return }
    UnthrownFailures.report(in: "CFNotificationCenterAddObserver") {
        try center.callbacks.add(
            observer.map { UInt(bitPattern: $0) },
            name: name.map { NotificationName($0 as String) },
            object: try center.object(object),
            suspensionBehavior: SuspensionBehavior(suspensionBehavior),
            handler: center.handler(callBack, observer: observer, keeping: recentStrings(at: observer, object))
        )
    }
}

/// Removes the observer's registrations for this name and object. After the return no further call begins, and pending
/// notifications are dropped. A call that has already begun on another thread continues (CF-R7). If nothing matches,
/// nothing happens (CF-R5).
///
/// - Parameters:
///   - center: the center; with `nil`, nothing happens.
///   - observer: the pointer of the registration; with `nil`, the function reports that to `UnthrownFailures` and
///     removes nothing (CF-R1).
///   - name: `nil` means any (CF-R2). A given name does not match a registration for any name (CF-R3).
///   - object: `nil` means any (CF-R2). A given object does not match a registration for any object (CF-R3). The
///     distributed center compares it as text (CF-R8); it must be a `CFString`, as in
///     ``CFNotificationCenterAddObserver(_:_:_:_:_:_:)``. The Darwin center ignores it (CF-R6).
///
/// If the object is not a `CFString`, the function reports that to `UnthrownFailures` and removes nothing.
public func CFNotificationCenterRemoveObserver(
    _ center: CFNotificationCenter!,
    _ observer: UnsafeRawPointer!,
    _ name: CFNotificationName!,
    _ object: UnsafeRawPointer!
) {
    guard let center else { return }
    let function = "CFNotificationCenterRemoveObserver"
    UnthrownFailures.report(in: function, attempted: "remove an observer", "observer", observer) { observer in
        let object = try center.object(object)
        center.callbacks.remove(UInt(bitPattern: observer), name: name?.name, object: object)
    }
}

/// Removes all of this observer's registrations with this center, and no other observer's (CF-R4). Otherwise it behaves
/// as ``CFNotificationCenterRemoveObserver(_:_:_:_:)``.
///
/// - Parameters:
///   - center: the center; with `nil`, nothing happens.
///   - observer: the pointer of the registration; with `nil`, the function reports that to `UnthrownFailures` and
///     removes nothing (CF-R1).
public func CFNotificationCenterRemoveEveryObserver(_ center: CFNotificationCenter!, _ observer: UnsafeRawPointer!) {
    guard let center else { return }
    let function = "CFNotificationCenterRemoveEveryObserver"
    UnthrownFailures.report(in: function, attempted: "remove an observer", "observer", observer) { observer in
        center.callbacks.removeEvery(UInt(bitPattern: observer))
    }
}

// MARK: Calls

extension CFNotificationCenter {
    /// Wraps the callback in the form that the centers call. The handler keeps `strings` alive.
    fileprivate func handler(
        _ callback: @escaping CFNotificationCallback,
        observer: UnsafeRawPointer?,
        keeping strings: [KeptString]
    ) -> CallbackCenter.Handler {
        let observer = observer.map { UInt(bitPattern: $0) }
        // Unsafe: the compiler does not know that any thread may call it, as on Apple, where it is a C function; see
        // `CFNotificationCallback`.
        nonisolated(unsafe) let callback = callback
        return { notification in
            let observer = observer.flatMap { UnsafeMutableRawPointer(bitPattern: $0) }
            let name = CFNotificationName(notification.name)
            let userInfo = notification.content.dictionary
            if let text = notification.object?.text {
                let object = text as CFString
                withExtendedLifetime(object) {
                    // Passed as AnyObject: the function for CFString would keep this string and displace a client's.
                    callback(self, observer, name, Unmanaged<AnyObject>.passUnretained(object).toOpaque(), userInfo)
                }
            } else {
                let object = notification.object?.address.flatMap { UnsafeRawPointer(bitPattern: $0) }
                callback(self, observer, name, object, userInfo)
            }
            withExtendedLifetime(strings) {}
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

/// Posts a notification. Equivalent to ``CFNotificationCenterPostNotificationWithOptions(_:_:_:_:_:)`` with
/// ``kCFNotificationDeliverImmediately`` or with no option (CF-P6).
public func CFNotificationCenterPostNotification(
    _ center: CFNotificationCenter!,
    _ name: CFNotificationName!,
    _ object: UnsafeRawPointer!,
    _ userInfo: CFDictionary!,
    _ deliverImmediately: Bool
) {
    let options: PostingOptions = deliverImmediately ? .deliverImmediately : []
    center?.post("CFNotificationCenterPostNotification", name, object, userInfo, options)
}

/// Posts a notification. The local center calls its observers before this returns (CF-D1). The others never call
/// observers within the post (CF-P10): on return the kernel has the notification, and no report tells who receives it
/// (CF-P11). For a bus that does not keep up, they wait at most 30 seconds. For a reserved name, the Darwin center
/// waits at most 25 seconds for notifyd, which posts it.
///
/// - Parameters:
///   - center: the center; with `nil`, nothing happens.
///   - name: the name; with `nil`, the function reports that to `UnthrownFailures` and posts nothing (CF-P1).
///   - object: `nil` reaches only the observers of any object (CF-P2). The local center hands the address on and does
///     not dereference it (CF-P3). The distributed center copies a `CFString` during this call:
///     `Unmanaged.passUnretained("…" as CFString).toOpaque()`. If you make the pointer in another way, keep the string
///     until this function returns. The Darwin center ignores the object (CF-W1).
///   - userInfo: the local center hands on the object itself, whatever it holds (CF-U3). The distributed center copies
///     a property list (CF-U1, CF-P12) of at most 1 MiB in all (CF-U9) and at most 20 levels of arrays and
///     dictionaries. An empty one arrives as empty, and `nil` as `nil` (CF-U6). The Darwin center ignores it (CF-U4).
///   - options: ``kCFNotificationDeliverImmediately``, ``kCFNotificationPostToAllSessions``, both or `0`. Only the
///     distributed center reads them (CF-P8, CF-W1).
///
/// The function reports to `UnthrownFailures` and posts nothing if the bus cannot be reached, this process may not post
/// the name, the object is not a `CFString`, or the userInfo is not a property list or exceeds the limits. It also
/// reports a bus that does not read, which may still deliver the post when it resumes.
public func CFNotificationCenterPostNotificationWithOptions(
    _ center: CFNotificationCenter!,
    _ name: CFNotificationName!,
    _ object: UnsafeRawPointer!,
    _ userInfo: CFDictionary!,
    _ options: CFOptionFlags
) {
    let options = PostingOptions(rawValue: options)
    center?.post("CFNotificationCenterPostNotificationWithOptions", name, object, userInfo, options)
}

extension CFNotificationCenter {
    fileprivate func post(
        _ function: String,
        _ name: CFNotificationName?,
        _ object: UnsafeRawPointer?,
        _ userInfo: CFDictionary?,
        _ options: PostingOptions
    ) {
        UnthrownFailures.report(in: function, attempted: "post a notification", "name", name) { name in
            let text = name.rawValue
            // The local center hands on the objects themselves.
            try withExtendedLifetime((text, userInfo)) {
                let content = try callbacks.content(name: address(of: text), userInfo: userInfo.map(address)) {
                    let userInfo = Unmanaged<CFDictionary>.fromOpaque($0).takeUnretainedValue()
                    return try PropertyListReader(root: "userInfo").dictionary(userInfo)
                }
                try callbacks.post(name.name, object: try self.object(object), content: content, options: options)
            }
        }
    }

    private func address(of object: AnyObject) -> UnsafeRawPointer {
        UnsafeRawPointer(Unmanaged.passUnretained(object).toOpaque())
    }
}
