import DBus

extension DBusMessage {
    /// A post with arguments of any form, as every process on the bus may send it.
    static func post(
        _ arguments: [DBusValue],
        on interface: String = "org.notifycenter.Distributed1.n"
    ) throws(DBusError) -> DBusMessage {
        try .signal(path: "/org/notifycenter", interface: interface, member: "Posted", arguments: arguments)
    }
}
