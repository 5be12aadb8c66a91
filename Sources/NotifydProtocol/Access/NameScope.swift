/// Whom a name belongs to, by its form.
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
        if name.hasPrefix("self.") {
            self = .process
        } else if name.hasPrefix("user.uid.") {
            let digits = name.dropFirst("user.uid.".count).prefix { $0 != "." }
            // Spelled as a number is: `user.uid.0501` is nobody's.
            self = UInt32(digits).flatMap { String($0) == digits ? .user($0) : nil } ?? .root
        } else {
            self = .everyone
        }
    }
}
