public import ArgumentParser
import BrokerCore
import CommandParts
import DBus
import DeviceStorage
import EmbeddedIdentity
import FoundationEssentials
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

struct UserCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "user",
        abstract: "Keeps the list of people who may sign in on this device.",
        subcommands: [
            UserAddCommand.self, UserListCommand.self, UserRemoveCommand.self, UserPasswordCommand.self,
            UserBadgeCommand.self, UserPINCommand.self, UserDisableCommand.self, UserEnableCommand.self,
            UserRoleCommand.self, UserGroupsCommand.self,
        ]
    )
}

struct UserAddCommand: ReportingCommand {
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

    @Option(help: ArgumentHelp("The organisation that the user belongs to. By default the device's.", valueName: "id"))
    var tenant: String?

    @OptionGroup var password: PasswordOptions
    @OptionGroup var state: StateOptions

    func execute() throws {
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

struct UserListCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "Lists the users, in the order of their names."
    )

    @Flag(help: "As a JSON array, for programs.")
    var json = false

    @OptionGroup var state: StateOptions

    func execute() throws {
        let database = try state.openDatabase(.existing)
        let current = try DeviceStore.device(of: database).account
        let users = try UserDirectory(database: database).users().map { user in
            ListedUser(user: user, isSignedIn: current?.hasIdentifier(user.account.identifier) == true)
        }
        print(json ? try Form.json(users) : ListedUser.table(users))
    }
}

/// A user as the list shows it.
private struct ListedUser: Encodable {
    let user: DirectoryUser
    let isSignedIn: Bool

    /// The JSON's keys, which programs rely on.
    private enum Key: CodingKey {
        case identifier, username, displayName, role, groups, badge, pin, disabled, signedIn, createdAt
    }

    func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: Key.self)
        try values.encode(user.account.identifier, forKey: .identifier)
        try values.encode(user.account.username, forKey: .username)
        try values.encodeIfPresent(user.account.displayName, forKey: .displayName)
        try values.encode(user.role.rawValue, forKey: .role)
        try values.encode(user.groups, forKey: .groups)
        try values.encode(user.hasBadge, forKey: .badge)
        try values.encode(user.hasPIN, forKey: .pin)
        try values.encode(user.isDisabled, forKey: .disabled)
        try values.encode(isSignedIn, forKey: .signedIn)
        try values.encode(user.createdAt.formatted(Date.ISO8601FormatStyle()), forKey: .createdAt)
    }

    static func table(_ users: [ListedUser]) -> String {
        var table = Table("USER", "NAME", "STATUS", "ROLE", "GROUPS", "BADGE", "IDENTIFIER")
        for listed in users {
            let user = listed.user
            let credentials = [user.hasBadge ? "badge" : nil, user.hasPIN ? "PIN" : nil].compactMap(\.self)
            let status = (user.isDisabled ? "disabled" : "enabled") + (listed.isSignedIn ? ", signed in" : "")
            let lists = [user.groups, credentials].map { $0.isEmpty ? "-" : $0.joined(separator: ", ") }
            let names = [user.account.username, user.account.displayName ?? "-"]
            table.add(names + [status, user.role.rawValue] + lists + [user.account.identifier])
        }
        return table.lines.joined(separator: "\n")
    }
}

/// The user that a command is about.
struct UserOptions: ParsableArguments {
    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var state: StateOptions

    func open() throws -> (UserDirectory, DirectoryUser) {
        let directory = UserDirectory(database: try state.openDatabase(.existing))
        return (directory, try directory.existingUser(named: name))
    }
}

struct UserRemoveCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Removes a user. A user who is signed in has to be signed out first, for instance with --sign-out."
    )

    @OptionGroup var user: UserOptions
    @OptionGroup var signOut: SignOutOptions

    func execute() throws {
        // Before root drops its rights, because the default path depends on the user.
        let path = user.state.path
        let (directory, found) = try user.open()
        try signOut.signOut(found, of: directory.database, reason: "the user's removal")
        let removed = try directory.remove(username: user.name)
        print("removed \(removed.account.username)")
        if let remnants = directory.database.remnants { warn("\(remnants)") }
        tellBroker(of: removed, stateDirectory: path)
    }

    /// Makes a running broker forget the name: it tells apps from its memory whose data they still have to delete.
    private func tellBroker(of user: DirectoryUser, stateDirectory: String) {
        guard ServiceLock.isHeld(in: stateDirectory) else { return }
        do throws(SharedDeviceError) {
            let identifier = DBusValue.string(user.account.identifier)
            _ = try signOut.bus.connect().callAndWait(.forgetAccount, ["accountIdentifier": identifier])
        } catch {
            warn(
                "the broker was not told and may tell apps the name until it starts again: \(error.message); "
                    + "restart it, and next time name its bus with --bus"
            )
        }
    }
}

