import Basics
import Synchronization

/// The limits on the calls that an object serves at once.
///
/// A call counts from its admission until the response, or until its ``CallReply`` has been released. A call over a
/// limit is refused with `org.freedesktop.DBus.Error.LimitsExceeded` before its body is read. Its sender may retry
/// after earlier calls have ended.
///
/// Bytes are those of whole messages. The decoded arguments take more memory: up to about 35 times as much for many
/// small values.
public struct CallLimits: Sendable, Hashable {
    /// The largest body of one call, unless its method sets a limit (``DBusInterface/Method``). 1 MiB.
    public var bodyBytes = 1 << 20
    /// The number of calls of one sender. 256.
    public var callsOfSender = 256
    /// The number of bytes in the calls of one sender. 4 MiB.
    public var bytesOfSender = 4 << 20
    /// The number of calls of all senders. 4096. Beyond that, only a sender that uses less than its share is admitted.
    public var calls = 4096
    /// The number of bytes in the calls of all senders. 16 MiB. Beyond that, as for calls.
    public var bytes = 16 << 20

    /// Creates the default limits, which suit most services.
    public init() {}
}

/// The header of a method call, known before its body is read. Only `sender` can be trusted: the bus vouches for it.
public struct CallHeader: Sendable, Hashable {
    /// The caller's unique bus name.
    public let sender: String
    /// The interface that the method belongs to.
    public let interface: String
    /// The method's name.
    public let member: String
    /// The body's signature, which matches the method's.
    public let signature: String
    /// The size of the body in bytes.
    public let bodyBytes: Int
    /// The size of the message in bytes.
    public let bytes: Int
}

/// The decision whether an object takes a call.
public enum CallAdmission: Sendable {
    /// Takes the call. `ended` is called once, on any thread, when the call no longer counts: right before its response
    /// is sent, or when its ``CallReply`` has been released.
    case take(ended: (@Sendable () -> Void)? = nil)
    /// Refuses the call with an error.
    case refuse(MethodFailure)

    /// Decides on a call that has the method's signature and is within all limits. Called on the reading thread before
    /// the body is read, so it must return soon.
    public typealias Decision = @Sendable (CallHeader) -> CallAdmission
}

/// A service that shares its time and memory among callers, and reads faster than it works.
///
/// It decides on each call to its connection before the call is processed further, and learns of each response. It gets
/// the reading thread when all messages that had arrived have been dispatched.
public protocol CallScheduler: AnyObject, Sendable {
    /// Decides on a call. Called on the reading thread.
    func admit(_ call: borrowing MessageHeader) -> CallPermission
    /// A response of about this many bytes is on its way to a connection. Called on the thread that responds.
    func answered(_ caller: String, bytes: Int)
    /// Does pending work. Called on the reading thread each time before it sleeps.
    ///
    /// - Returns: the time of the next work. The thread sleeps until then if no message arrives; it calls this again
    ///   whenever it has dispatched what arrived. `nil` if no work is left.
    func carryOut() -> ContinuousClock.Instant?
}

public enum CallPermission: Sendable {
    case take
    case refuse(MethodFailure)
    /// The call is neither processed nor answered.
    case drop
}

/// The calls in progress on an object, and their limits. Pure.
struct CallBudget {
    /// The size of a call for which a sender without calls in progress always has room.
    private static let smallCall = 4 << 10

    let limits: CallLimits
    private var senders = Quotas<String>()

    init(_ limits: CallLimits) { self.limits = limits }

    var isUnused: Bool { senders.parties == 0 && senders.total == CallAmount() }

