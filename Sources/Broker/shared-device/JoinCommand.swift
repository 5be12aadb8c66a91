import ArgumentParser
import CommandParts
import DBus
import Identity
@_spi(Extensions) import SharedDevice

struct JoinCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "join",
        abstract: "Joins the device to the organisation of one of its administrators.",
        discussion: "From then on only users of that organisation sign in. Asks for the administrator's password."
    )

    @OptionGroup var administrator: AdministratorOptions
    @OptionGroup var bus: BusOptions

    func execute() throws {
        let request = try administrator.request()
        let answer = try bus.connect().callAndWait(.join, request, attempted: "join the device")
        print("joined \(answer["tenant"]?.stringValue ?? "")")
    }
}

struct LeaveCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "leave",
        abstract: "Makes the device leave its organisation, and signs the user out.",
        discussion: "Asks for the password of one of the organisation's administrators."
    )

    @OptionGroup var administrator: AdministratorOptions
    @OptionGroup var bus: BusOptions

    func execute() throws {
        let request = try administrator.request()
        _ = try bus.connect().callAndWait(.leave, request, attempted: "have the device leave its organisation")
        print("left")
    }
}

/// The administrator who authorises a command, with name and password.
struct AdministratorOptions: ParsableArguments {
    @Argument(help: "The administrator's name, as for signing in.")
    var name: String

    @OptionGroup var password: PasswordOptions

    /// Call it before anything starts a thread.
    func request() throws -> BrokerProtocol.Fields {
        let password = try password.open().readPassword(of: name)
        return ["username": .string(name), "password": .string(password.text)]
    }
}
