import Identity
import SharedDevice

/// The tokens that the device's own directory issues to apps.
struct DirectoryTokens: Sendable {
    private var tokens = TokenVault()

    /// Gives the app a token: a cached one or a new one.
    mutating func acquireToken(_ wanted: TokenRequest, _ facts: Facts) throws(Refusal) -> [Decision] {
        let (participant, scopes) = (wanted.participant, wanted.scopes)
        try facts.checkScopes(scopes, of: participant)
        if !wanted.isRefresh, let kept = tokens.token(for: participant, scopes: scopes, at: facts.now) {
            return [wanted.handOver(kept)]
        }
        let issues = facts.waiting.count { entry in
            guard case .directoryToken(let issue) = entry.reason else { return false }
            return issue.participant.user == participant.user
        }
        guard issues < Facts.tokensOfUser else { throw .tooManyQuestions }
        let number = wanted.request.number
        return [
            .wait(wanted.request, for: .directoryToken(wanted)),
            .perform(.issueToken(number, wanted.account, scopes: scopes)),
        ]
    }

    /// - Returns: `nil` if the token is not for a request of an app.
    mutating func issued(
        _ number: UInt64,
        _ result: Result<AccessToken, IdentityError>,
        _ facts: Facts
    ) -> [Decision]? {
        guard case .directoryToken(let issue)? = facts.waiting[number]?.reason else { return nil }
        switch result {
        case .failure(let error): return [.refuse(issue.request, Refusal(error))]
        case .success(let token):
            guard facts.device.account != nil, issue.epoch == facts.device.epoch else {
                return [.refuse(issue.request, facts.sessionIsOver(issue.account.identifier))]
            }
            keep(token, for: issue.participant, issue.scopes, facts)
            return [issue.handOver(token)]
        }
    }

    mutating func keep(_ token: AccessToken, for participant: Participant, _ scopes: Set<String>, _ facts: Facts) {
        tokens.store(token, for: participant, scopes: scopes, at: facts.now)
    }

    mutating func drop() { tokens.drop() }
}
