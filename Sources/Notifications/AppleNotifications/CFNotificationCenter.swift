import NotifyCenter

/// A notification center (CF-T1). Three functions return one each, always the same one (CF-T2):
///
/// | | reaches | carries | compares objects |
/// |---|---|---|---|
/// | ``CFNotificationCenterGetLocalCenter()`` | this process | object, userInfo | by address |
/// | ``CFNotificationCenterGetDarwinNotifyCenter()`` | all processes of the bus | the name alone | – |
/// | ``CFNotificationCenterGetDistributedCenter()`` | all processes of the bus | object, userInfo | as text |
///
/// All functions may be called from any thread, also within callbacks (CF-C6). Centers live as long as the process.
public final class CFNotificationCenter: Sendable {
    static let local = CFNotificationCenter(.local)
    static let darwin = CFNotificationCenter(.darwin)
    static let distributed = CFNotificationCenter(.distributed)

    let callbacks: CallbackCenter

    private init(_ callbacks: CallbackCenter) { self.callbacks = callbacks }
}

extension CFNotificationCenter: Hashable, CustomStringConvertible {
    /// Whether both are one center.
    public static func == (left: CFNotificationCenter, right: CFNotificationCenter) -> Bool { left === right }

    /// Feeds the center's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }

    /// Which of the three it is.
    public var description: String { "<CFNotificationCenter \(callbacks.kind)>" }
}

/// The center within this process. It calls observers on the poster's thread, in the order of their registration, before the post
/// returns (CF-D1, CF-D3).
///
/// On Apple, Foundation's `NotificationCenter.default` shares its observers; here the two are apart.
public func CFNotificationCenterGetLocalCenter() -> CFNotificationCenter! { .local }

/// The center of names between all processes of the bus (CF-W1). It calls its observers on the main queue. Posts that arrive while an
/// observer is busy become one (CF-W2).
///
/// On Apple it reaches the whole system; here one bus, which `NOTIFY_CENTER_BUS` names when the center is first used.
public func CFNotificationCenterGetDarwinNotifyCenter() -> CFNotificationCenter! { .darwin }

/// The center between all processes of the bus that carries an object and a userInfo. It calls its observers on the main queue
/// (CF-A9, CF-D2).
///
/// On Apple only macOS has it. `DistributedNotificationCenter.default()` is the same center: a post to either reaches the observers of
/// both.
public func CFNotificationCenterGetDistributedCenter() -> CFNotificationCenter! { .distributed }

/// A number for the type of notification centers (CF-T1), the same each time.
///
/// It is equal to no type's number in CoreFoundation: ``CFNotificationCenter`` is a Swift class, which `CFGetTypeID` does not know.
public func CFNotificationCenterGetTypeID() -> CFTypeID { 52 }
