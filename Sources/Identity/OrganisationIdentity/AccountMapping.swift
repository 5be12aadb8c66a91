import Cryptography
import FoundationEssentials
import HTTPClient
package import OpenIDConnect
package import SharedDevice
package import StrictJSON

/// Whose account a sign-in is of. An account is known by two UUIDs, as Microsoft's programs know it: one of the person, one of the tenant. Names are for
/// people, and identify nobody.
package struct AccountMapping: Sendable {
    /// The claim that may name the tenant, by a UUID.
    package var tenantClaim: String

    package init(tenantClaim: String = "tid") { self.tenantClaim = tenantClaim }

    /// The hosts of Microsoft Entra, whose tokens have both identifiers: elsewhere a claim of the name `oid` may be anything.
    private static let entra = [
        "login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn",
        "login.windows.net", "sts.windows.net",
    ]
    /// RFC 4122, appendix C: for names that are addresses.
    private static let addresses = UUID(
        uuid: (0x6B, 0xA7, 0xB8, 0x11, 0x9D, 0xAD, 0x11, 0xD1, 0x80, 0xB4, 0x00, 0xC0, 0x4F, 0xD4, 0x30, 0xC8)
    )
    /// In Unicode scalars: what is longer is no name, and would fill every menu.
    private static let longestName = 200

    /// - Parameters:
    ///   - subject: `sub`, which alone identifies the person at the provider.
    ///   - identity: the claims of the ID token. By these alone the account is known: what the provider says where it is asked is there at one sign-in and
    ///     not at the next, and the person would be another one.
    ///   - names: what the provider calls the person, there or elsewhere.
    package func account(issuer: Issuer, subject: String, identity: JSONValue, names: JSONValue) -> Account {
        let named = uuid(identity[tenantClaim])
        let tenant = named ?? Self.uuid(issuer.text, in: Self.addresses)
        let isEntra = Self.entra.contains(issuer.address.host)
        let person =
            (isEntra && named != nil ? uuid(identity["oid"]) : nil) ?? Self.uuid(subject, in: tenant)
        let username =
            ["preferred_username", "upn", "email"].lazy.compactMap { name(names[$0]) }.first ?? subject
        return Account(
            identifier: "\(person.uuidString.lowercased()).\(tenant.uuidString.lowercased())",
            username: username,
            displayName: name(names["name"])
        )
    }

    /// Whether the claims have a name to sign in with.
    static func hasName(_ claims: JSONValue) -> Bool {
        ["preferred_username", "upn", "email"].contains { claims[$0]?.string.map { !$0.isEmpty } ?? false }
    }

    private func name(_ claim: JSONValue?) -> String? {
        guard let text = claim?.string, !text.isEmpty else { return nil }
        return text.printable(Self.longestName)
    }

    private func uuid(_ claim: JSONValue?) -> UUID? { claim?.string.flatMap { UUID(uuidString: $0) } }

    /// The UUID of a name in a namespace (RFC 4122, section 4.3, version 5).
    static func uuid(_ name: String, in namespace: UUID) -> UUID {
        let digest = withUnsafeBytes(of: namespace.uuid) { Digest.sha1.hash(Array($0) + Array(name.utf8)) }
        var bytes = Array(digest.prefix(16))
        bytes[6] = bytes[6] & 0x0F | 0x50
        bytes[8] = bytes[8] & 0x3F | 0x80
        return bytes.withUnsafeBytes { UUID(uuid: $0.loadUnaligned(as: uuid_t.self)) }
    }
}
