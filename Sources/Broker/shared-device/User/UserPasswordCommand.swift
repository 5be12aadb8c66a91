import ArgumentParser
import SharedDevice
import SharedDeviceBroker

struct UserPasswordCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "password",
        abstract: "Gives a user another password. Asks for it twice."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var password: PasswordOptions
    @OptionGroup var state: StateOptions

    func run() throws {
        try reportingFailure {
            let input = try password.open()
            let directory = UserDirectory(database: try state.openDatabase(.existing))
            let user = try directory.existingUser(named: name)
            try directory.setPassword(try input.readNewPassword(of: name), ofUserNamed: name)
            print("changed the password of \(user.account.username)")
        }
    }
}
