import BrokerCore
import DBus

/// Asks polkit over the bus whether a caller has a right. Without a response, the caller does not have it.
struct PolkitAuthority: Sendable {
    /// A connection to the system bus. On any other bus, another process could own polkit's name.
    let connection: DBusConnection

    /// The timeouts: without, and with a person who is asked for a password.
    private static let (patience, patienceWithPerson) = (Duration.seconds(5), Duration.seconds(60))

    /// Whether polkit permits the caller to do this. Suspends without blocking a thread.
    ///
    /// - Parameters:
    ///   - caller: The connection's name with the bus's identifier in front.
    ///   - isInteractive: Whether polkit may ask a person for a password.
    func permits(_ caller: String, _ right: Administration.Right, isInteractive: Bool) async -> Bool {
        let name = String(caller.drop { $0 != ":" })
        do throws(DBusError) {
            let question = try DBusMessage.methodCall(
                destination: "org.freedesktop.PolicyKit1",
                path: "/org/freedesktop/PolicyKit1/Authority",
                interface: "org.freedesktop.PolicyKit1.Authority",
                member: "CheckAuthorization",
                arguments: [
                    .structure([.string("system-bus-name"), .fields(["name": .string(name)])]),
                    .string("org.notifycenter.shared-device.\(right.rawValue)"),
                    .dictionary([], key: "s", value: "s"),
                    .uint32(isInteractive ? 1 : 0),
                    .string(""),
                ]
            )
            let patience = isInteractive ? Self.patienceWithPerson : Self.patience
            guard case .structure(let verdict)? = try await connection.call(question, timeout: patience).first else {
                return false
            }
            return verdict.first?.booleanValue == true
        } catch {
            return false
        }
    }
}
