import Synchronization

extension ConnectionCore {
    /// Admits or refuses a method call before its body is read. Sends a refusal itself, so that a refused call costs
    /// neither a task nor the reading of its body.
    ///
    /// - Returns: the ticket for ``run(_:_:_:)``; `nil` if the call needs no further processing.
    func admit(_ call: borrowing MessageHeader, from socket: BusSocket) -> CallTicket? {
        let (objects, scheduler) = state.withLock { ($0.objects, $0.scheduler) }
        do throws(MethodFailure) {
            switch scheduler?.admit(call) ?? .take {
            case .drop: return nil
            case .refuse(let failure): throw failure
            case .take: break
            }
            guard !call.isTooLong else {
                throw .standard(
                    "LimitsExceeded",
                    "a message header may have \(MessagePrefix.mostFieldBytes) bytes at most"
                )
            }
            // Descriptors stay open while their message exists: calls with descriptors would exhaust this process's limit.
            guard !call.hasDescriptors else {
                throw .standard("InvalidArgs", "no method here takes file descriptors")
            }
            if let values = try StandardInterfaces.answer(call, objects) {
                answer(call, .success(values), on: socket)
                return nil
            }
            let object = try objects.object(of: call)
            let (interface, method) = try object.method(call.interface, call.member ?? "")
            return CallTicket(method, try object.admit(call, interface, method))
        } catch {
            answer(call, .failure(error), on: socket)
            return nil
        }
    }

    /// Runs the method of a call in a new task, because the reading thread must go on reading. A method that is handled
    /// in order, or has an immediate response, runs right here.
    func run(_ message: borrowing DBusMessage, _ ticket: CallTicket, _ socket: BusSocket) {
        let reply = CallReply(HeldMessage(message.sharedReference()), ticket.admitted, self, socket)
        switch ticket.method.handler {
        case .inOrder(let handler): reply.withCall { handler($0, reply) }
        case .reading(let handler): handler(reply.call.message, reply)
        case .task(nil, let handler):
            // The arguments are decoded in the task, to keep the reading thread free.
            Task { reply.send(await Self.result { try await handler(try Self.call(reply.call.message)) }) }
        case .task(.some(let atOnce), let handler):
            reply.withCall { call in
                if let values = atOnce(call) { return reply.send(.success(values)) }
                Task { reply.send(await Self.result { try await handler(call) }) }
            }
        }
    }

    private func answer(
        _ call: borrowing MessageHeader,
        _ result: Result<[DBusValue], MethodFailure>,
        on socket: BusSocket
    ) {
        // If a header is too long, the sender field may not have arrived.
        guard call.expectsReply, call.sender != nil, let message = try? DBusMessage.call(call) else { return }
        answer(HeldMessage(message), result, on: socket)
    }

    fileprivate static func call(_ message: borrowing DBusMessage) throws(DBusError) -> IncomingCall {
        IncomingCall(
            sender: message.sender ?? "",
            member: message.member ?? "",
            arguments: try message.arguments()
        )
    }

    private static func result(_ handler: () async throws -> [DBusValue]) async -> Result<[DBusValue], MethodFailure> {
        do {
            return .success(try await handler())
        } catch {
            return .failure(failure(error))
        }
    }

    fileprivate static func failure(_ error: any Error) -> MethodFailure {
        error as? MethodFailure ?? .standard("Failed", String(describing: error))
    }

    fileprivate func answer(_ held: HeldMessage, _ answer: PreparedAnswer, on socket: BusSocket) {
        guard held.message.expectsReply else { return }
        do throws(DBusError) {
            try send(try answer.reply(to: held.message), to: held, on: socket)
        } catch {
            refuse(held, on: socket, because: error)
        }
    }

    fileprivate func answer(_ held: HeldMessage, _ result: Result<[DBusValue], MethodFailure>, on socket: BusSocket) {
        guard held.message.expectsReply else { return }
        do throws(DBusError) {
            switch result {
            case .success(let values): try send(try held.message.reply(values), to: held, on: socket)
            case .failure(let failure):
                let reply = try held.message.errorReply(
                    name: failure.name,
                    message: failure.message,
                    details: failure.details
                )
                try send(reply, to: held, on: socket)
            }
        } catch {
            refuse(held, on: socket, because: error)
        }
    }

    private func send(_ reply: borrowing DBusMessage, to call: HeldMessage, on socket: BusSocket) throws(DBusError) {
        try answer(reply, on: socket)
        guard let scheduler = state.withLock({ $0.scheduler }), let caller = call.message.sender else { return }
        scheduler.answered(caller, bytes: reply.size)
    }

    /// The response could not be sent, for instance because it is too large. The caller gets this error instead of a
    /// timeout. If that fails too, the bus is gone, and the caller's wait has ended with it.
    private func refuse(_ held: HeldMessage, on socket: BusSocket, because error: DBusError) {
        guard error.code != .disconnected, error.code != .closed,
            let reply = try? held.message.errorReply(
                name: "org.freedesktop.DBus.Error.Failed",
                message: error.description
            )
        else { return }
        try? send(reply, to: held, on: socket)
    }
}

/// An admitted call whose body has not been read yet.
final class CallTicket: Sendable {
    let method: DBusInterface.Method
    let admitted: AdmittedCall

    init(_ method: DBusInterface.Method, _ admitted: AdmittedCall) { (self.method, self.admitted) = (method, admitted) }
}

/// The reply to a call. Send it once; the bus ignores a second one. No reply is sent if the caller is gone or expects
/// none.
public struct CallReply: Sendable {
    fileprivate let call: HeldMessage
    private let admitted: AdmittedCall
    // Not the connection itself, whose deallocation closes it.
    private let core: ConnectionCore
    private let socket: BusSocket

    fileprivate init(_ call: HeldMessage, _ admitted: AdmittedCall, _ core: ConnectionCore, _ socket: BusSocket) {
        self.call = call
        self.admitted = admitted
        self.core = core
        self.socket = socket
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
        // Before the response is sent: a caller that has it may call again.
        admitted.end()
        core.answer(call, result, on: socket)
    }

    /// Sends output arguments that are already encoded; otherwise as ``send(_:)``.
    public func send(_ answer: PreparedAnswer) {
        admitted.end()
        core.answer(call, answer, on: socket)
    }

    fileprivate func withCall(_ body: (IncomingCall) -> Void) {
        do throws(DBusError) {
            body(try ConnectionCore.call(call.message))
        } catch {
            send(.failure(ConnectionCore.failure(error)))
        }
    }
}

/// Output arguments for many callers or repeated calls. They are encoded once, and copied for each response.
public final class PreparedAnswer: Sendable {
    private let message: DBusMessage

    /// - Throws: ``DBusError``, as for a response with these values.
    public init(_ values: [DBusValue]) throws(DBusError) {
        message = try .answerToNobody(values)
    }

    fileprivate func reply(to call: borrowing DBusMessage) throws(DBusError) -> DBusMessage {
        try call.reply(copying: message)
    }
}
