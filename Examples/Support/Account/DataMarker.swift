package import SharedDevice

/// A string that apps write into each piece of a user's data, so that a search finds what should be gone.
package enum DataMarker {
    /// The marker of this account's data; no other account has it, and it says neither name.
    package static func text(for account: Account) -> String { "private-data-of-\(objectIdentifier(account))" }

    /// The half of the identifier that is the person's own; the other is everybody's in the organisation.
    package static func objectIdentifier(_ account: Account) -> String {
        String(account.identifier.prefix { $0 != "." })
    }

    /// How data names its owner, for people: name, user name and marker.
    package static func signature(of account: Account) -> String {
        "\(account.displayName ?? account.username) <\(account.username)> \(text(for: account))"
    }
}
