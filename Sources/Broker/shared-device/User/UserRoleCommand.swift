import ArgumentParser
import SharedDevice
import SharedDeviceBroker

struct UserRoleCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "role",
        abstract: "Gives a user another role.",
        discussion: "Administrators join the device to their organisation, and have it leave."
    )

    @Argument(help: "The user's name.")
    var name: String

    @Argument(help: "administrator or user.")
    var role: UserRole

    @OptionGroup var state: StateOptions

    func run() throws {
        try reportingFailure {
            let directory = UserDirectory(database: try state.openDatabase(.existing))
            let user = try directory.existingUser(named: name)
            try directory.setRole(role, ofUserNamed: name)
            print("\(user.account.username) has the role \(role.rawValue)")
        }
    }
}

extension UserRole: ExpressibleByArgument {}
