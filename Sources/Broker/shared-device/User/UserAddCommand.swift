import ArgumentParser
import SharedDevice
import SharedDeviceBroker

struct UserAddCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "add",
        abstract: "Adds a user. Asks for the password twice."
    )

    @Argument(help: "The name to sign in with, for instance ada@example.com.")
    var name: String

    @Option(help: "The person's name, for display.")
    var displayName: String?

    @Option(help: "administrator, who may join the device to the organisation; or user.")
    var role: UserRole = .user

    @Option(
        help: ArgumentHelp("The organisation that the user belongs to. Otherwise this device's own.", valueName: "id")
    )
    var tenant: String?

    @OptionGroup var password: PasswordOptions
    @OptionGroup var state: StateOptions

    func run() throws {
        try reportingFailure {
            let input = try password.open()
            let directory = UserDirectory(database: try state.openDatabase(.createIfMissing))
            try directory.checkIsFree(username: name)
            let user = try directory.add(
                username: name,
                displayName: displayName,
                password: try input.readNewPassword(of: name),
                role: role,
                tenant: tenant
            )
            print("added \(user.account.username) (\(user.account.identifier))")
        }
    }
}
