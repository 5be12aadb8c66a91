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
            ListedUser(user, isSignedIn: current?.hasIdentifier(user.account.identifier) == true)
        }
        print(json ? try ListedUser.json(users) : ListedUser.table(users))
    }
}

/// A user as the list shows it. The properties' names are the JSON's keys, which programs rely on.
private struct ListedUser: Encodable {
    let identifier: String
    let username: String
    let displayName: String?
    let role: String
    let groups: [String]
    let badge: Bool
    let pin: Bool
    let disabled: Bool
    let signedIn: Bool
    let createdAt: Date

    init(_ user: DirectoryUser, isSignedIn: Bool) {
        identifier = user.account.identifier
        username = user.account.username
        displayName = user.account.displayName
        role = user.role.rawValue
        groups = user.groups
        badge = user.hasBadge
        pin = user.hasPIN
        disabled = user.isDisabled
        signedIn = isSignedIn
        createdAt = user.createdAt
    }

    static func json(_ users: [ListedUser]) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .iso8601
        return String(decoding: try encoder.encode(users), as: UTF8.self)
    }

    static func table(_ users: [ListedUser]) -> String {
        var table = Table("USER", "NAME", "STATUS", "ROLE", "GROUPS", "BADGE", "IDENTIFIER")
        for user in users {
            let groups = user.groups.isEmpty ? "-" : user.groups.joined(separator: ", ")
            let values = [user.username, user.displayName ?? "-", user.status, user.role, groups, user.credentials]
            table.add(values + [user.identifier])
        }
        return table.lines.joined(separator: "\n")
    }

    private var credentials: String {
        switch (badge, pin) {
        case (false, false): "-"
        case (true, false): "badge"
        case (false, true): "PIN"
        case (true, true): "badge, PIN"
        }
    }

    private var status: String {
        switch (disabled, signedIn) {
        case (false, false): "enabled"
        case (false, true): "enabled, signed in"
        case (true, false): "disabled"
        case (true, true): "disabled, signed in"
        }
    }
}

struct UserRemoveCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove",
        abstract: "Removes a user. A user who is signed in has to be signed out first, for instance with --sign-out."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var signOut: SignOutOptions
    @OptionGroup var state: StateOptions

    func execute() throws {
        // Before root drops its rights, because the default path depends on the user.
        let path = state.path
        let database = try state.openDatabase(.existing)
        let directory = UserDirectory(database: database)
        try signOut.signOut(directory.existingUser(named: name), of: database, reason: "the user's removal")
        let user = try directory.remove(username: name)
        print("removed \(user.account.username)")
        if let remnants = database.remnants { warn("\(remnants)") }
        tellBroker(of: user, stateDirectory: path)
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

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var password: PasswordOptions
    @OptionGroup var state: StateOptions

    func execute() throws {
        let input = try password.open()
        let directory = UserDirectory(database: try state.openDatabase(.existing))
        let user = try directory.existingUser(named: name)
        try directory.setPassword(try input.readNewPassword(of: name), ofUserNamed: name)
        print("changed the password of \(user.account.username)")
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

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var badge: PersonalOptions
    @OptionGroup var state: StateOptions

    func execute() throws {
        var input = try badge.open()
        let directory = UserDirectory(database: try state.openDatabase(.existing))
        let user = try directory.existingUser(named: name)
        let username = user.account.username
        let number = try input.take()?.readBadge(of: username)
        try directory.setBadge(number, ofUserNamed: name)
        print(number == nil ? "\(username) has no badge now" : "set the badge of \(username)")
        if number != nil, !user.hasPIN {
            warn("\(username) cannot sign in with it without a PIN; set one: shared-device user pin \(username)")
        }
    }
}

struct UserPINCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "pin",
        abstract: "Gives a user another PIN of 4 to 12 digits, or takes it away. Asks for it twice."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var pin: PersonalOptions
    @OptionGroup var state: StateOptions

    func execute() throws {
        var input = try pin.open()
        let directory = UserDirectory(database: try state.openDatabase(.existing))
        let username = try directory.existingUser(named: name).account.username
        let secret = try input.take()?.readNewPIN(of: username)
        try directory.setPIN(secret, ofUserNamed: name)
        print(secret == nil ? "\(username) has no PIN now" : "set the PIN of \(username)")
    }
}

struct UserDisableCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "disable",
        abstract: "Disables a user, who then cannot sign in until enabled again."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var signOut: SignOutOptions
    @OptionGroup var state: StateOptions

    func execute() throws {
        let database = try state.openDatabase(.existing)
        let directory = UserDirectory(database: database)
        let user = try directory.existingUser(named: name)
        try signOut.signOut(user, of: database, reason: "the user is disabled")
        try directory.setDisabled(true, forUserNamed: name)
        // Signs out a user who signed in again in between. A disabled user cannot sign in after this.
        try signOut.signOut(user, of: database, reason: "the user is disabled")
        print("disabled \(user.account.username)")
        if try DeviceStore.device(of: database).account?.hasIdentifier(user.account.identifier) == true {
            warn(
                "\(user.account.username) is signed in on this device, stays so until signed out, and gets no new tokens; "
                    + "next time use --sign-out"
            )
        }
    }
}

struct UserEnableCommand: ReportingCommand {
    static let configuration = CommandConfiguration(
        commandName: "enable",
        abstract: "Lets a disabled user sign in again."
    )

    @Argument(help: "The user's name.")
    var name: String

    @OptionGroup var state: StateOptions

    func execute() throws {
        let directory = UserDirectory(database: try state.openDatabase(.existing))
        let user = try directory.existingUser(named: name)
        try directory.setDisabled(false, forUserNamed: name)
        print("enabled \(user.account.username)")
    }
}

struct UserRoleCommand: ReportingCommand {
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

    func execute() throws {
        let directory = UserDirectory(database: try state.openDatabase(.existing))
        let user = try directory.existingUser(named: name)
        try directory.setRole(role, ofUserNamed: name)
        print("\(user.account.username) has the role \(role.rawValue)")
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

    @Argument(help: "The user's name.")
    var name: String

    @Argument(help: ArgumentHelp("All groups of the user from now on.", valueName: "group"))
    var groups: [String] = []

    @Flag(help: "Take the user out of all groups.")
    var none = false

    @OptionGroup var signOut: SignOutOptions
    @OptionGroup var state: StateOptions

    func validate() throws {
        if none, !groups.isEmpty { throw ValidationError("name groups, or use --none, and not both") }
    }

    func execute() throws {
        let database = try state.openDatabase(.existing)
        let directory = UserDirectory(database: database)
        if none || !groups.isEmpty {
            try directory.setGroups(groups, ofUserNamed: name)
            try signOut.signOut(directory.existingUser(named: name), of: database, reason: "the user's groups")
        }
        let user = try directory.existingUser(named: name)
        let list = user.groups.isEmpty ? "no group" : "the groups " + user.groups.joined(separator: ", ")
        print("\(user.account.username) is in \(list)")
        guard none || !groups.isEmpty else { return }
        if try DeviceStore.device(of: database).account?.hasIdentifier(user.account.identifier) == true {
            warn(
                "\(user.account.username) is signed in on this device, and the groups count from the next sign-in on; "
                    + "next time use --sign-out"
            )
        }
    }
}

extension UserRole: ExpressibleByArgument {}
