import Basics
public import DBus
import Synchronization

extension DBusConnection {
    /// Serves an object until the returned token is cancelled or released, across restarts of the bus.
    ///
    /// Each call runs in a separate task, unless its method is handled in order. A call is refused before its body is
    /// read if it names no method of the object, has another signature, or exceeds a limit of its method or the object.
    ///
    /// - Parameters:
    ///   - limits: the limits on the calls that the object serves at once.
    ///   - admit: decides on each call within the limits, for instance to apply limits by user; `nil` takes all.
    /// - Throws: ``DBusError/Code/invalidArgument`` if this connection already serves an object at `path`, or `path` is
    ///   not an object path or over 4096 bytes; ``DBusError/Code/noResources``.
    public func export(
        _ interfaces: [DBusInterface],
        at path: String,
        limits: CallLimits = CallLimits(),
        admit: CallAdmission.Decision? = nil
    ) throws(DBusError) -> Observation {
        try ForkedChild.check("serve \(path)")
        // Never sent: making it checks the path.
        _ = try DBusMessage.signal(path: path, interface: "org.freedesktop.DBus", member: "Check")
        guard path.utf8.count <= MessageHeader.longestPath else {
            let message = "the path has more than \(MessageHeader.longestPath) bytes"
            throw DBusError(.invalidArgument, message: message, attempted: "serve \(path.prefix(80))…")
        }
        try receiveCalls()
        let server = objectServer
        guard server.insert(ServedObject(interfaces, limits, admit), at: path) else {
            throw DBusError(.invalidArgument, message: "it is taken by another object", attempted: "serve \(path)")
        }
        return Observation { [weak server] in server?.remove(path) }
    }

    /// Lets `scheduler` decide on all calls to this connection. Holds it weakly.
    public func schedule(by scheduler: any CallScheduler) {
        if !ForkedChild.isCurrent { objectServer.schedule(by: scheduler) }
    }

    var objectServer: ObjectServer { callServer { ObjectServer() } }
}

/// Serves the objects of a connection. A refused call costs neither a task nor the reading of its body.
final class ObjectServer: CallServer {
    private struct State {
        var objects: [String: ServedObject] = [:]
        /// Weak: its owner keeps it, and it often keeps this connection.
        weak var scheduler: (any CallScheduler)?
    }

    private let state = Locked(State())

    subscript(path: String) -> ServedObject? { state.withLock { $0.objects[path] } }

    func insert(_ object: ServedObject, at path: String) -> Bool {
        state.withLock { state in
            guard state.objects[path] == nil else { return false }
            state.objects[path] = object
            return true
        }
    }

    /// Frees the object outside the lock: its handlers may hold the last reference to another object's token.
    func remove(_ path: String) { _ = state.withLock { $0.objects.removeValue(forKey: path) } }

    func schedule(by scheduler: any CallScheduler) { state.withLock { $0.scheduler = scheduler } }

    func admit(_ call: borrowing MessageHeader, _ path: ReturnPath) -> CallTicket? {
        let (objects, scheduler) = state.withLock { ($0.objects, $0.scheduler) }
        do throws(MethodFailure) {
            switch scheduler?.admit(call) ?? .take {
            case .drop: return nil
            case .refuse(let failure): throw failure
            case .take: break
            }
            guard !call.isTooLong else {
                let most = MessageHeader.mostFieldBytes
                throw .standard("LimitsExceeded", "a message header may have \(most) bytes at most")
            }
            // Descriptors stay open while their message exists, and would exhaust this process.
            guard !call.hasDescriptors else { throw .standard("InvalidArgs", "no method here takes file descriptors") }
            if let values = try StandardInterfaces.answer(call, objects) {
                answer(call, .success(values), path)
                return nil
            }
            let object = try objects.object(of: call)
            let method = try object.method(call.interface, call.member ?? "")
            let admitted = try object.admit(call, method)
            return { message, path in
                let call = HeldMessage(message.sharedReference())
                method.handle(call.message, CallReply(call, admitted, path))
            }
        } catch {
            answer(call, .failure(error), path)
            return nil
        }
    }

    func answered(_ call: borrowing DBusMessage, by response: borrowing DBusMessage) {
        guard let scheduler = state.withLock({ $0.scheduler }), let caller = call.sender else { return }
        scheduler.answered(caller, bytes: response.size)
    }

    func carryOut() -> ContinuousClock.Instant? { state.withLock { $0.scheduler }?.carryOut() }

    /// Responds to a call whose body is not read.
    private func answer(
        _ call: borrowing MessageHeader,
        _ result: Result<[DBusValue], MethodFailure>,
        _ path: ReturnPath
    ) {
        // If a header is too long, the sender field may not have arrived.
        guard call.expectsReply, call.sender != nil, let message = try? DBusMessage.call(call) else { return }
        path.send(to: message) { call throws(DBusError) in try result.response(to: call) }
    }
}

extension MethodFailure {
    fileprivate static func of(_ error: any Error) -> MethodFailure {
        error as? MethodFailure ?? .standard("Failed", String(describing: error))
    }
}

extension Result where Success == [DBusValue], Failure == MethodFailure {
    fileprivate func response(to call: borrowing DBusMessage) throws(DBusError) -> DBusMessage {
        switch self {
        case .success(let values): try call.reply(values)
        case .failure(let failure):
            try call.errorReply(name: failure.name, message: failure.message, details: failure.details)
        }
    }
}

