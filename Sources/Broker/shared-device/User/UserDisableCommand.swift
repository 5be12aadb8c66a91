import ArgumentParser
import SharedDevice
import SharedDeviceBroker

struct UserDisableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "disable",
        abstract: "Lets a user sign in no more, until enabled again."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var signOut: SignOutOptions
    @OptionGroup var state: StateOptions

    func run() throws {
        try reportingFailure {
            let database = try state.openDatabase(.existing)
            let directory = UserDirectory(database: database)
            let user = try directory.existingUser(named: name)
            try signOut.signOut(user, of: database, reason: "the user's being disabled")
            try directory.setDisabled(true, forUserNamed: name)
            // Who came back in between is not let in any more; the one session that this leaves ends here.
            try signOut.signOut(user, of: database, reason: "the user's being disabled")
            print("disabled \(user.account.username)")
            if try AccountStore(database: database).state().account?.hasIdentifier(user.account.identifier) == true {
                warn(
                    "\(user.account.username) is signed in on this device, stays so until signed out, and gets no new tokens; "
                        + "next time use --sign-out"
                )
            }
        }
    }
}

struct UserEnableCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enable",
        abstract: "Lets a disabled user sign in again."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var state: StateOptions

    func run() throws {
        try reportingFailure {
            let directory = UserDirectory(database: try state.openDatabase(.existing))
            let user = try directory.existingUser(named: name)
            try directory.setDisabled(false, forUserNamed: name)
            print("enabled \(user.account.username)")
        }
    }
}
