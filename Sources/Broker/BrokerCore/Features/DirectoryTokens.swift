import Identity
import SharedDevice

/// The tokens that the device's own directory issues to apps.
struct DirectoryTokens: Sendable {
    private struct Issue: Sendable {
        let request: Request
        let participant: Participant
        let scopes: Set<String>
        let identifier: String
        let epoch: UInt64
    }

    private var tokens = TokenVault()
    /// The requests that wait for the directory.
    private var issues: [UInt64: Issue] = [:]

    /// Gives the app a token: a cached one or a new one.
    mutating func acquireToken(
        _ request: Request,
        _ participant: Participant,
        _ account: Account,
        _ scopes: Set<String>,
        refresh: Bool,
        _ facts: Facts
    ) throws(Refusal) -> [Decision] {
        try facts.checkScopes(scopes, of: participant)
        let epoch = facts.device.epoch
        if !refresh, let kept = tokens.token(for: participant, scopes: scopes, at: facts.now) {
            return [.handOver(request, participant, Grant(account: account, epoch: epoch, token: kept))]
        }
        guard issues.values.count(where: { $0.participant.user == participant.user }) < Facts.tokensOfUser else {
            throw .tooManyQuestions
        }
        issues[request.number] = Issue(
            request: request,
            participant: participant,
            scopes: scopes,
            identifier: account.identifier,
            epoch: epoch
        )
        return [.perform(.issueToken(request.number, account, scopes: scopes))]
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
            guard let account = facts.device.account, issue.epoch == facts.device.epoch else {
                return [.refuse(issue.request, facts.sessionIsOver(issue.identifier))]
            }
            keep(token, for: issue.participant, issue.scopes, facts)
            let grant = Grant(account: account, epoch: issue.epoch, token: token)
            return [.handOver(issue.request, issue.participant, grant)]
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
