import Synchronization

/// Serves the method calls of other processes on a connection. The module `DBusService` has the only implementation: a
/// program without objects does not link it.
package protocol CallServer: AnyObject, Sendable {
    /// Decides on a call before its body is read, on the reading thread. Returns what runs it; `nil` if nothing has to.
    func admit(_ call: borrowing MessageHeader, _ path: ReturnPath) -> CallTicket?
    /// A response to a call is on its way. Called on the thread that responds.
    func answered(_ call: borrowing DBusMessage, by response: borrowing DBusMessage)
    /// Works, each time before the reading thread sleeps. Returns the time of the next work; `nil` if none is left.
    func carryOut() -> ContinuousClock.Instant?
}

/// Runs an admitted call once its body has been read. Called on the reading thread. The socket's reader keeps it until
/// then, so it does not hold the path, which holds the socket.
package typealias CallTicket = @Sendable (borrowing DBusMessage, ReturnPath) -> Void

/// The socket on which a call arrived. Only this socket carries the response: on the next one, another peer may have
/// the caller's name.
package struct ReturnPath: Sendable {
    // Not the `DBusConnection`: a held reply would delay its deallocation, which closes the connection.
    let core: ConnectionCore
    let socket: BusSocket

    /// Sends a response without waiting, because responses come from tasks.
    package func send(_ response: borrowing DBusMessage, to call: borrowing DBusMessage) throws(DBusError) {
        if core.connectedSocket === socket { try core.queue(response, on: socket) }
        core.callServer?.answered(call, by: response)
    }
}

extension DBusConnection {
    /// Returns the server of this connection's calls. The first use makes it.
    package func callServer<Server: CallServer>(_ make: () -> Server) -> Server {
        core.state.withLock { state in
            if let server = state.callServer as? Server { return server }
            let server = make()
            state.callServer = server
            return server
        }
    }

    /// Starts to read, so that calls arrive.
    package func receiveCalls() throws(DBusError) { try core.startReading() }
}

extension ConnectionCore {
    var callServer: (any CallServer)? { state.withLock { $0.callServer } }

    func admit(_ call: borrowing MessageHeader, from socket: BusSocket) -> CallTicket? {
        let path = ReturnPath(core: self, socket: socket)
        if let server = callServer { return server.admit(call, path) }
        // If a header is too long, the sender field may not have arrived.
        guard call.expectsReply, call.sender != nil else { return nil }
        do throws(DBusError) {
            let message = try DBusMessage.call(call)
            // A service asks by Ping whether its callers read.
            let isPing = call.interface == "org.freedesktop.DBus.Peer" && call.member == "Ping"
            let (name, text) = ("org.freedesktop.DBus.Error.UnknownObject", "this program serves no objects")
            let response =
                if isPing { try message.reply([]) } else { try message.errorReply(name: name, message: text) }
            try path.send(response, to: message)
        } catch {
            // The bus or the memory is gone. The caller's wait ends with its timeout.
        }
        return nil
    }
}
