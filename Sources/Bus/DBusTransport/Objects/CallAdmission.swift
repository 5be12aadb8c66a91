import Synchronization

/// How much work callers may have an object do at once. A call counts from when it is taken until it is answered, or until nobody holds its
/// ``CallReply`` any more. A call over a limit is refused with `org.freedesktop.DBus.Error.LimitsExceeded` before its body is read, and its
/// sender may try again when earlier calls are answered.
///
/// Bytes are those of whole messages. What a handler is given takes more: up to about 35 times as much for many small values.
public struct CallLimits: Sendable, Hashable {
    /// The largest body of one call, where its method names no other (``DBusInterface/Method``). 1 MiB.
    public var bodyBytes = 1 << 20
    /// Calls of one sender. 256.
    public var callsOfSender = 256
    /// Bytes of the calls of one sender. 4 MiB.
    public var bytesOfSender = 4 << 20
    /// Calls of all senders. 4096. Beyond that, only a sender that has less than its share of them under way is not refused.
    public var calls = 4096
    /// Bytes of the calls of all senders. 16 MiB. Beyond that, as for calls.
    public var bytes = 16 << 20

    /// These limits suit most services. Change those that do not suit yours.
    public init() {}
}

/// What is known of a method call before its body is read. Nothing in it is to be trusted but `sender`, which the bus vouches for.
public struct CallHeader: Sendable, Hashable {
    /// The caller's unique bus name.
    public let sender: String
    /// The interface that the method belongs to.
    public let interface: String
    /// The method's name.
    public let member: String
    /// The body's signature, which is the method's.
    public let signature: String
    /// How many bytes the body takes.
    public let bodyBytes: Int
    /// How many bytes the message takes.
    public let bytes: Int
}

/// Whether an object takes a call.
public enum CallAdmission: Sendable {
    /// It does. `ended` is called once, on any thread, when the call no longer counts: right before its answer is sent, or when nobody
    /// holds its ``CallReply`` any more.
    case take(ended: (@Sendable () -> Void)? = nil)
    /// It does not, and the caller is told so.
    case refuse(MethodFailure)

    /// Decides on a call that has the method's signature and keeps all limits. Called on the reading thread, so that it must return soon,
    /// and before anything of the body is read.
    public typealias Decision = @Sendable (CallHeader) -> CallAdmission
}

/// A service that shares its time and memory among callers: it is asked about each call to its connection before anything else is done with
/// the call, hears of each answer, and is given the reading thread when what had arrived is handed on. So it can read faster than it works.
package protocol CallScheduler: AnyObject, Sendable {
    /// Called on the reading thread.
    func admit(_ call: borrowing MessageHeader) -> CallPermission
    /// An answer of about so many bytes is on its way to a connection. Called on the thread that answers.
    func answered(_ caller: String, bytes: Int)
    /// Called on the reading thread each time before it sleeps. Returns when there is more to do: until then the thread sleeps, if nothing arrives,
    /// and it calls this again when it has handed on what has arrived meanwhile. `nil`: there is nothing more to do.
    func carryOut() -> ContinuousClock.Instant?
}

/// What becomes of a call.
package enum CallPermission: Sendable {
    case take
    case refuse(MethodFailure)
    /// It is neither carried out nor answered.
    case drop
}

/// What callers have an object do at this moment. Pure.
struct CallBudget {
    /// A sender with nothing under way has room for a call of this size.
    private static let smallCall = 4 << 10

    let limits: CallLimits
    private var senders = Quotas<String>()

    init(_ limits: CallLimits) { self.limits = limits }

    var isUnused: Bool { senders.parties == 0 && senders.total == CallAmount() }

    /// Takes a call into account, or refuses it.
    mutating func take(_ bytes: Int, of sender: String) throws(MethodFailure) {
        let own = senders[sender]
        guard own.hasRoom(for: bytes, within: CallAmount(calls: limits.callsOfSender, bytes: limits.bytesOfSender))
        else {
            throw .standard(
                "LimitsExceeded",
                "a caller may have \(limits.callsOfSender) calls of \(limits.bytesOfSender) bytes under way; wait for an answer"
            )
        }
        // Beyond these, a sender has its share of them: one with nothing under way always has a place.
        let count = senders.parties + (own.calls == 0 ? 1 : 0)
        let share = CallAmount(
            calls: max(1, limits.calls / count),
            bytes: max(Self.smallCall, limits.bytes / count)
        )
        guard
            senders.total.hasRoom(for: bytes, within: CallAmount(calls: limits.calls, bytes: limits.bytes))
                || own.hasRoom(for: bytes, within: share)
        else {
            throw .standard("LimitsExceeded", "too many calls are under way; try again later")
        }
        senders.begin(bytes, of: sender)
    }

    /// The end of a call that was taken.
    mutating func giveBack(_ bytes: Int, of sender: String) { senders.end(bytes, of: sender) }
}

/// A call that an object has taken. It counts until ``end()``, or its own end of life.
final class AdmittedCall: Sendable {
    private let object: ServedObject
    private let sender: String
    /// How many bytes the message takes.
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

/// An object at a path: its interfaces, and what callers may have it do.
final class ServedObject: Sendable {
    /// What the introspection document says of its interfaces. Written once: anybody may ask for it, again and again.
    let description: String
    /// Its interfaces, and those that come by themselves.
    private let callable: [DBusInterface]
    let budget: Locked<CallBudget>
    private let decide: CallAdmission.Decision?

    init(_ interfaces: [DBusInterface], _ limits: CallLimits = CallLimits(), _ decide: CallAdmission.Decision? = nil) {
        description = Introspection.description(of: interfaces)
        callable = interfaces + [StandardInterfaces.properties(of: interfaces)]
        budget = Locked(CallBudget(limits))
        self.decide = decide
    }

    /// The method that a call names. The interface may be left out of a call (D-Bus specification, "Message Types").
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

    /// Takes a call into account, or refuses it.
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
