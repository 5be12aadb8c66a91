import ArgumentParser
import SharedDevice
import SharedDeviceBroker

struct UserRemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Removes a user. One who is signed in has to be signed out first: with --sign-out, or before."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var signOut: SignOutOptions
    @OptionGroup var state: StateOptions

    func run() throws {
        try reportingFailure {
            let database = try state.openDatabase(.existing)
            let directory = UserDirectory(database: database)
            try signOut.signOut(directory.existingUser(named: name), of: database, reason: "the user's removal")
            let user = try directory.remove(username: name)
            print("removed \(user.account.username)")
            if let remnants = database.remnants { warn("\(remnants)") }
        }
    }
}
