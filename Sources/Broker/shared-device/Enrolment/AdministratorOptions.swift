import ArgumentParser
import DBusTransport
import SharedDevice
import SharedDeviceBroker

/// Who vouches for a command, by name and password.
struct AdministratorOptions: ParsableArguments {
    @Argument(help: "The administrator's name, as for signing in.")
    var name: String

    @OptionGroup var password: PasswordOptions

    /// To be called before anything starts a thread.
    func request() throws -> BrokerProtocol.Fields {
        let password = try password.open().readPassword(of: name)
        return ["username": .string(name), "password": .string(password.text)]
    }
}
