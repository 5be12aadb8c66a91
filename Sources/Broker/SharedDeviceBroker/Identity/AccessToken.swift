public import Foundation

/// A token that lets an app act for the account. It shows its value in no log.
public struct AccessToken: Sendable, Hashable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    /// The token itself, which means nothing to whoever carries it.
    public let value: String
    /// What it permits.
    public let scopes: Set<String>
    /// When it ends, by the wall clock.
    public let expiresAt: Date

    /// A token of these parts.
    public init(value: String, scopes: Set<String>, expiresAt: Date) {
        self.value = value
        self.scopes = scopes
        self.expiresAt = expiresAt
    }

    /// The scopes and the end, without the value.
    public var description: String { "AccessToken(\(scopes.sorted().joined(separator: " ")), until \(expiresAt))" }

    /// Like `description`.
    public var debugDescription: String { description }

    /// Without the value.
    public var customMirror: Mirror { Mirror(self, children: ["scopes": scopes, "expiresAt": expiresAt]) }
}

extension AccessToken {
    /// A token of 256 random bits, in base64url.
    static func makeRandom(scopes: Set<String>, expiresAt: Date) -> AccessToken {
        var generator = SystemRandomNumberGenerator()
        let bytes = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        let value = Data(bytes).base64EncodedString()
            .replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
        return AccessToken(value: value, scopes: scopes, expiresAt: expiresAt)
    }
}
