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
}
