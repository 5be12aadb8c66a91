public import Glibc

enum SystemDatabase {
    /// A function such as `getpwnam_r` for one name. The last parameter points to the found entry.
    typealias Question<Entry> = (
        UnsafeMutablePointer<Entry>, UnsafeMutablePointer<CChar>, Int,
        UnsafeMutablePointer<UnsafeMutablePointer<Entry>?>
    ) -> CInt

    /// Looks up an entry; `nil` if there is none. May block.
    ///
    /// - Parameter read: Copies the needed parts of the entry, whose texts are only valid during the call.
    static func lookUp<Entry, Value>(
        _ name: String,
        _ empty: Entry,
        _ ask: Question<Entry>,
        read: (Entry) -> Value
    ) throws(SystemUser.LookupFailure) -> Value? {
        var size = 16_384
        while true {
            var entry = empty
            var found: UnsafeMutablePointer<Entry>?
            var value: Value?
            let status = withUnsafeTemporaryAllocation(of: CChar.self, capacity: size) { buffer in
                guard let start = buffer.baseAddress else { return ENOMEM }
                let status = ask(&entry, start, size, &found)
                if status == 0, let found = found?.pointee { value = read(found) }
                return status
            }
            switch status {
            case 0: return value
            case ERANGE where size < 1_048_576: size *= 2
            case EINTR: continue
            default: throw SystemUser.LookupFailure(user: name, code: status)
            }
        }
    }

    /// Looks up the group of this name. May block.
    static func lookUpGroup<Value>(_ name: String, read: (group) -> Value) throws(SystemUser.LookupFailure) -> Value? {
        guard !name.isEmpty, !name.utf8.contains(0) else { return nil }
        return try lookUp(name, group(), { getgrnam_r(name, $0, $1, $2, $3) }, read: read)
    }
}

/// A user of this system. A manifest names it by name or number.
public struct SystemUser: Sendable, Equatable {
    public let number: uid_t
    public let group: gid_t
    /// `nil` if the system does not know the number.
    public let name: String?
    /// The home directory, without a trailing slash; `nil` if the system knows none.
    public let home: String?

    public init(number: uid_t, group: gid_t, name: String?, home: String?) {
        self.number = number
        self.group = group
        self.name = name
        self.home = home
    }

    /// The system's user databases do not respond, so that it is unknown whether the user exists.
    public struct LookupFailure: Error, CustomStringConvertible {
        let user: String
        let code: CInt

        public var description: String {
            "the system's databases of users do not respond for “\(user)”: \(String(cString: strerror(code)))"
        }
    }

    /// The user with this name; `nil` if there is none. Asks the system's databases, and so may block.
    public init?(name: String) throws(LookupFailure) {
        guard !name.isEmpty, !name.utf8.contains(0),
            let user = try SystemDatabase.lookUp(name, passwd(), { getpwnam_r(name, $0, $1, $2, $3) }, read: Self.init)
        else { return nil }
        self = user
    }

    /// The user with this number, whether or not the system knows it. Asks the system's databases, and so may block.
    public init(number: uid_t) throws(LookupFailure) {
        let known = try SystemDatabase.lookUp(
            "\(number)",
            passwd(),
            { getpwuid_r(number, $0, $1, $2, $3) },
            read: Self.init(_:)
        )
        // An unknown user gets the group `nogroup`: a group of the user's number may have rights.
        self = known ?? SystemUser(number: number, group: 65534, name: nil, home: nil)
    }

    private init(_ entry: passwd) {
        number = entry.pw_uid
        group = entry.pw_gid
        func text(_ pointer: UnsafeMutablePointer<CChar>?) -> String? { pointer.map { String(cString: $0) } }
        name = text(entry.pw_name)
        let path = text(entry.pw_dir) ?? ""
        let trimmed = path.count > 1 && path.hasSuffix("/") ? String(path.dropLast()) : path
        home = trimmed.hasPrefix("/") && trimmed != "/" ? trimmed : nil
    }
}

extension SystemUser: Decodable, WrittenForm {
    static let form = "a user's name as a string, or its number"

    public init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if let number = try? value.decode(Int.self) {
            // The greatest number means “no user”.
            guard let user = uid_t(exactly: number), user != uid_t.max else {
                throw decoder.invalid("\(number) is no user's number", remedy: "write the user's name")
            }
            self = try Self.known(decoder) { () throws(LookupFailure) in try SystemUser(number: user) }
        } else if let name = try? value.decode(String.self) {
            let user = try Self.known(decoder) { () throws(LookupFailure) in try SystemUser(name: name) }
            guard let user else {
                let remedy = "make the user and then write the manifest again, or leave the key out for any user"
                throw decoder.invalid("this system has no user “\(name)”", remedy: remedy)
            }
            self = user
        } else {
            throw decoder.otherForm(Self.self)
        }
    }

    private static func known<User>(_ decoder: any Decoder, _ look: () throws(LookupFailure) -> User) throws -> User {
        do throws(LookupFailure) {
            return try look()
        } catch {
            let remedy = "see getent passwd \(error.user), and then write the manifest again"
            throw decoder.invalid(error.description, remedy: remedy)
        }
    }
}
