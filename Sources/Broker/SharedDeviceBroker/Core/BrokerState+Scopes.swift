import DeviceConfiguration
import Identity
import SharedDevice

/// What apps may ask for in the tokens of the device's own directory. The device signs what the token permits, so that somebody has to have permitted
/// it: whoever wrote the app's manifest.
extension BrokerState {
    /// Checks the scopes that an app asks for, before anything is done for it.
    ///
    /// An app whose manifest has `scopes` gets those. Other apps get scopes that are of no service in particular, and where no enrolment is required,
    /// all: there any program may be an app, so that a scope proves nothing about it.
    ///
    /// - Throws: ``Refusal``, which names the scopes and what to write.
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

    /// Sees that a token of the organisation's provider permits all that the app has named, and nothing that its manifest lacks: providers may grant fewer
    /// scopes than they are asked for, or more (RFC 6749, section 3.3), and all tokens are issued to the one client that the broker is.
    func checkGrant(_ token: AccessToken, for request: TokenRequest) throws(Refusal) {
        let rights = eligibility.manifest(of: request.participant.app)?.tokens.scopes ?? []
        let excess = AccessToken.scopes(token.scopes, beyond: rights)
        guard excess.isEmpty else { throw .excessScopes(excess.sorted()) }
        guard request.areNamed else { return }
        let declined = AccessToken.scopes(request.scopes, notIn: token.scopes)
        guard !declined.isEmpty else { return }
        // As the manifest writes them: by these names the app may ask again.
        throw .declinedScopes(declined.sorted(), granted: AccessToken.scopes(rights, in: token.scopes).sorted())
    }

    /// The organisation's provider's word of who is signed in; `nil` where there is none, or the app may not have it: its manifest has to have each
    /// scope about the person that the sign-in was granted, because nobody can take a claim out of what the provider has signed.
    func idToken(for participant: Participant) -> String? {
        guard let identity = provider.identity, let rights = eligibility.manifest(of: participant.app)?.tokens.scopes,
            identity.scopes.isSubset(of: rights)
        else { return nil }
        return identity.text
    }

    /// Keeps the provider's word, once for all tokens that came with it.
    ///
    /// - Returns: the token without it.
    mutating func keepIdentity(_ token: AccessToken) -> AccessToken {
        if let identity = token.identity { provider.identity = identity }
        var token = token
        token.identity = nil
        return token
    }
}
