public import Foundation
package import SharedDevice

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

/// The access tokens of the one session that is open, in memory only. Pure: the caller brings the time.
///
/// All tokens belong to one epoch. A caller with another epoch finds no token and can store none, so that no token outlives
/// a sign-out that happened at the same time.
package struct TokenVault: Sendable {
    private struct Key: Hashable {
        let accountIdentifier: String
        let scopes: Set<String>
    }

    /// The epoch of the session that the tokens are for.
    package private(set) var epoch: UInt64
    /// How long a token must still be valid to be handed out, in seconds: it has yet to travel.
    package let margin: TimeInterval
    /// How many tokens are kept at most; over that, the one that ends first goes.
    package let capacity: Int

    private var tokens: [Key: AccessToken] = [:]

    package init(epoch: UInt64, margin: TimeInterval = 60, capacity: Int = 1000) {
        self.epoch = epoch
        self.margin = margin
        self.capacity = capacity
    }

    /// How many tokens are kept.
    package var count: Int { tokens.count }

    /// Makes `epoch` the current one. All tokens of another epoch are dropped.
    package mutating func enter(epoch: UInt64) {
        guard epoch != self.epoch else { return }
        self.epoch = epoch
        tokens = [:]
    }

    /// Keeps `token`, in place of an earlier one for the same account and scopes.
    ///
    /// - Parameters:
    ///   - scopes: What was asked for, which may be more than the token permits.
    ///   - epoch: The epoch in which the token was asked for.
    /// - Returns: `false` where that epoch is over: nothing is kept, and the token must not be handed out either.
    package mutating func store(
        _ token: AccessToken,
        for account: Account,
        scopes: Set<String>,
        epoch: UInt64,
        at now: Date
    ) -> Bool {
        guard epoch == self.epoch else { return false }
        let key = Self.key(account, scopes)
        if tokens[key] == nil, tokens.count >= capacity { makeRoom(at: now) }
        tokens[key] = token
        return true
    }

    /// The token for this account and these scopes; `nil` where there is none, it ends too soon, or `epoch` is not the
    /// current one.
    package func token(for account: Account, scopes: Set<String>, epoch: UInt64, at now: Date) -> AccessToken? {
        guard epoch == self.epoch, let token = tokens[Self.key(account, scopes)] else { return nil }
        return isUsable(token, at: now) ? token : nil
    }

    private func isUsable(_ token: AccessToken, at now: Date) -> Bool {
        token.expiresAt.timeIntervalSince(now) > margin
    }

    private mutating func makeRoom(at now: Date) {
        tokens = tokens.filter { isUsable($0.value, at: now) }
        guard tokens.count >= capacity, let first = tokens.min(by: { $0.value.expiresAt < $1.value.expiresAt }) else {
            return
        }
        tokens[first.key] = nil
    }

    private static func key(_ account: Account, _ scopes: Set<String>) -> Key {
        Key(accountIdentifier: account.identifier.lowercased(), scopes: scopes)
    }
}
