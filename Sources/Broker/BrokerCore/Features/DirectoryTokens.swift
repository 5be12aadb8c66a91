import Identity
import SharedDevice

/// The tokens that the device's own directory issues to apps.
struct DirectoryTokens: Sendable {
    private var tokens = TokenVault()
    /// The requests that wait for the directory.
    private var issues: [UInt64: TokenRequest] = [:]

    /// Gives the app a token: a cached one or a new one.
    mutating func acquireToken(_ wanted: TokenRequest, _ facts: Facts) throws(Refusal) -> [Decision] {
        let (participant, scopes) = (wanted.participant, wanted.scopes)
        try facts.checkScopes(scopes, of: participant)
        if !wanted.isRefresh, let kept = tokens.token(for: participant, scopes: scopes, at: facts.now) {
            return [wanted.handOver(kept)]
        }
        guard issues.values.count(where: { $0.participant.user == participant.user }) < Facts.tokensOfUser else {
            throw .tooManyQuestions
        }
        issues[wanted.request.number] = wanted
        return [.perform(.issueToken(wanted.request.number, wanted.account, scopes: scopes))]
    }

    /// - Returns: `nil` if the token is not for a request of an app.
    mutating func issued(
        _ number: UInt64,
        _ result: Result<AccessToken, IdentityError>,
        _ facts: Facts
    ) -> [Decision]? {
        guard let issue = issues.removeValue(forKey: number) else { return nil }
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

    mutating func abandonRequests(of connection: String) -> [Decision] {
        let abandoned = issues.filter { $0.value.request.connection == connection }.sorted { $0.key < $1.key }
        for (number, _) in abandoned { issues[number] = nil }
        return abandoned.map { .refuse($0.value.request, .requestAbandoned) }
    }
}
