package import FoundationEssentials

/// A token that lets an app act for the account. It shows its value in no log.
package struct AccessToken: Sendable, Hashable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    /// The token itself, which means nothing to whoever carries it.
    package let value: String
    /// What it permits.
    package let scopes: Set<String>
    /// When it ends, by the wall clock.
    package let expiresAt: Date

    /// A token of these parts.
    package init(value: String, scopes: Set<String>, expiresAt: Date) {
        self.value = value
        self.scopes = scopes
        self.expiresAt = expiresAt
    }

    /// The scopes and the end, without the value.
    package var description: String { "AccessToken(\(scopes.sorted().joined(separator: " ")), until \(expiresAt))" }

    /// Like `description`.
    package var debugDescription: String { description }

    /// Without the value.
    package var customMirror: Mirror { Mirror(self, children: ["scopes": scopes, "expiresAt": expiresAt]) }
}
