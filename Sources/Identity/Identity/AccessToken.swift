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
    /// The provider's word of who has signed in, where it came along.
    package var identity: IdentityToken?

    /// A token of these parts.
    package init(value: String, scopes: Set<String>, expiresAt: Date, identity: IdentityToken? = nil) {
        self.value = value
        self.scopes = scopes
        self.expiresAt = expiresAt
        self.identity = identity
    }

    /// Those of `wanted` that a provider has not granted with `granted` (RFC 6749, section 5.1).
    ///
    /// Providers leave out what belongs to each sign-in, and some name a scope of a service longer than they were asked, or in other capitals. What asks
    /// for all that is configured (`…/.default`) is never named.
    package static func scopes(_ wanted: Set<String>, notIn granted: Set<String>) -> Set<String> {
        wanted.filter { wanted in
            !ofSignIn.contains(wanted) && !isAll(wanted) && !granted.contains { isSame($0, wanted) }
        }
    }

    /// Those of `wanted` that `granted` names, in whichever way.
    package static func scopes(_ wanted: Set<String>, in granted: Set<String>) -> Set<String> {
        wanted.filter { wanted in granted.contains { isSame($0, wanted) } }
    }

    /// Those of `granted` that somebody may not have who may have `allowed`.
    package static func scopes(_ granted: Set<String>, beyond allowed: Set<String>) -> Set<String> {
        granted.filter { granted in
            !ofSignIn.contains(granted)
                && !allowed.contains { allowed in
                    isSame(granted, allowed)
                        || isAll(allowed)
                            && (!granted.contains("/") || inFull(granted).hasPrefix(service(of: allowed)))
                }
        }
    }

    /// They say who the person is, which an app with any token knows.
    private static let ofSignIn = IdentityToken.scopesOfPersons.union(["offline_access"])

    /// Whether it asks for all that is configured for a service.
    private static func isAll(_ scope: String) -> Bool { inFull(scope).hasSuffix("/.default") }
    private static func service(of all: String) -> Substring { inFull(all).dropLast(".default".count) }

    private static func isSame(_ first: String, _ second: String) -> Bool {
        let (first, second) = (first.lowercased(), second.lowercased())
        return first == second || !second.contains("/") && first.hasSuffix("/" + second)
            || inFull(first) == inFull(second)
    }

    /// The one name of a scope that Microsoft's provider and clients have several of: capitals mean nothing, and a scope of no service is one of Microsoft
    /// Graph's. The provider answers in either form
    /// (https://learn.microsoft.com/entra/identity-platform/scopes-oidc, https://learn.microsoft.com/entra/msal/javascript/browser/resources-and-scopes).
    package static func inFull(_ scope: String) -> String {
        let scope = scope.lowercased()
        return scope.contains("/") ? scope : "https://graph.microsoft.com/" + scope
    }

    /// Whether this can be the name of what a token permits (RFC 6749, section 3.3): visible ASCII without the quotation mark and the backslash.
    package static func isScope(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C }
    }

    /// The service that a scope is of, where the scope says it as Entra's do: `https://orders.example/read` is of `https://orders.example`.
    package static func service(ofScope scope: String) -> String? {
        guard let scheme = scope.firstRange(of: "://"), let slash = scope.lastIndex(of: "/"), slash > scheme.upperBound
        else { return nil }
        return String(scope[..<slash])
    }

    /// The scopes and the end, without the value.
    package var description: String { "AccessToken(\(scopes.sorted().joined(separator: " ")), until \(expiresAt))" }

    /// Like `description`.
    package var debugDescription: String { description }

    /// Without the value.
    package var customMirror: Mirror { Mirror(self, children: ["scopes": scopes, "expiresAt": expiresAt]) }
}

/// An organisation's provider's word of who has signed in: its ID token, as the provider has signed it. It shows its text in no log.
package struct IdentityToken: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
    package let text: String
    /// What the sign-in was granted to tell of the person (OpenID Connect Core, section 5.4). Who may not ask for all of it may not see the token.
    package let scopes: Set<String>

    /// The scopes that are about the person.
    package static let scopesOfPersons: Set = ["openid", "profile", "email", "address", "phone"]

    /// - Parameter granted: all that was granted at the sign-in.
    package init(text: String, granted: Set<String>) {
        self.text = text
        scopes = granted.intersection(Self.scopesOfPersons).union(["openid"])
    }

    /// The scopes, without the text.
    package var description: String { "IdentityToken(\(scopes.sorted().joined(separator: " ")))" }
    /// Without the text.
    package var customMirror: Mirror { Mirror(self, children: ["scopes": scopes]) }
}
