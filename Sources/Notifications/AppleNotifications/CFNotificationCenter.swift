import NotifyCenter

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
