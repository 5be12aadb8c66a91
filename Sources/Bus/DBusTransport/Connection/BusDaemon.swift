/// Calls to the bus itself.
enum BusDaemon {
    static let name = "org.freedesktop.DBus"

    /// A call as a value, because a message is move-only.
    struct Call: Sendable {
        let member: String
        let arguments: [DBusValue]

        func message() throws(DBusError) -> DBusMessage {
            try .methodCall(
                destination: name,
                path: "/org/freedesktop/DBus",
                interface: name,
                member: member,
                arguments: arguments
            )
        }
    }

    static func call(_ member: String, _ arguments: [DBusValue]) -> Call { Call(member: member, arguments: arguments) }
}
