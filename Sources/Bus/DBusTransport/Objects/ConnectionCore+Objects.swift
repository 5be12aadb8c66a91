import Synchronization

extension ConnectionCore {
    /// Answers a method call: in a task of its own, because the reading thread must go on reading, or right here where the method
    /// wants its calls in order or has the answer.
    func dispatchCall(_ message: borrowing DBusMessage, from socket: BusSocket) {
        let objects = state.withLock { $0.objects }
        guard !message.hasDescriptors else { return refuseDescriptors(message, on: socket) }
        let reply = CallReply(HeldMessage(message.sharedReference()), self, socket)
        if Self.answerHere(message, reply, objects) { return }
        Task { reply.send(await Self.reply(to: reply.call, objects: objects)) }
    }

    /// Descriptors stay open as long as their message: a call that brings some would use up this process's.
    private func refuseDescriptors(_ message: borrowing DBusMessage, on socket: BusSocket) {
        guard message.expectsReply else { return }
        let text = "nothing here takes file descriptors"
        guard let reply = try? message.errorReply(name: "org.freedesktop.DBus.Error.InvalidArgs", message: text) else {
            return
        }
        try? answer(reply, on: socket)
    }

    /// Whether the method wants its calls in order, or has the answer without waiting.
    private static func answerHere(
        _ message: borrowing DBusMessage,
        _ reply: CallReply,
        _ objects: ObjectTable
    ) -> Bool {
        guard let member = message.member, let path = message.path, !StandardInterfaces.have(message.interface),
            let method = try? objects.method(path: path, interface: message.interface, member: member)
        else { return false }
        switch method.handler {
        case .task(nil, _): return false
        case .task(.some(let atOnce), _):
            // What is wrong with the call, its task tells.
            guard (try? method.check(message.signature)) != nil, let call = try? call(message),
                let answer = atOnce(call)
            else { return false }
            reply.send(.success(answer))
        case .inOrder(let handler):
            do {
                try method.check(message.signature)
                handler(try call(message), reply)
            } catch {
                reply.send(.failure(failure(error)))
            }
        }
        return true
    }

    private static func call(_ message: borrowing DBusMessage) throws(DBusError) -> IncomingCall {
        IncomingCall(
            sender: message.sender ?? "",
            member: message.member ?? "",
            arguments: try message.arguments()
        )
    }

    private static func failure(_ error: any Error) -> MethodFailure {
        error as? MethodFailure ?? .standard("Failed", String(describing: error))
    }

    private static func reply(to held: HeldMessage, objects: ObjectTable) async -> Result<[DBusValue], MethodFailure> {
        do {
            let (path, interface) = (held.message.path ?? "/", held.message.interface)
            // The method and the signature come before the arguments: anybody may call, with whatever body.
            if StandardInterfaces.have(interface) {
                guard ["", "s", "ss", "ssv"].contains(held.message.signature) else {
                    throw MethodFailure.standard(
                        "InvalidArgs",
                        "\(interface ?? "") takes no “\(held.message.signature)”"
                    )
                }
                let call = try call(held.message)
                guard let answer = try await StandardInterfaces.answer(interface, call, path: path, objects: objects)
                else { throw MethodFailure.standard("UnknownMethod", "there is no method \(call.member)") }
                return .success(answer)
            }
            let method = try objects.method(path: path, interface: interface, member: held.message.member ?? "")
            try method.check(held.message.signature)
            let call = try call(held.message)
            guard case .task(_, let handler) = method.handler else {
                // Taken by `answerHere`, unless the object has come to be meanwhile.
                throw MethodFailure.standard("UnknownObject", "there is no object \(path)")
            }
            return .success(try await handler(call))
        } catch {
            return .failure(failure(error))
        }
    }

    fileprivate func answer(_ held: HeldMessage, _ result: Result<[DBusValue], MethodFailure>, on socket: BusSocket) {
        guard held.message.expectsReply else { return }
        do throws(DBusError) {
            switch result {
            case .success(let values): try answer(try held.message.reply(values), on: socket)
            case .failure(let failure):
                try answer(try held.message.errorReply(name: failure.name, message: failure.message), on: socket)
            }
        } catch {
            refuse(held, on: socket, because: error)
        }
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
        try? answer(reply, on: socket)
    }
}

/// The answer that a call waits for. To be sent once; the bus disregards a second one. A caller that is gone, or wants none, gets none.
public struct CallReply: Sendable {
    fileprivate let call: HeldMessage
    // Not the connection itself, whose end of life closes it.
    private let core: ConnectionCore
    private let socket: BusSocket

    fileprivate init(_ call: HeldMessage, _ core: ConnectionCore, _ socket: BusSocket) {
        self.call = call
        self.core = core
        self.socket = socket
    }

    /// Sends the output arguments, or a refusal; from any thread.
    public func send(_ result: Result<[DBusValue], MethodFailure>) { core.answer(call, result, on: socket) }
}
