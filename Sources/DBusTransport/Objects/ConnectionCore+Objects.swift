import Synchronization

extension ConnectionCore {
    /// Answers a method call: in a task of its own, because the I/O thread must go on reading.
    func dispatchCall(_ message: borrowing DBusMessage, from socket: BusSocket) {
        let objects = state.withLock { $0.objects }
        let held = HeldMessage(message.sharedReference())
        Task {
            do throws(DBusError) {
                let reply = await Self.reply(to: held, objects: objects)
                guard held.message.expectsReply else { return }
                switch reply {
                case .success(let values):
                    try answer(try held.message.reply(values), on: socket)
                case .failure(let failure):
                    let error = try held.message.errorReply(name: failure.name, message: failure.message)
                    try answer(error, on: socket)
                }
            } catch {
                refuse(held, on: socket, because: error)
            }
        }
    }

    private static func reply(to held: HeldMessage, objects: ObjectTable) async -> Result<[DBusValue], MethodFailure> {
        do {
            let (path, interface) = (held.message.path ?? "/", held.message.interface)
            let call = IncomingCall(
                sender: held.message.sender ?? "",
                member: held.message.member ?? "",
                arguments: try held.message.arguments()
            )
            if let answer = try await StandardInterfaces.answer(interface, call, path: path, objects: objects) {
                return .success(answer)
            }
            let method = try objects.method(path: path, interface: interface, member: call.member)
            let expected = method.inputs.map(\.signature).joined()
            guard held.message.signature == expected else {
                let message = "\(call.member) takes “\(expected)”, not “\(held.message.signature)”"
                throw MethodFailure.standard("InvalidArgs", message)
            }
            return .success(try await method.handler(call))
        } catch let failure as MethodFailure {
            return .failure(failure)
        } catch {
            return .failure(.standard("Failed", String(describing: error)))
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