    mutating func take(_ bytes: Int, of sender: String) throws(MethodFailure) {
        let own = senders[sender]
        guard own.hasRoom(for: bytes, within: CallAmount(calls: limits.callsOfSender, bytes: limits.bytesOfSender))
        else {
            throw .standard(
                "LimitsExceeded",
                "a caller may have \(limits.callsOfSender) calls and \(limits.bytesOfSender) bytes in flight; wait for a response"
            )
        }
        // Beyond the total limits a sender has its share of them. A sender without calls in progress always has room
        // for one.
        let count = senders.parties + (own.calls == 0 ? 1 : 0)
        let share = CallAmount(
            calls: max(1, limits.calls / count),
            bytes: max(Self.smallCall, limits.bytes / count)
        )
        guard
            senders.total.hasRoom(for: bytes, within: CallAmount(calls: limits.calls, bytes: limits.bytes))
                || own.hasRoom(for: bytes, within: share)
        else {
            throw .standard("LimitsExceeded", "too many calls are in flight; try again later")
        }
        senders.begin(bytes, of: sender)
    }

    mutating func giveBack(_ bytes: Int, of sender: String) { senders.end(bytes, of: sender) }
}

/// A call that an object has taken. It counts until ``end()`` or its deallocation.
final class AdmittedCall: Sendable {
    private let object: ServedObject
    private let sender: String
    /// The size of the message in bytes.
    let bytes: Int
    /// `nil` once the call has ended.
    private let ended: Locked<(@Sendable () -> Void)?>

    fileprivate init(_ object: ServedObject, _ sender: String, _ bytes: Int, _ ended: (@Sendable () -> Void)?) {
        self.object = object
        self.sender = sender
        self.bytes = bytes
        self.ended = Locked(ended ?? {})
    }

    deinit { end() }

    func end() {
        let ended = ended.withLock { ended in
            defer { ended = nil }
            return ended
        }
        guard let ended else { return }
        object.budget.withLock { $0.giveBack(bytes, of: sender) }
        ended()
    }
}

/// An object at a path: its interfaces, and the budget for its callers.
final class ServedObject: Sendable {
    /// The description of its interfaces for introspection. Made once, because any peer may request it repeatedly.
    let description: String
    /// Its interfaces and `org.freedesktop.DBus.Properties`.
    private let callable: [DBusInterface]
    let budget: Locked<CallBudget>
    private let decide: CallAdmission.Decision?

    init(_ interfaces: [DBusInterface], _ limits: CallLimits = CallLimits(), _ decide: CallAdmission.Decision? = nil) {
        description = Introspection.description(of: interfaces)
        callable = interfaces + [StandardInterfaces.properties(of: interfaces)]
        budget = Locked(CallBudget(limits))
        self.decide = decide
    }

    /// Returns the method that a call names. A call may omit the interface (D-Bus specification, "Message Types").
    func method(
        _ interface: String?,
        _ member: String
    ) throws(MethodFailure) -> (interface: String, DBusInterface.Method) {
        let named = callable.filter { interface == nil || $0.name == interface }
        guard !named.isEmpty else {
            throw .standard("UnknownInterface", "the object has no interface \(interface ?? "at all")")
        }
        for candidate in named {
            if let method = candidate.methods.first(where: { $0.name == member }) { return (candidate.name, method) }
        }
        throw .standard("UnknownMethod", "\(interface ?? "the object") has no method \(member)")
    }

    func admit(
        _ call: borrowing MessageHeader,
        _ interface: String,
        _ method: DBusInterface.Method
    ) throws(MethodFailure) -> AdmittedCall {
        try method.check(call.signature)
        let (sender, bytes, size) = (call.sender ?? "", call.bodyBytes, call.bytes)
        let limit = method.maximumBodyBytes ?? budget.withLock { $0.limits.bodyBytes }
        guard bytes <= limit else {
            throw .standard("LimitsExceeded", "\(method.name) takes \(limit) bytes, not \(bytes)")
        }
        try budget.withLock { budget throws(MethodFailure) in try budget.take(size, of: sender) }
        guard let decide else { return AdmittedCall(self, sender, size, nil) }
        let header = CallHeader(
            sender: sender,
            interface: interface,
            member: method.name,
            signature: call.signature,
            bodyBytes: bytes,
            bytes: size
        )
        switch decide(header) {
        case .take(let ended): return AdmittedCall(self, sender, size, ended)
        case .refuse(let failure):
            budget.withLock { $0.giveBack(size, of: sender) }
            throw failure
        }
    }
}
