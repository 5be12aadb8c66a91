import NotifyCenter

/// One of the process's three centers: the CoreFoundation object that clients hold, and the center that it stands for. What it
/// takes are the arguments of the C functions, which it converts.
final class Center: Sendable {
    enum Kind: String {
        case local
        case darwin = "Darwin notify"
        case distributed
    }

    static let local = Center(.local, .local)
    static let darwin = Center(.darwin, .darwin)
    static let distributed = Center(.distributed, .distributed)
    private static let all = [local, darwin, distributed]

    /// The one that a client means. By address alone: what the pointer leads to may be anything.
    static func of(_ reference: UnsafeRawPointer) -> Center? {
        all.first { UnsafeRawPointer($0.reference) == reference }
    }

    let kind: Kind
    /// The CoreFoundation object. Unsafe: it is never freed and never changes.
    nonisolated(unsafe) let reference: UnsafeMutableRawPointer
    private let callbacks: CallbackCenter

    private init(_ kind: Kind, _ callbacks: CallbackCenter) {
        self.kind = kind
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
        // Registered nevertheless, as if it were 0, which stands for the default: an observer that hears is better than none.
        if kind == .distributed, behavior == nil, suspensionBehavior != 0 {
            throw ArgumentError(
                argument: "suspensionBehavior",
                found: "\(suspensionBehavior), which is none",
                remedy: "the observer is registered with CFNotificationSuspensionBehaviorCoalesce; say which you mean"
            )
        }
    }

    /// `CFNotificationCenterRemoveObserver`.
    func remove(_ observer: UnsafeRawPointer, name: UnsafeRawPointer?, object: UnsafeRawPointer?) throws {
        callbacks.remove(
            UInt(bitPattern: observer),
            name: try name.map(notificationName),
            object: try convert(object)
        )
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
        let content: CallbackCenter.Content =
            switch kind {
            case .local:
                .local(.init(name: UInt(bitPattern: name), userInfo: userInfo.map { UInt(bitPattern: $0) }))
            case .darwin: .none
            case .distributed: try userInfo.map { .distributed(try UserInfoReader.read($0)) } ?? .none
            }
        try callbacks.post(notificationName(name), object: convert(object), content: content, options: options)
    }

    // MARK: Arguments

    private func notificationName(_ pointer: UnsafeRawPointer) throws(ArgumentError) -> NotificationName {
        NotificationName(try text(pointer, argument: "name"))
    }

    /// Local: the address, whatever is there (CF-P3). Darwin: none. Distributed: a CFString (CF-X6).
    private func convert(
        _ object: UnsafeRawPointer?
    ) throws(ArgumentError) -> CallbackCenter.Object? {
        guard let object else { return nil }
        return switch kind {
        case .local: .address(UInt(bitPattern: object))
        case .darwin: nil
        case .distributed: .text(try text(object, argument: "object"))
        }
    }
}

/// Does what a client asks of the center that it names, and reports what fails. NULL is no center, and not worth a word.
func withCenter(_ reference: UnsafeRawPointer?, _ function: String, _ body: (Center) throws -> Void) {
    guard let reference else { return }
    do {
        guard let center = Center.of(reference) else {
            throw ArgumentError(
                argument: "center",
                found: "an object that is no notification center",
                remedy:
                    "pass what CFNotificationCenterGetLocalCenter, …GetDarwinNotifyCenter or …GetDistributedCenter returns"
            )
        }
        try body(center)
    } catch {
        UnthrownFailures.report(error, in: function)
    }
}
