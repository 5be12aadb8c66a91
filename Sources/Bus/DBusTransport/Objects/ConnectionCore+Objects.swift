import Synchronization

extension ConnectionCore {
    /// Takes or refuses a method call of somebody else, before its body is read. A refusal is sent from here, so that a caller who is refused costs
    /// neither a task nor the reading of a body.
    ///
    /// - Returns: what ``run(_:_:_:)`` needs; `nil` where there is nothing more to do with the call.
    func admit(_ call: borrowing MessageHeader, from socket: BusSocket) -> CallTicket? {
        let (objects, scheduler) = state.withLock { ($0.objects, $0.scheduler) }
        do throws(MethodFailure) {
            switch scheduler?.admit(call) ?? .take {
            case .drop: return nil
            case .refuse(let failure): throw failure
            case .take: break
            }
            guard !call.isTooLong else {
                throw .standard("LimitsExceeded", "a header may have \(MessagePrefix.mostFieldBytes) bytes")
            }
            // Descriptors stay open as long as their message: a call that brings some would use up this process's.
            guard !call.hasDescriptors else {
                throw .standard("InvalidArgs", "nothing here takes file descriptors")
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

    /// Carries out a call. The method runs in a task of its own, because the reading thread must go on reading, or right here where it wants its calls
    /// in order or has the answer.
    func run(_ message: borrowing DBusMessage, _ ticket: CallTicket, _ socket: BusSocket) {
        let reply = CallReply(HeldMessage(message.sharedReference()), ticket.admitted, self, socket)
        switch ticket.method.handler {
        case .inOrder(let handler): reply.withCall { handler($0, reply) }
        case .reading(let handler): handler(reply.call.message, reply)
        case .task(nil, let handler):
            // The arguments are read in the task: the reading thread has better to do.
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
        // What has arrived of a header that is too long may not tell the sender.
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

    /// The answer itself could not be sent, for instance because it is too large: the caller is told so instead of left
    /// to its timeout. Where that fails too, the bus is gone, and with it the caller's wait.
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

/// A call that was taken, and whose body is yet to be read.
final class CallTicket: Sendable {
    let method: DBusInterface.Method
    let admitted: AdmittedCall

    init(_ method: DBusInterface.Method, _ admitted: AdmittedCall) { (self.method, self.admitted) = (method, admitted) }
}

/// The answer that a call waits for. To be sent once; the bus disregards a second one. A caller that is gone, or wants none, gets none.
public struct CallReply: Sendable {
    fileprivate let call: HeldMessage
    private let admitted: AdmittedCall
    // Not the connection itself, whose end of life closes it.
    private let core: ConnectionCore
    private let socket: BusSocket

    fileprivate init(_ call: HeldMessage, _ admitted: AdmittedCall, _ core: ConnectionCore, _ socket: BusSocket) {
        self.call = call
        self.admitted = admitted
        self.core = core
        self.socket = socket
    }

    /// About how many bytes the message of the call takes.
    package var callBytes: Int { admitted.bytes }

    /// The arguments of the call, where they lie. Valid while this is held.
    package var arguments: DBusReader { call.message.reader }

    /// The arguments of the call as values, read anew each time.
    ///
    /// - Throws: ``DBusError``, ``DBusError/Code/malformed``.
    package func readArguments() throws(DBusError) -> [DBusValue] { try call.message.arguments() }

    /// Sends the output arguments, or a refusal; from any thread.
    public func send(_ result: Result<[DBusValue], MethodFailure>) {
        // Before the answer is sent: a caller that has it may call again.
        admitted.end()
        core.answer(call, result, on: socket)
    }

    /// As ``send(_:)``, with output arguments that are written already.
    package func send(_ answer: PreparedAnswer) {
        admitted.end()
        core.answer(call, answer, on: socket)
    }

    /// Reads the arguments, and refuses a call whose arguments cannot be read.
    fileprivate func withCall(_ body: (IncomingCall) -> Void) {
        do throws(DBusError) {
            body(try ConnectionCore.call(call.message))
        } catch {
            send(.failure(ConnectionCore.failure(error)))
        }
    }
}

/// Output arguments that go to many callers, or to one again and again: they are written once, and copied for each.
package final class PreparedAnswer: Sendable {
    private let message: DBusMessage

    /// - Throws: ``DBusError``, as for an answer with these values.
    package init(_ values: [DBusValue]) throws(DBusError) {
        message = try .answerToNobody(values)
    }

    fileprivate func reply(to call: borrowing DBusMessage) throws(DBusError) -> DBusMessage {
        try call.reply(copying: message)
    }
}