struct UserPasswordCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "password",
        abstract: "Gives a user another password. Asks for it twice."
    )

    @OptionGroup var user: UserOptions
    @OptionGroup var password: PasswordOptions

    func execute() throws {
        let input = try password.open()
        let (directory, found) = try user.open()
        try directory.setPassword(try input.readNewPassword(of: user.name), ofUserNamed: user.name)
        print("changed the password of \(found.account.username)")
    }
}

struct UserBadgeCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "badge",
        abstract: "Gives a user a badge, or takes it away.",
        discussion: """
            A badge reader types the badge's number like a keyboard, and then Return: 4 to 128 printable ASCII characters. The device \
            keeps a hash of the number. The user signs in with the badge and a PIN, see “user pin”.
            """
    )

    @OptionGroup var user: UserOptions
    @OptionGroup var badge: PersonalOptions

    func execute() throws {
        var input = try badge.open()
        let (directory, found) = try user.open()
        let username = found.account.username
        let number = try input.take()?.readBadge(of: username)
        try directory.setBadge(number, ofUserNamed: user.name)
        print(number == nil ? "\(username) has no badge now" : "set the badge of \(username)")
        if number != nil, !found.hasPIN {
            warn("\(username) cannot sign in with it without a PIN; set one: shared-device user pin \(username)")
        }
    }
}

struct UserPINCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "pin",
        abstract: "Gives a user another PIN of 4 to 12 digits, or takes it away. Asks for it twice."
    )

    @OptionGroup var user: UserOptions
    @OptionGroup var pin: PersonalOptions

    func execute() throws {
        var input = try pin.open()
        let (directory, found) = try user.open()
        let username = found.account.username
        let secret = try input.take()?.readNewPIN(of: username)
        try directory.setPIN(secret, ofUserNamed: user.name)
        print(secret == nil ? "\(username) has no PIN now" : "set the PIN of \(username)")
    }
}

struct UserDisableCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "disable",
        abstract: "Disables a user, who then cannot sign in until enabled again."
    )

    @OptionGroup var user: UserOptions
    @OptionGroup var signOut: SignOutOptions

    func execute() throws {
        let (directory, found) = try user.open()
        try signOut.signOut(found, of: directory.database, reason: "the user is disabled")
        try directory.setDisabled(true, forUserNamed: user.name)
        // Signs out a user who signed in again in between. A disabled user cannot sign in after this.
        try signOut.signOut(found, of: directory.database, reason: "the user is disabled")
        let username = found.account.username
        print("disabled \(username)")
        guard try DeviceStore.isSignedIn(found, directory.database) else { return }
        warn(
            "\(username) is signed in on this device, stays so until signed out, and gets no new tokens; "
                + "next time use --sign-out"
        )
    }
}

struct UserEnableCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "enable",
        abstract: "Lets a disabled user sign in again."
    )

    @OptionGroup var user: UserOptions

    func execute() throws {
        let (directory, found) = try user.open()
        try directory.setDisabled(false, forUserNamed: user.name)
        print("enabled \(found.account.username)")
    }
}

struct UserRoleCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "role",
        abstract: "Gives a user another role.",
        discussion: "Administrators join the device to their organisation, and have it leave."
    )

    @OptionGroup var user: UserOptions

    @Argument(help: "administrator or user.")
    var role: UserRole

    func execute() throws {
        let (directory, found) = try user.open()
        try directory.setRole(role, ofUserNamed: user.name)
        print("\(found.account.username) has the role \(role.rawValue)")
    }
}

struct UserGroupsCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "groups",
        abstract: "Shows a user's groups, or replaces them.",
        discussion: """
            The keys allowedUsers of the managed configuration and of manifests name groups. A user's groups count from the user's next \
            sign-in on. Without a group and without --none, the command changes nothing.
            """
    )

    @OptionGroup var user: UserOptions

    @Argument(help: ArgumentHelp("All groups of the user from now on.", valueName: "group"))
    var groups: [String] = []

    @Flag(help: "Take the user out of all groups.")
    var none = false

    @OptionGroup var signOut: SignOutOptions

    func validate() throws {
        if none, !groups.isEmpty { throw ValidationError("name groups, or use --none, and not both") }
    }

    func execute() throws {
        var (directory, found) = try user.open()
        let isChange = none || !groups.isEmpty
        if isChange {
            try directory.setGroups(groups, ofUserNamed: user.name)
            found = try directory.existingUser(named: user.name)
            try signOut.signOut(found, of: directory.database, reason: "the user's groups")
        }
        let username = found.account.username
        let list = found.groups.isEmpty ? "no group" : "the groups " + found.groups.joined(separator: ", ")
        print("\(username) is in \(list)")
        guard isChange, try DeviceStore.isSignedIn(found, directory.database) else { return }
        warn(
            "\(username) is signed in on this device, and the groups count from the next sign-in on; "
                + "next time use --sign-out"
        )
    }
}

extension UserRole: ExpressibleByArgument {}
