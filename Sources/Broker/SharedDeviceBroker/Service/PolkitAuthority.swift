import DBusTransport

/// polkit's word on what a caller may do, asked for over the bus. Whatever keeps the word away means no.
struct PolkitAuthority: Sendable {
    /// To the system bus: only there polkit's name is nobody else's.
    let connection: DBusConnection

    /// How long the answer may take; while a person is asked for a password, longer.
    private static let (patience, patienceWithPerson) = (Duration.seconds(5), Duration.seconds(60))

    /// Whether polkit lets the caller do this. Holds no thread while it waits.
    ///
    /// - Parameters:
    ///   - caller: the connection's name, after that of its bus.
    ///   - isInteractive: whether a person may be asked for a password.
    func permits(_ caller: String, _ right: BrokerState.Right, isInteractive: Bool) async -> Bool {
        let name = String(caller.drop { $0 != ":" })
        do throws(DBusError) {
            let question = try DBusMessage.methodCall(
                destination: "org.freedesktop.PolicyKit1",
                path: "/org/freedesktop/PolicyKit1/Authority",
                interface: "org.freedesktop.PolicyKit1.Authority",
                member: "CheckAuthorization",
                arguments: [
                    .structure([.string("system-bus-name"), .fields(["name": .string(name)])]),
                    .string(right.action),
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
