import DeviceConfiguration
import Identity
import SharedDevice

/// The scopes that apps may request.
///
/// The device signs the tokens of the device's own directory, and so vouches for what they permit. The author of the
/// app's manifest therefore has to have granted the scopes.
extension BrokerState {
    /// Checks the requested scopes in tokens of the device's own directory, before any other work for the app.
    ///
    /// An app whose manifest has `scopes` gets those. Other apps get scopes that belong to no particular service. If no
    /// enrolment is required, they get all scopes: any program may then be an app, so a scope proves nothing about it.
    ///
    /// - Throws: ``Refusal``, which names the scopes and the remedy.
    func checkScopes(_ wanted: Set<String>, of participant: Participant) throws(Refusal) {
        let manifest = eligibility.manifest(of: participant.app)
        let refused: [String]
        if let rights = manifest?.tokens, !rights.scopes.isEmpty {
            refused = rights.refused(of: wanted)
        } else if policy.requiresEnrolment {
            refused = wanted.filter { AccessToken.service(ofScope: $0) != nil }.sorted()
        } else {
            return
        }
        if !refused.isEmpty { throw .refusedScopes(refused) }
    }

    /// Checks that a token of the organisation's provider permits all scopes that the app named, and none that its
    /// manifest lacks.
    ///
    /// Providers may grant fewer or more scopes than requested (RFC 6749, section 3.3), and they issue all tokens to
    /// the broker as a single client.
    func checkGrant(_ token: AccessToken, for request: TokenRequest) throws(Refusal) {
        let rights = eligibility.manifest(of: request.participant.app)?.tokens.scopes ?? []
        let excess = AccessToken.scopes(token.scopes, beyond: rights)
        guard excess.isEmpty else { throw .excessScopes(excess.sorted()) }
        guard request.areNamed else { return }
        let declined = AccessToken.scopes(request.scopes, notIn: token.scopes)
        guard !declined.isEmpty else { return }
        // In the spelling of the manifest, which the app can use in its next request.
        throw .declinedScopes(declined.sorted(), granted: AccessToken.scopes(rights, in: token.scopes).sorted())
    }

    /// The ID token of the organisation's provider; `nil` if there is none, or if the app may not have it.
    ///
    /// The app's manifest has to list each scope about the person that the sign-in was granted: no claim can be removed
    /// from a token that the provider has signed.
    func idToken(for participant: Participant) -> String? {
        guard let identity = provider.identity, let rights = eligibility.manifest(of: participant.app)?.tokens.scopes,
            identity.scopes.isSubset(of: rights)
        else { return nil }
        return identity.text
    }

    /// Stores the ID token once for all access tokens that come with it.
    ///
    /// - Returns: The access token without it.
    mutating func keepIdentity(_ token: AccessToken) -> AccessToken {
        if let identity = token.identity { provider.identity = identity }
        var token = token
        token.identity = nil
        return token
    }
}
