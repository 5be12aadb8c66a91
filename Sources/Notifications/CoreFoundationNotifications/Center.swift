import CoreFoundation
import NotifyCenter

/// One of the process's three centers: the CoreFoundation object that clients hold, and the center behind it. Its
/// functions take the arguments of the C functions and convert them.
final class Center: Sendable {
    static let local = Center(.local)
    static let darwin = Center(.darwin)
    static let distributed = Center(.distributed)
    private static let all = [local, darwin, distributed]

    /// Returns the center with this address. The pointer may lead to anything, so it is only compared.
    static func of(_ reference: UnsafeRawPointer) -> Center? {
        all.first { UnsafeRawPointer($0.reference) == reference }
    }

    var kind: CallbackCenter.Kind { callbacks.kind }
    /// The CoreFoundation object. Unsafe: the pointer is constant, and the object is never freed.
    nonisolated(unsafe) let reference: UnsafeMutableRawPointer
    private let callbacks: CallbackCenter

    private init(_ callbacks: CallbackCenter) {
        self.callbacks = callbacks
        reference = RuntimeClass.makeImmortalInstance()
    }

    // MARK: Observers

    /// `CFNotificationCenterAddObserver`.
    func add(
        _ observer: ClientObserver,
        name: UnsafeRawPointer?,
        object: UnsafeRawPointer?,
        suspensionBehavior: Int
    ) throws {
        let behavior = SuspensionBehavior(rawValue: suspensionBehavior)
        try callbacks.add(
            observer.identity,
            name: try name.map(notificationName),
            object: try convert(object),
            suspensionBehavior: behavior ?? .coalesce
        ) { [self] notification in
            call(observer, notification)
        }
        // The observer is registered with the default, as for 0: a wrong number should not leave it without
        // notifications.
        if kind == .distributed, behavior == nil, suspensionBehavior != 0 {
            throw ArgumentError(
                argument: "suspensionBehavior",
                found: "\(suspensionBehavior), which is not a suspension behavior",
                remedy: "the observer is registered with CFNotificationSuspensionBehaviorCoalesce; say which you mean"
            )
        }
    }

    /// `CFNotificationCenterRemoveObserver`.
    func remove(_ observer: UnsafeRawPointer, name: UnsafeRawPointer?, object: UnsafeRawPointer?) throws {
        callbacks.remove(UInt(bitPattern: observer), name: try name.map(notificationName), object: try convert(object))
    }

    /// `CFNotificationCenterRemoveEveryObserver`.
    func removeEvery(_ observer: UnsafeRawPointer) { callbacks.removeEvery(UInt(bitPattern: observer)) }

    /// The Darwin center's observers get neither object nor userInfo (CF-D7).
    private func call(_ observer: ClientObserver, _ notification: CallbackCenter.Notification) {
        switch notification.content {
        case .local(let content):
            observer.call(
                center: reference,
                name: UnsafeRawPointer(bitPattern: content.name),
                object: notification.object?.address.flatMap(UnsafeRawPointer.init(bitPattern:)),
                userInfo: content.userInfo.flatMap(UnsafeRawPointer.init(bitPattern:))
            )
        case .none, .distributed:
            let userInfo: UserInfo? = if case .distributed(let values) = notification.content { values } else { nil }
            observer.call(
                center: reference,
                name: notification.name.rawValue,
                object: notification.object?.text,
                userInfo: userInfo
            )
        }
    }

    // MARK: Posting

    /// `CFNotificationCenterPostNotificationWithOptions`.
    func post(
        _ name: UnsafeRawPointer,
        object: UnsafeRawPointer?,
        userInfo: UnsafeRawPointer?,
        options: PostingOptions
    ) throws {
        let content = try callbacks.content(name: name, userInfo: userInfo, values: Arguments.userInfo)
        try callbacks.post(notificationName(name), object: convert(object), content: content, options: options)
    }

    // MARK: Arguments

    private func notificationName(_ pointer: UnsafeRawPointer) throws(ArgumentError) -> NotificationName {
        NotificationName(try Arguments.text(pointer, argument: "name"))
    }

    private func convert(_ object: UnsafeRawPointer?) throws(ArgumentError) -> CallbackCenter.Object? {
        try callbacks.object(object) { pointer throws(ArgumentError) in
            try Arguments.text(pointer, argument: "object")
        }
    }
}

// MARK: Observers

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

/// Runs `body` with the center that a client names, and reports its errors. With NULL as the center it does nothing.
func withCenter(_ reference: UnsafeRawPointer?, _ function: String, _ body: (Center) throws -> Void) {
    guard let reference else { return }
    UnthrownFailures.report(in: function) {
        guard let center = Center.of(reference) else {
            throw ArgumentError(
                argument: "center",
                found: "an object that is not a notification center",
                remedy:
                    "pass what CFNotificationCenterGetLocalCenter, …GetDarwinNotifyCenter or …GetDistributedCenter returns"
            )
        }
        try body(center)
    }
}

// MARK: CoreFoundation's runtime

/// `CFNotificationCenter` as a class of CoreFoundation's runtime. It defines neither equality nor hash, so the runtime
/// uses the address.
enum RuntimeClass {
    /// The type number. The class is registered once, with the first use.
    static let typeIdentifier: CFTypeID = {
        // CoreFoundation keeps the address.
        let definition = UnsafeMutablePointer<CFRuntimeClass>.allocate(capacity: 1)
        definition.initialize(to: CFRuntimeClass())
        let name: StaticString = "CFNotificationCenter"
        definition.pointee.className = UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
        definition.pointee.copyDebugDesc = { object in object.flatMap { Unmanaged.passRetained(describe($0)) } }
        return _CFRuntimeRegisterClass(definition)
    }()

    /// Makes an object of the class that no number of releases frees, because no client owns a center (CF-T1).
    static func makeImmortalInstance() -> UnsafeMutableRawPointer {
        guard let instance = _CFRuntimeCreateInstance(nil, typeIdentifier, 0, nil) else {
            // The runtime does not know the class, or is out of memory. Without a center nothing can work.
            preconditionFailure("CoreFoundation makes no object of the class CFNotificationCenter")
        }
        let address = instance.toOpaque()
        // The value that CoreFoundation's own constants have here (INIT_CFRUNTIME_BASE).
        address.assumingMemoryBound(to: CFRuntimeBase.self).pointee._swift_rc = UInt(_CF_CONSTANT_OBJECT_STRONG_RC)
        return address
    }

    private static func describe(_ object: CFTypeRef) -> CFString {
        let address = Unmanaged.passUnretained(object).toOpaque()
        let name =
            switch Center.of(address)?.kind {
            case .local: "local"
            case .darwin: "Darwin notify"
            case .distributed: "distributed"
            case nil: "unknown"
            }
        return makeCFString("<CFNotificationCenter \(address)>{\(name)}")
    }
}
