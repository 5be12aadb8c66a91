import CDBus
import Glibc
import Synchronization

/// One connection of libdbus. Its end of life closes it.
///
/// The descriptor is polled by us and never by libdbus, which would hold the way to the socket while it sleeps
/// (architecture, D3). Every call that may touch the socket runs under ``access`` and returns at once: libdbus frees the
/// watches of a lost connection inside whichever call finds it lost, and the I/O thread must not have one in its hands then.
final class BusSocket: Sendable {
    // The pointer itself is constant, and libdbus locks its connections (dbus_threads_init_default).
    nonisolated(unsafe) private let connection: OpaquePointer
    private let watches = WatchList()
    private let access = Locked(())
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
        // Otherwise libdbus stops reading at 63 MiB of messages that somebody still holds (architecture, D4).
        dbus_connection_set_max_received_size(connection, .max)
        guard dbus_bus_register(connection, &error) != 0 else {
            let failure = BusSocket.failure(error, attempted)
            BusSocket.discard(connection)
            throw failure
        }
        guard watches.attach(to: connection) else {
            BusSocket.discard(connection)
            throw DBusMessage.outOfMemory(attempted)
        }
        self.connection = connection
        uniqueName = text(dbus_bus_get_unique_name(connection)) ?? ""
    }

    deinit { BusSocket.discard(connection) }

    private static func discard(_ connection: OpaquePointer) {
        dbus_connection_close(connection)
        dbus_connection_unref(connection)
    }

    /// How the connection stands: after a call of libdbus, for who made it.
    struct Standing {
        /// False once the bus is gone; libdbus has taken its watches back by then.
        let isConnected: Bool
        /// Whether libdbus holds messages that the socket did not take.
        let hasUnsentMessages: Bool
        /// What to poll; negative where there is nothing to.
        let descriptor: CInt
    }

    var standing: Standing { access.withLock { _ in watches.standing } }

    /// Sends, from any thread: libdbus writes at once what the socket takes. Returns the message's serial. A bus that is gone
    /// shows in the standing.
    func send(
        _ message: borrowing DBusMessage,
        attempted: @autoclosure () -> String
    ) throws(DBusError) -> (serial: UInt32, Standing) {
        var serial: dbus_uint32_t = 0
        let (isQueued, standing) = access.withLock { _ in
            (dbus_connection_send(connection, message.pointer, &serial) != 0, watches.standing)
        }
        guard isQueued else { throw DBusMessage.outOfMemory(attempted()) }
        return (serial, standing)
    }

    /// Reads and writes what the descriptor is ready for, without waiting. I/O thread only.
    func transfer(_ events: CShort) {
        access.withLock { _ in watches.handle(events) }
    }

    /// The next message that was read. I/O thread only.
    func nextMessage() -> OpaquePointer? {
        access.withLock { _ in
            // Unchecked: a message is handed over, and the lock's result must be free of the lock's state, which is nothing.
            nonisolated(unsafe) let message = dbus_connection_pop_message(connection)
            return message
        }
    }

    private static func failure(_ error: CDBus.DBusError, _ attempted: String) -> DBusError {
        DBusError(
            .noBus,
            name: text(error.name),
            message: text(error.message) ?? "unknown error",
            attempted: attempted,
            remedy: "check that the bus runs and that this user may connect to it"
        )
    }
}

/// The watches of one connection. libdbus adds, removes and toggles them inside our calls, that is with the socket's
/// `access` held; so does everything here run.
private final class WatchList: @unchecked Sendable {
    // Unchecked: touched with the socket's `access` held only.
    private var watches: [OpaquePointer] = []
    /// What they watch; negative where there is nothing to.
    private var descriptor: CInt = -1

    var standing: BusSocket.Standing {
        BusSocket.Standing(
            isConnected: !watches.isEmpty,
            hasUnsentMessages: watches.contains { events(of: $0) & CShort(POLLOUT) != 0 && isEnabled($0) },
            descriptor: descriptor
        )
    }

    func handle(_ ready: CShort) {
        let failures = CShort(POLLHUP | POLLERR | POLLNVAL)
        for watch in watches {
            // Handling one watch may have freed the other.
            guard watches.contains(watch), isEnabled(watch) else { continue }
            let events = ready & (events(of: watch) | failures)
            if events != 0 { dbus_watch_handle(watch, flags(events)) }
        }
    }

    private func isEnabled(_ watch: OpaquePointer) -> Bool { dbus_watch_get_enabled(watch) != 0 }

    private func events(of watch: OpaquePointer) -> CShort {
        let flags = dbus_watch_get_flags(watch)
        return (flags & DBUS_WATCH_READABLE.rawValue != 0 ? CShort(POLLIN) : 0)
            | (flags & DBUS_WATCH_WRITABLE.rawValue != 0 ? CShort(POLLOUT) : 0)
    }

    private func flags(_ events: CShort) -> UInt32 {
        (events & CShort(POLLIN) != 0 ? DBUS_WATCH_READABLE.rawValue : 0)
            | (events & CShort(POLLOUT) != 0 ? DBUS_WATCH_WRITABLE.rawValue : 0)
            | (events & CShort(POLLHUP) != 0 ? DBUS_WATCH_HANGUP.rawValue : 0)
            | (events & CShort(POLLERR | POLLNVAL) != 0 ? DBUS_WATCH_ERROR.rawValue : 0)
    }

    /// The connection keeps the list alive until it is itself freed.
    func attach(to connection: OpaquePointer) -> Bool {
        let added = dbus_connection_set_watch_functions(
            connection,
            { watch, data in
                guard let watch, let data else { return 0 }
                WatchList.at(data).add(watch)
                return 1
            },
            { watch, data in
                guard let watch, let data else { return }
                WatchList.at(data).remove(watch)
            },
            // Whether a watch is enabled is asked of the watch itself.
            { _, _ in },
            Unmanaged.passRetained(self).toOpaque(),
            { data in
                guard let data else { return }
                Unmanaged<WatchList>.fromOpaque(data).release()
            }
        )
        return added != 0
    }

    private func add(_ watch: OpaquePointer) {
        watches.append(watch)
        guard descriptor < 0 else { return }
        descriptor = dbus_watch_get_unix_fd(watch)
        ForkedChild.add(descriptor)
    }

    /// libdbus takes the watches back before it closes what they watch.
    private func remove(_ watch: OpaquePointer) {
        watches.removeAll { $0 == watch }
        guard watches.isEmpty, descriptor >= 0 else { return }
        ForkedChild.remove(descriptor)
        descriptor = -1
    }

    private static func at(_ data: UnsafeMutableRawPointer) -> WatchList {
        Unmanaged<WatchList>.fromOpaque(data).takeUnretainedValue()
    }
}
