package import Basics
import Cryptography
import FoundationEssentials
import HTTPClient
package import Identity
import OpenIDConnect
import SharedDevice

/// Maps a sign-in to an account. An account is identified by two UUIDs, as in Microsoft's programs: one for the person,
/// one for the tenant. Names are for display only, and identify no account.
package enum AccountMapping {
    /// The claim that may hold the tenant's UUID, if the configuration names no other.
    package static let usualTenantClaim = "tid"

    /// The hosts of Microsoft Entra. Its tokens have both identifiers; with other providers a claim named `oid` may
    /// have any meaning.
    private static let entra = [
        "login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn",
        "login.windows.net", "sts.windows.net",
    ]
    /// The namespace for URLs (RFC 4122, appendix C).
    private static let addresses = UUID(
        uuid: (0x6B, 0xA7, 0xB8, 0x11, 0x9D, 0xAD, 0x11, 0xD1, 0x80, 0xB4, 0x00, 0xC0, 0x4F, 0xD4, 0x30, 0xC8)
    )
    /// In Unicode scalars. A longer text is cut, because it would fill menus.
    private static let longestName = 200

    /// - Parameters:
    ///   - subject: `sub`, which alone identifies the person at the provider.
    ///   - identity: The claims of the ID token. Only these identify the account. Claims of the userinfo endpoint may
    ///     be missing at the next sign-in, and the person would get another account.
    ///   - names: The claims with the person's names, from the ID token or the userinfo endpoint.
    static func account(
        issuer: Issuer,
        subject: String,
        identity: JSONValue,
        names: JSONValue,
        tenantClaim: String = usualTenantClaim
    ) -> Account {
        let named = uuid(identity[tenantClaim])
        let tenant = named ?? uuid(issuer.text, in: addresses)
        let isEntra = entra.contains(issuer.address.host)
        let person = (isEntra && named != nil ? uuid(identity["oid"]) : nil) ?? uuid(subject, in: tenant)
        return Account(
            identifier: "\(person.uuidString.lowercased()).\(tenant.uuidString.lowercased())",
            username: username(names) ?? subject,
            displayName: name(names["name"])
        )
    }

    /// The username in the claims; `nil` if they have none.
    static func username(_ claims: JSONValue) -> String? {
        ["preferred_username", "upn", "email"].lazy.compactMap { name(claims[$0]) }.first
    }

    private static func name(_ claim: JSONValue?) -> String? {
        guard let text = claim?.string, !text.isEmpty else { return nil }
        return text.printable(longestName)
    }

    private static func uuid(_ claim: JSONValue?) -> UUID? { claim?.string.flatMap { UUID(uuidString: $0) } }

    /// The UUID of a name in a namespace (RFC 4122, section 4.3, version 5).
    static func uuid(_ name: String, in namespace: UUID) -> UUID {
        let digest = withUnsafeBytes(of: namespace.uuid) { Digest.sha1.hash(Array($0) + Array(name.utf8)) }
        var bytes = Array(digest.prefix(16))
        bytes[6] = bytes[6] & 0x0F | 0x50
        bytes[8] = bytes[8] & 0x3F | 0x80
        return bytes.withUnsafeBytes { UUID(uuid: $0.loadUnaligned(as: uuid_t.self)) }
    }
}

extension PersonGroups {
    /// The groups in the claim `groups` of a signed ID token. A token without the claim names no group.
    ///
    /// A person with many groups may have none of them in the token. Then the provider says where they are (OpenID
    /// Connect Core, section 5.6.2), or only that there are some (`hasgroups` of Microsoft Entra). The device does not
    /// fetch the groups, and ignores a list that the token may still have.
    package init(claims: JSONValue) {
        switch claims["_claim_names"] {
        case nil: break
        case .object(let names)?:
            if names["groups"] != nil {
                self = .unknown(.elsewhere)
                return
            }
        case _?:
            self = .unknown(.malformed)
            return
        }
        if let hasGroups = claims["hasgroups"], hasGroups != .boolean(false) {
            self = .unknown(.elsewhere)
        } else if let claim = claims["groups"] {
            self = claim.strings.map { PersonGroups(listed: $0) } ?? .unknown(.malformed)
        } else {
            self = .none
        }
    }
}
