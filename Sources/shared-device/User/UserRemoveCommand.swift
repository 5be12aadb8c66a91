import ArgumentParser
import SharedDevice
import SharedDeviceBroker

struct UserRemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Removes a user who is not signed in."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var state: StateOptions

    func run() throws {
        try reportingFailure {
            let database = try state.openDatabase(.existing)
            let user = try UserDirectory(database: database).remove(username: name)
            print("removed \(user.account.username)")
            if let remnants = database.remnants { warn("\(remnants)") }
        }
    }
}
