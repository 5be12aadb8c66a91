import CDBus

/// One connection of libdbus. Its end of life closes it.
///
/// The descriptor is polled by us and never by libdbus, which would hold the way to the socket while it sleeps
/// (architecture, D3). `DBusWatch` is not used: a sender that finds the bus gone frees the watches, and the I/O thread
/// may have one in its hands at that moment.
final class BusSocket: Sendable {
    // The pointer itself is constant, and libdbus locks its connections (dbus_threads_init_default).
    nonisolated(unsafe) private let connection: OpaquePointer
    /// What to poll for readability, and for writability while ``hasUnsentMessages``.
    let descriptor: CInt
    /// The name that the bus gave this connection.
    let uniqueName: String

    /// Connects to the bus and introduces this process to it (Hello). Waits for the bus, at most libdbus's 25 seconds.
    init(address: String) throws(DBusError) {
        let attempted = "connect to the bus at \(address)"
        guard !address.containsNUL else {
            throw DBusError(.invalidArgument, message: "the address holds U+0000", attempted: attempted)
        }
        guard dbus_threads_init_default() != 0 else { throw DBusMessage.outOfMemory(attempted) }
        var error = CDBus.DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        guard let connection = dbus_connection_open_private(address, &error) else {
            throw BusSocket.failure(error, attempted)
        }
        // Otherwise a lost bus ends the process.
        dbus_connection_set_exit_on_disconnect(connection, 0)
        var descriptor: CInt = -1
        guard dbus_bus_register(connection, &error) != 0,
            dbus_connection_get_unix_fd(connection, &descriptor) != 0
        else {
            let failure = BusSocket.failure(error, attempted)
            dbus_connection_close(connection)
            dbus_connection_unref(connection)
            throw failure
        }
        self.connection = connection
        self.descriptor = descriptor
        uniqueName = text(dbus_bus_get_unique_name(connection)) ?? ""
    }

    deinit {
        dbus_connection_close(connection)
        dbus_connection_unref(connection)
    }

    var isConnected: Bool { dbus_connection_get_is_connected(connection) != 0 }
    var hasUnsentMessages: Bool { dbus_connection_has_messages_to_send(connection) != 0 }

    /// Sends, from any thread: libdbus writes at once what the socket takes. Returns the message's serial. A bus that is gone
    /// shows in ``isConnected`` afterwards, and only there.
    func send(
        _ message: borrowing DBusMessage,
        attempted: @autoclosure () -> String
    ) throws(DBusError) -> UInt32 {
        var serial: dbus_uint32_t = 0
        guard dbus_connection_send(connection, message.pointer, &serial) != 0 else {
            throw DBusMessage.outOfMemory(attempted())
        }
        return serial
    }

    /// Reads and writes what the descriptor is ready for, without waiting. I/O thread only.
    func transfer() { dbus_connection_read_write(connection, 0) }

    /// The next message that was read. I/O thread only.
    func nextMessage() -> OpaquePointer? { dbus_connection_pop_message(connection) }

    private static func failure(_ error: CDBus.DBusError, _ attempted: String) -> DBusError {
        DBusError(
            .noBus,
            name: text(error.name),
            message: text(error.message) ?? "the connection has no descriptor",
            attempted: attempted,
            remedy: "check that the bus runs and that this user may connect to it"
        )
    }
}
