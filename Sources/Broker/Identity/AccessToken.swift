public import FoundationEssentials

/// A token that lets an app act for the account. Its description hides the value.
public struct AccessToken: Sendable, Hashable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    /// The token itself, which is opaque to the app.
    public let value: String
    public let scopes: Set<String>
    /// The expiry, by the wall clock.
    public let expiresAt: Date
    /// The provider's ID token, if there is one.
    public var identity: IdentityToken?

    public init(value: String, scopes: Set<String>, expiresAt: Date, identity: IdentityToken? = nil) {
        self.value = value
        self.scopes = scopes
        self.expiresAt = expiresAt
        self.identity = identity
    }

    /// The scopes of `wanted` that a provider has not granted with `granted` (RFC 6749, section 5.1).
    ///
    /// Providers omit the scopes that belong to every sign-in. Some return a service's scope with a longer name than
    /// the requested one, or in other capitals. A request for all configured scopes (`…/.default`) is never returned.
    public static func scopes(_ wanted: Set<String>, notIn granted: Set<String>) -> Set<String> {
        wanted.filter { wanted in
            !ofSignIn.contains(wanted) && !isAll(wanted) && !granted.contains { isSame($0, wanted) }
        }
    }

    /// The scopes of `wanted` that are in `granted`, in any of the forms that a provider uses.
    public static func scopes(_ wanted: Set<String>, in granted: Set<String>) -> Set<String> {
        wanted.filter { wanted in granted.contains { isSame($0, wanted) } }
    }

    /// The scopes of `granted` that go beyond `allowed`.
    public static func scopes(_ granted: Set<String>, beyond allowed: Set<String>) -> Set<String> {
        granted.filter { granted in
            !ofSignIn.contains(granted)
                && !allowed.contains { allowed in
                    isSame(granted, allowed)
                        || isAll(allowed) && (!granted.contains("/") || inFull(granted).hasPrefix(service(of: allowed)))
                }
        }
    }

    /// These scopes tell who the person is. An app with any token knows that anyway.
    private static let ofSignIn = IdentityToken.scopesOfPersons.union(["offline_access"])

    /// Whether the scope requests all configured scopes of a service.
    private static func isAll(_ scope: String) -> Bool { inFull(scope).hasSuffix("/.default") }
    private static func service(of all: String) -> Substring { inFull(all).dropLast(".default".count) }

    private static func isSame(_ first: String, _ second: String) -> Bool {
        let (first, second) = (first.lowercased(), second.lowercased())
        return first == second || !second.contains("/") && first.hasSuffix("/" + second)
            || inFull(first) == inFull(second)
    }

    /// The full, lower-case name of a scope. Microsoft's provider and clients use several names for one scope: they
    /// ignore case, and a scope without a service belongs to Microsoft Graph. The provider may return either form
    /// (https://learn.microsoft.com/entra/identity-platform/scopes-oidc,
    /// https://learn.microsoft.com/entra/msal/javascript/browser/resources-and-scopes).
    public static func inFull(_ scope: String) -> String {
        let scope = scope.lowercased()
        return scope.contains("/") ? scope : "https://graph.microsoft.com/" + scope
    }

    /// Whether the text is a scope (RFC 6749, section 3.3): visible ASCII without quotation mark and backslash.
    public static func isScope(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C }
    }

    /// The service in a scope of Entra's form: `https://orders.example` in `https://orders.example/read`; otherwise
    /// `nil`.
    public static func service(ofScope scope: String) -> String? {
        guard let scheme = scope.firstRange(of: "://"), let slash = scope.lastIndex(of: "/"), slash > scheme.upperBound
        else { return nil }
        return String(scope[..<slash])
    }

    /// The scopes and the expiry, without the value.
    public var description: String { "AccessToken(\(scopes.sorted().joined(separator: " ")), until \(expiresAt))" }

    public var debugDescription: String { description }

    public var customMirror: Mirror { Mirror(self, children: ["scopes": scopes, "expiresAt": expiresAt]) }
}

/// The organisation's provider's ID token, as the provider signed it. Its description hides the text.
public struct IdentityToken: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
    public let text: String
    /// The granted scopes about the person (OpenID Connect Core, section 5.4). An app that may not request all of them
    /// may not see the ID token.
    public let scopes: Set<String>

    public static let scopesOfPersons: Set = ["openid", "profile", "email", "address", "phone"]

    /// - Parameter granted: All scopes granted at the sign-in.
    public init(text: String, granted: Set<String>) {
        self.text = text
        scopes = granted.intersection(Self.scopesOfPersons).union(["openid"])
    }

    /// The scopes, without the text.
    public var description: String { "IdentityToken(\(scopes.sorted().joined(separator: " ")))" }
    public var customMirror: Mirror { Mirror(self, children: ["scopes": scopes]) }
}
