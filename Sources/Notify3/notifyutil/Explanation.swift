import DBusTransport
import NotifyCenter
import NotifydProtocol
import notify

/// Why something failed and what helps, for standard error; standard output has Darwin's line.
enum Explanation {
    /// A sentence.
    static func of(_ failure: Failure) -> String {
        if let cause = failure.cause { return "\(cause)" }
        let attempted = "could not \(failure.attempted)"
        switch CInt(truncatingIfNeeded: failure.status) {
        case NOTIFY_STATUS_NOT_AUTHORIZED:
            return "\(attempted): the name is another user's, or reserved; do it as its owner or as root, or see "
                + "/etc/notify.conf"
        case NOTIFY_STATUS_SERVER_NOT_FOUND: return "\(attempted): \(unreachable())"
        case NOTIFY_STATUS_INVALID_SIGNAL: return "\(attempted): there is no such signal; kill -l lists them"
        case NOTIFY_STATUS_INVALID_NAME: return "\(attempted): that is no name"
        default:
            return "\(attempted): the bus refused, or descriptors or memory are wanting; see the limits of both "
                + "(ulimit -a, the bus's configuration)"
        }
    }

    /// notify(3) says only that something was not there: ask anew.
    private static func unreachable() -> String {
        do throws(DBusError) {
            let connection = try DBusConnection.open(.fromEnvironment)
            let ping = try DBusMessage.methodCall(
                destination: NotifydProtocol.busName,
                path: NotifydProtocol.path,
                interface: "org.freedesktop.DBus.Peer",
                member: "Ping"
            )
            _ = try connection.callAndWait(ping)
            return "notifyd could not be reached; it can be now, so try again"
        } catch  where error.name == "org.freedesktop.DBus.Error.ServiceUnknown" {
            return
                "there is no notifyd on this bus; start it, or install the file by which the bus starts it (notifyd(8))"
        } catch {
            return "\(error)"
        }
    }
}
