import NotifyCenter

/// A notification center (CF-T1), which one of three functions returns, always the same one (CF-T2):
///
/// | | reaches | carries | compares objects |
/// |---|---|---|---|
/// | ``CFNotificationCenterGetLocalCenter()`` | this process | object, userInfo | by address |
/// | ``CFNotificationCenterGetDarwinNotifyCenter()`` | all processes of the bus | the name alone | – |
/// | ``CFNotificationCenterGetDistributedCenter()`` | all processes of the bus | object, userInfo | as text |
///
/// All functions may be called from any thread, callbacks included (CF-C6). Centers live as long as the process.
public final class CFNotificationCenter: Sendable {
    enum Kind {
        case local, darwin, distributed
    }

    static let local = CFNotificationCenter(.local, .local)
    static let darwin = CFNotificationCenter(.darwin, .darwin)
    static let distributed = CFNotificationCenter(.distributed, .distributed)

    let kind: Kind
    let callbacks: CallbackCenter

    private init(_ kind: Kind, _ callbacks: CallbackCenter) {
        self.kind = kind
        self.callbacks = callbacks
    }
}

extension CFNotificationCenter: Hashable, CustomStringConvertible {
    /// Whether both are one center.
    public static func == (left: CFNotificationCenter, right: CFNotificationCenter) -> Bool { left === right }

    /// Feeds the center's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }

    /// Which of the three it is.
    public var description: String { "<CFNotificationCenter \(kind)>" }
}

/// The center within this process. It calls observers on the poster's thread, in the order of their registration, before the post
/// returns (CF-D1, CF-D3).
///
/// On Apple, Foundation's `NotificationCenter.default` is another face of it; here the two are apart.
public func CFNotificationCenterGetLocalCenter() -> CFNotificationCenter! { .local }

/// The center of names between all processes of the bus (CF-W1). Its observers are called on the main queue; posts that arrive while
/// one is busy become one (CF-W2).
///
/// On Apple it reaches the whole system; here one bus, which `NOTIFY_CENTER_BUS` names when the center is first used.
public func CFNotificationCenterGetDarwinNotifyCenter() -> CFNotificationCenter! { .darwin }

/// The center between all processes of the bus that carries an object and a userInfo. Its observers are called on the main queue
/// (CF-A9, CF-D2).
///
/// On Apple it is macOS's alone. `DistributedNotificationCenter.default()` is another face of it: a post to either reaches the
/// observers of both.
public func CFNotificationCenterGetDistributedCenter() -> CFNotificationCenter! { .distributed }

/// A number for the type of notification centers (CF-T1), the same each time.
///
/// It compares with nothing of CoreFoundation's: on Linux ``CFNotificationCenter`` is a Swift class, which `CFGetTypeID` does not know.
public func CFNotificationCenterGetTypeID() -> CFTypeID { 52 }
