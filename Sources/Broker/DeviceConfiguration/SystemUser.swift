package import Glibc

/// A user of this system. A manifest names it by name or number.
package struct SystemUser: Sendable, Equatable {
    package let number: uid_t
    package let group: gid_t
    /// `nil` where the system does not know the number.
    package let name: String?
    /// The home directory, without a slash at its end; `nil` where the system knows none.
    package let home: String?

    package init(number: uid_t, group: gid_t, name: String?, home: String?) {
        self.number = number
        self.group = group
        self.name = name
        self.home = home
    }

    /// The user with this name; `nil` where there is none. Asks the system's databases, and so may block.
    package init?(name: String) {
        guard !name.isEmpty, !name.utf8.contains(0),
            let user = Self.lookUp({ getpwnam_r(name, $0, $1, $2, $3) })
        else { return nil }
        self = user
    }

    /// The user with this number, whether or not the system knows it. Asks the system's databases, and so may block.
    package init(number: uid_t) {
        self =
            Self.lookUp { getpwuid_r(number, $0, $1, $2, $3) }
            ?? SystemUser(number: number, group: number, name: nil, home: nil)
    }

    private typealias Question = (
        UnsafeMutablePointer<passwd>, UnsafeMutablePointer<CChar>, Int,
        UnsafeMutablePointer<UnsafeMutablePointer<passwd>?>
    ) -> CInt

    /// Asks again with more room, as long as the entry is too long for the buffer.
    private static func lookUp(_ ask: Question) -> SystemUser? {
        var size = 16_384
        while size <= 1_048_576 {
            var entry = passwd()
            var found: UnsafeMutablePointer<passwd>?
            var user: SystemUser?
            let status = withUnsafeTemporaryAllocation(of: CChar.self, capacity: size) { buffer in
                guard let start = buffer.baseAddress else { return ENOMEM }
                let status = ask(&entry, start, size, &found)
                // The entry's texts are in the buffer.
                if status == 0, let found = found?.pointee { user = SystemUser(found) }
                return status
            }
            switch status {
            case 0: return user
            case ERANGE: size *= 2
            case EINTR: continue
            default: return nil
            }
        }
        return nil
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

    package init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if let number = try? value.decode(Int.self) {
            // The greatest number means no user at all.
            guard let user = uid_t(exactly: number), user != uid_t.max else {
                let message = "\(number) is no user's number"
                throw DecodingError.invalid(message, remedy: "write the user's name", at: decoder.codingPath)
            }
            self.init(number: user)
        } else if let name = try? value.decode(String.self) {
            guard let user = SystemUser(name: name) else {
                throw DecodingError.invalid(
                    "this system has no user “\(name)”",
                    remedy: "make the user and then write the manifest anew, or leave the key out for any user",
                    at: decoder.codingPath
                )
            }
            self = user
        } else {
            let context = DecodingError.Context(codingPath: decoder.codingPath, debugDescription: "")
            throw DecodingError.typeMismatch(SystemUser.self, context)
        }
    }
}
