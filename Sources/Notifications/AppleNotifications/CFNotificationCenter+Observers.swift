import DBusTransport
import NotifyCenter

/// Registers a callback. The registration is in force on return: what any process posts from then on is seen (CF-A11); the
/// Darwin and the distributed center wait for the bus to confirm it. Equal registrations are kept side by side (CF-A5), and nothing
/// that was posted before is delivered (CF-A6).
///
/// - Parameters:
///   - center: nothing happens without one.
///   - observer: what it is removed by, and what the callback gets; never followed or retained (CF-A2). A registration with `nil`
///     cannot be removed (CF-A1).
///   - callBack: what is called, see ``CFNotificationCallback``; nothing happens without one (CF-A3).
///   - name: `nil` for any (CF-A4); the Darwin center then never calls (CF-A8).
///   - object: `nil` for any. To the local center an address, which is not followed (CF-M5). To the distributed one a `CFString`, read
///     during this call and compared as text (CF-M4): `Unmanaged.passUnretained("…" as CFString).toOpaque()`. A pointer that was made
///     in another way needs the string kept until this returns. To the Darwin one nothing (CF-M6).
///   - suspensionBehavior: for the distributed center, see ``CFNotificationSuspensionBehavior``.
///
/// What cannot be registered, because the bus cannot be reached or refuses, or because the object is no `CFString`, is reported to
/// `UnthrownFailures`.
public func CFNotificationCenterAddObserver(
    _ center: CFNotificationCenter!,
    _ observer: UnsafeRawPointer!,
    _ callBack: CFNotificationCallback!,
    _ name: CFString!,
    _ object: UnsafeRawPointer!,
    _ suspensionBehavior: CFNotificationSuspensionBehavior
) {
    guard let center, let callBack else { return }
    let address = observer.map { UInt(bitPattern: $0) }
    reportingFailure("CFNotificationCenterAddObserver") {
        try center.callbacks.add(
            address,
            name: name.map { NotificationName($0 as String) },
            object: try center.object(object),
            suspensionBehavior: SuspensionBehavior(suspensionBehavior),
            handler: center.handler(callBack, observer: address)
        )
    }
}

/// Removes the observer's registrations that meet the criteria. On return none of them is called any more, nor gets what waited for
/// it, but for a call that is under way on another thread (CF-R7). What is not registered is no error (CF-R5).
///
/// - Parameters:
///   - center: nothing happens without one.
///   - observer: the pointer that was registered; nothing happens without one (CF-R1).
///   - name: `nil` is no criterion (CF-R2). A registration for any name is not met by a given one (CF-R3).
///   - object: `nil` is no criterion (CF-R2). A registration for any object is not met by a given one (CF-R3). The distributed center
///     compares it as text (CF-R8) and wants a `CFString`, see
///     ``CFNotificationCenterAddObserver(_:_:_:_:_:_:)``; the Darwin one does not look at it (CF-R6).
public func CFNotificationCenterRemoveObserver(
    _ center: CFNotificationCenter!,
    _ observer: UnsafeRawPointer!,
    _ name: CFNotificationName!,
    _ object: UnsafeRawPointer!
) {
    guard let center, let observer else { return }
    reportingFailure("CFNotificationCenterRemoveObserver") {
        let object = try center.object(object)
        center.callbacks.remove(UInt(bitPattern: observer), name: name?.name, object: object)
    }
}

/// Removes all of the observer's registrations with this center, and nobody else's (CF-R4); otherwise as
/// ``CFNotificationCenterRemoveObserver(_:_:_:_:)``.
///
/// - Parameters:
///   - center: nothing happens without one.
///   - observer: the pointer that was registered; nothing happens without one (CF-R1).
public func CFNotificationCenterRemoveEveryObserver(_ center: CFNotificationCenter!, _ observer: UnsafeRawPointer!) {
    guard let center, let observer else { return }
    center.callbacks.removeEvery(UInt(bitPattern: observer))
}
