package import Basics
package import Identity

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
