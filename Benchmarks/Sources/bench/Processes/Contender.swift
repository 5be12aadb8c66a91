/// One of the programs that are compared: a peer built on one library.
struct Contender: Equatable {
    /// As it stands in the table.
    let label: String
    let program: String
    var environment: [String: String] = [:]

    /// The command that makes it play `role` on the bus at `address`.
    func command(_ role: [String], address: String) -> Command {
        var command = Command(program: program, arguments: role, environment: environment)
        command.environment["DBUS_SESSION_BUS_ADDRESS"] = address
        return command
    }
}
