import Basics
import CDBus
import Glibc

/// A message bus.
public enum Bus: Sendable, Hashable {
    /// The bus of the login session: `DBUS_SESSION_BUS_ADDRESS`, or else `$XDG_RUNTIME_DIR/bus`.
    case session
    /// The bus of the machine, shared by all users: `DBUS_SYSTEM_BUS_ADDRESS`, or else its well-known socket.
    case system
    /// The bus at a D-Bus address, for instance `unix:path=/run/my/bus`.
    case address(String)

    /// The environment variable that ``fromEnvironment`` reads.
    public static let environmentVariable = "NOTIFY_CENTER_BUS"

    /// The bus in `NOTIFY_CENTER_BUS` (`session`, `system` or an address); the session bus if it is unset or empty, or
    /// the process has more rights than its user (set-user-ID, set-group-ID, file capabilities).
    public static var fromEnvironment: Bus { Bus(name: ProcessEnvironment.value(environmentVariable) ?? "session") }

    /// Creates the bus with this name: `session`, `system`, or else an address.
    public init(name: String) {
        self =
            switch name {
            case "session": .session
            case "system": .system
            default: .address(name)
            }
    }

    /// Returns the address to connect to.
    ///
    /// - Throws: ``DBusError/Code/noBus`` if the environment names no bus; ``DBusError/Code/invalidArgument`` for a
    ///   text that is not an address.
    public func resolvedAddress() throws(DBusError) -> String {
        switch self {
        case .address(let address):
            guard address.contains(":") else {
                let remedy = "write session, system, or an address such as unix:path=/run/my/bus"
                let message = "“\(address)” names no bus"
                throw DBusError(.invalidArgument, message: message, attempted: "find the bus", remedy: remedy)
            }
            return address
        case .system:
            return ProcessEnvironment.value("DBUS_SYSTEM_BUS_ADDRESS") ?? "unix:path=/var/run/dbus/system_bus_socket"
        case .session:
            if let address = ProcessEnvironment.value("DBUS_SESSION_BUS_ADDRESS") { return address }
            guard !ProcessEnvironment.isIgnored else {
                throw noSessionBus(
                    "this process has more rights than its user, so the environment that names the bus is ignored",
                    "name the bus in the program (Bus.system or Bus.address), or start it without these rights"
                )
            }
            let remedy = "run the program under dbus-run-session, or name another bus in \(Bus.environmentVariable)"
            guard let runtime = ProcessEnvironment.value("XDG_RUNTIME_DIR") else {
                let message = "no session bus: DBUS_SESSION_BUS_ADDRESS and XDG_RUNTIME_DIR are unset"
                throw noSessionBus(message, remedy)
            }
            guard access("\(runtime)/bus", F_OK) == 0 else {
                let message = "no session bus: DBUS_SESSION_BUS_ADDRESS is unset, and \(runtime)/bus does not exist"
                throw noSessionBus(message, remedy)
            }
            guard let path = dbus_address_escape_value("\(runtime)/bus") else {
                throw DBusMessage.outOfMemory("find the session bus")
            }
            defer { dbus_free(path) }
            return "unix:path=\(String(cString: path))"
        }
    }

    private func noSessionBus(_ message: String, _ remedy: String) -> DBusError {
        DBusError(.noBus, message: message, attempted: "find the session bus", remedy: remedy)
    }
}

extension Bus: CustomStringConvertible {
    /// The text from which ``init(name:)`` creates this bus.
    public var description: String {
        switch self {
        case .session: "session"
        case .system: "system"
        case .address(let address): address
        }
    }
}
