import Basics

/// The users whom a device or an app is for: `allowedUsers` of the managed configuration or of a manifest. A user whom
/// one entry names is allowed.
public struct AllowedPeople: Sendable, Hashable, Codable {
    /// The names of users.
    public var users: [String]
    /// The names of groups.
    public var groups: [String]

    /// Creates a rule; see the properties.
    public init(users: [String] = [], groups: [String] = []) { (self.users, self.groups) = (users, groups) }

    /// - Parameter members: the users of each group.
    func allows(_ user: String, _ members: [String: [String]]) -> Bool {
        users.contains(user) || groups.contains { members[$0]?.contains(user) == true }
    }

    var json: JSONValue {
        let members = [("users", users), ("groups", groups)].filter { !$0.1.isEmpty }
        return .object(Dictionary(uniqueKeysWithValues: members.map { ($0, .array($1.map { .string($0) })) }))
    }
}

extension AllowedPeople {
    init(_ cursor: JSONCursor) throws(CheckPlanError) {
        let string = { (cursor: JSONCursor) throws(CheckPlanError) in try cursor.string() }
        let members = try cursor.object(keys: ["users", "groups"])
        self.init(users: try members["users"]?.list(string) ?? [], groups: try members["groups"]?.list(string) ?? [])
        guard !users.isEmpty || !groups.isEmpty else {
            throw CheckPlanError(members.path, "it names neither a user nor a group; leave the key out to allow all")
        }
    }
}