extension ReturnPath {
    /// Sends a response if the caller expects one.
    fileprivate func send(
        to call: borrowing DBusMessage,
        _ response: (borrowing DBusMessage) throws(DBusError) -> DBusMessage
    ) {
        guard call.expectsReply else { return }
        do throws(DBusError) {
            try send(try response(call), to: call)
        } catch {
            // For instance a response that is too large. The caller gets this error instead of a timeout. If that fails
            // too, the bus is gone, and the caller's wait has ended with it.
            guard error.code != .disconnected, error.code != .closed,
                let reply = try? call.errorReply(name: "org.freedesktop.DBus.Error.Failed", message: error.description)
            else { return }
            try? send(reply, to: call)
        }
    }
}

/// The reply to a call. Send it once; the bus ignores a second one. No reply is sent if the caller is gone or expects
/// none.
public struct CallReply: Sendable {
    private let call: HeldMessage
    private let admitted: AdmittedCall
    private let path: ReturnPath

    fileprivate init(_ call: HeldMessage, _ admitted: AdmittedCall, _ path: ReturnPath) {
        (self.call, self.admitted, self.path) = (call, admitted, path)
    }

    /// The size of the call's message in bytes.
    public var callBytes: Int { admitted.bytes }

    /// The call's arguments in the message's own memory. Valid while this reply is held.
    public var arguments: DBusReader { call.message.reader }

    /// The arguments of the call as values, decoded anew at each access.
    ///
    /// - Throws: ``DBusError``, ``DBusError/Code/malformed``.
    public func readArguments() throws(DBusError) -> [DBusValue] { try call.message.arguments() }

    /// Sends the output arguments, or a refusal. Callable from any thread.
    public func send(_ result: Result<[DBusValue], MethodFailure>) {
        // Before the response is sent: the caller may call again as soon as it has the response.
        admitted.end()
        path.send(to: call.message) { call throws(DBusError) in try result.response(to: call) }
    }

    /// Sends output arguments that are already encoded; otherwise as ``send(_:)``.
    public func send(_ answer: PreparedAnswer) {
        admitted.end()
        path.send(to: call.message) { call throws(DBusError) in try call.reply(copying: answer.message) }
    }

    var incomingCall: IncomingCall {
        get throws(DBusError) {
            let (sender, member) = (call.message.sender ?? "", call.message.member ?? "")
            return IncomingCall(sender: sender, member: member, arguments: try call.message.arguments())
        }
    }

    func withCall(_ body: (IncomingCall) -> Void) {
        do throws(DBusError) { body(try incomingCall) } catch { send(.failure(.of(error))) }
    }

    func sendResult(of handler: () async throws -> [DBusValue]) async {
        do { send(.success(try await handler())) } catch { send(.failure(.of(error))) }
    }
}

/// Output arguments for many callers or repeated calls. They are encoded once, and copied for each response.
public final class PreparedAnswer: Sendable {
    fileprivate let message: DBusMessage

    /// - Throws: ``DBusError``, as for a response with these values.
    public init(_ values: [DBusValue]) throws(DBusError) { message = try .answerToNobody(values) }
}

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
    /// The method's name.
    public let member: String
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
        // Beyond the total limits a sender has its share of them, and always room for one small call.
        let count = senders.parties + (own.calls == 0 ? 1 : 0)
        let share = CallAmount(calls: max(1, limits.calls / count), bytes: max(Self.smallCall, limits.bytes / count))
        guard
            senders.total.hasRoom(for: bytes, within: CallAmount(calls: limits.calls, bytes: limits.bytes))
                || own.hasRoom(for: bytes, within: share)
        else { throw .standard("LimitsExceeded", "too many calls are in flight; try again later") }
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
        guard let ended = ended.withLock({ $0.take() }) else { return }
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
    func method(_ interface: String?, _ member: String) throws(MethodFailure) -> DBusInterface.Method {
        let named = callable.filter { interface == nil || $0.name == interface }
        guard !named.isEmpty else {
            throw .standard("UnknownInterface", "the object has no interface \(interface ?? "at all")")
        }
        for candidate in named {
            if let method = candidate.methods.first(where: { $0.name == member }) { return method }
        }
        throw .standard("UnknownMethod", "\(interface ?? "the object") has no method \(member)")
    }

    func admit(_ call: borrowing MessageHeader, _ method: DBusInterface.Method) throws(MethodFailure) -> AdmittedCall {
        try method.check(call.signature)
        let (sender, bytes, size) = (call.sender ?? "", call.bodyBytes, call.bytes)
        let limit = method.maximumBodyBytes ?? budget.withLock { $0.limits.bodyBytes }
        guard bytes <= limit else {
            throw .standard("LimitsExceeded", "\(method.name) takes at most \(limit) bytes, not \(bytes)")
        }
        try budget.withLock { budget throws(MethodFailure) in try budget.take(size, of: sender) }
        guard let decide else { return AdmittedCall(self, sender, size, nil) }
        switch decide(CallHeader(sender: sender, member: method.name, bytes: size)) {
        case .take(let ended): return AdmittedCall(self, sender, size, ended)
        case .refuse(let failure):
            budget.withLock { $0.giveBack(size, of: sender) }
            throw failure
        }
    }
}
