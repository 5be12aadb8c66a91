/// Whom a name belongs to, by its form (notify(3), a.4).
package enum NameScope: Sendable, Hashable {
    /// `self.…`: this process; it never leaves it.
    case process
    /// `user.uid.UID` or `user.uid.UID.…`: this user, and root.
    case user(UInt32)
    /// Any other `user.uid.…`: root.
    case root
    /// Everybody, unless the configuration says otherwise.
    case everyone

    /// The scope of `name`.
    package init(_ name: String) {
        // By bytes: as texts, a prefix ends no character that an accent after it completes, and so would not be found.
        let bytes = name.utf8
        if bytes.starts(with: "self.".utf8) {
            self = .process
        } else if bytes.starts(with: "user.uid.".utf8) {
            let digits = bytes.dropFirst("user.uid.".utf8.count).prefix { $0 != UInt8(ascii: ".") }
            // Spelled as a number is: `user.uid.0501` is nobody's.
            let text = String(Substring(digits))
            self = UInt32(text).flatMap { String($0) == text ? .user($0) : nil } ?? .root
        } else {
            self = .everyone
        }
    }
}
