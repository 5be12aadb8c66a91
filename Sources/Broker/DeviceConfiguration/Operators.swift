public import Glibc

/// The users, besides administrators, who may see the device and sign out: users by name, and groups by name after a
/// `%`, as in sudoers.
///
/// The names are looked up when the file is read, and again at a call, at most once a minute. A group's members are
/// those that the system's group database lists, not the users whose primary group it is. A name that the system does
/// not know, or cannot look up, gives no right, and the file stays valid.
public struct Operators: Sendable, Equatable {
    /// The names as they are written.
    public let names: [String]
    /// The users that the names stand for.
    public let users: Set<uid_t>
    /// The names that the system does not know.
    public let unknown: [String]

    public init() { (names, users, unknown) = ([], [], []) }

    /// Looks up the names in the system's databases, and so may block.
    public init(_ names: [String]) {
        self.names = names
        let found = names.map(Self.users)
        users = Set(found.compactMap(\.self).joined())
        unknown = zip(names, found).filter { $1 == nil }.map(\.0)
    }

    /// - Returns: `nil` if there is no such user or group.
    private static func users(of name: String) -> [uid_t]? {
        guard name.first == "%" else { return user(name).map { [$0] } }
        return members(of: String(name.dropFirst()))?.compactMap(user)
    }

    private static func user(_ name: String) -> uid_t? { try? SystemUser(name: name)?.number }

    private static func members(of name: String) -> [String]? {
        try? SystemDatabase.lookUpGroup(name) { group in
            var texts: [String] = []
            var next = group.gr_mem
            while let text = next?.pointee {
                texts.append(String(cString: text))
                next? += 1
            }
            return texts
        }
    }
}

extension Operators: Codable {
    public init(from decoder: any Decoder) throws {
        let names = try decoder.singleValueContainer().decode([String].self)
        if names.contains("") || names.contains("%") {
            let remedy = #"write users' names, and groups' after a %, such as "ada" and "%helpdesk""#
            throw decoder.invalid("it has a name without letters", remedy: remedy)
        }
        self.init(names)
    }

    public func encode(to encoder: any Encoder) throws { try names.encode(to: encoder) }
}
