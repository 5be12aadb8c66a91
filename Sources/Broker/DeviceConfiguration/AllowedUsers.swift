import Basics
import FoundationEssentials
import Identity

/// The people who may sign in on the device, or use an app: by their usernames, and by their groups in the device's own
/// directory or at the organisation's provider. One entry that matches is enough.
public struct AllowedUsers: Sendable, Equatable {
    public var users: [String] = []
    public var groups: [String] = []

    /// How many users, and how many groups, may be listed.
    public static let most = 1000

    public init(users: [String] = [], groups: [String] = []) { (self.users, self.groups) = (users, groups) }

    /// The warning for groups on a device where people sign in by a login, and so have no groups.
    public func warning(_ source: IdentitySource) -> KeyWarning? {
        guard source == .loginSession, !groups.isEmpty else { return nil }
        let message = "has groups, and they let no user in: under \"identity\": \"login-session\" users have no groups"
        return KeyWarning(key: ManagedConfiguration.Key.allowedUsers.rawValue, message: message)
    }
}

extension AllowedUsers: Codable, WrittenForm {
    static let form = #"an object of arrays, such as {"users": ["ada@contoso.example"], "groups": ["nurses"]}"#

    private enum Key: String, CodingKey, CaseIterable { case users, groups }

    public init(from decoder: any Decoder) throws {
        self = try decoder.inForm(of: Self.self) { try Self(members: decoder) }
    }

    private init(members decoder: any Decoder) throws {
        // A misspelt key would change who is let in.
        if let name = try decoder.unknownKey(beside: Key.self) {
            throw decoder.invalid("“\(name.printable(64))” means nothing here", remedy: "write users and groups")
        }
        let values = try decoder.container(keyedBy: Key.self)
        func names(_ key: Key, _ longest: Int) throws -> [String] {
            let names: [String] = try values.optional(key) ?? []
            guard names.count <= Self.most else {
                throw decoder.invalid("it has \(names.count) \(key.rawValue)", remedy: "write \(Self.most) at most")
            }
            for name in names where !Self.isName(name, longest) {
                let message = "“\(name.printable(64))” in its \(key.rawValue) is no name"
                let remedy = "write 1 to \(longest) bytes, without invisible characters and blanks around them"
                throw decoder.invalid(message, remedy: remedy)
            }
            return names
        }
        users = try names(.users, longestUsername)
        groups = try names(.groups, PersonGroups.longestName)
        guard !users.isEmpty || !groups.isEmpty else {
            let remedy = "name those who are allowed, or leave the key out to allow all"
            throw decoder.invalid("it names neither a user nor a group", remedy: remedy)
        }
    }

    private static func isName(_ name: String, _ longest: Int) -> Bool {
        (1...longest).contains(name.utf8.count) && !name.unicodeScalars.contains(where: \.isInvisible)
            && name.first?.isWhitespace == false && name.last?.isWhitespace == false
    }

    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: Key.self)
        if !users.isEmpty { try values.encode(users, forKey: .users) }
        if !groups.isEmpty { try values.encode(groups, forKey: .groups) }
    }
}
