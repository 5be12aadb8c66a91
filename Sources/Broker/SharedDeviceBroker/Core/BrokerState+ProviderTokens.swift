import DBusTransport
import DeviceConfiguration
import FoundationEssentials
import Identity
import SharedDevice

/// Tokens of the organisation's provider: who gets which, and who waits.
extension BrokerState {
    /// How many apps wait for a token at a time.
    static let longestQueue = 256

    /// Gives the app a token of the provider: one that is there, or else a new one.
    mutating func acquireProviderToken(
        _ request: Request,
        _ participant: Participant,
        _ account: Account,
        _ wanted: Set<String>,
        refresh: Bool
    ) throws(Refusal) -> BrokerProtocol.Fields? {
        let scopes = try scopes(wanted, for: participant)
        if provider.needsPerson { throw personNeeded }
        let token = TokenRequest(
            number: request.number,
            participant: participant,
            scopes: scopes,
            areNamed: !wanted.isEmpty,
            isRefresh: refresh
        )
        if let kept = keptToken(for: token) {
            try checkGrant(kept, for: token)
            return try handOver(request, participant, Grant(account: account, epoch: device.epoch, token: kept))
        }
        if isProviderPaused, provider.renewal == nil, let problem = provider.problem { throw problem }
        try checkRoom(of: participant.user, isPassword: false)
        guard provider.queue.count < Self.longestQueue else { throw .tooManyQuestions }
        let purpose = Asked.Purpose.token(scopes: scopes, epoch: device.epoch, identifier: account.identifier)
        asked[request.number] = Asked(request: request, participant: participant, purpose: purpose)
        provider.queue.append(token)
        return nil
    }

    /// What the app may ask for, by its manifest. An app that names nothing gets all of that.
    private func scopes(_ wanted: Set<String>, for participant: Participant) throws(Refusal) -> Set<String> {
        let rights = eligibility.manifest(of: participant.app)?.tokens ?? TokenRights()
        guard !rights.scopes.isEmpty else { throw .noScopes }
        let refused = rights.refused(of: wanted)
        guard refused.isEmpty else { throw .refusedScopes(refused) }
        return wanted.isEmpty ? rights.scopes : wanted
    }

    private func keptToken(for request: TokenRequest) -> AccessToken? {
        if request.isRefresh { return nil }
        if let token = tokens.anyToken(for: request.participant, scopes: request.scopes, at: now) { return token }
        // That of the sign-in itself permits whatever was granted then, which may be more than the app may have.
        let rights = eligibility.manifest(of: request.participant.app)?.tokens.scopes ?? []
        guard let token = tokens.common(at: now), token.scopes.isSubset(of: rights),
            request.scopes.isSubset(of: token.scopes)
        else { return nil }
        return token
    }

    /// A token has come: for whoever asked for it, and for those whom it serves as well.
    mutating func take(_ token: AccessToken, for request: TokenRequest?) {
        let token = keepIdentity(token)
        guard let request else { return tokens.keepCommon(token) }
        tokens.store(token, for: request.participant, scopes: request.scopes, at: now)
        let waiting = provider.queue
        for next in waiting {
            guard let kept = next.isSameToken(as: request) ? token : keptToken(for: next) else { continue }
            provider.queue.removeAll { $0.number == next.number }
            guard let asked = asked.removeValue(forKey: next.number), let account = device.account else { continue }
            do throws(Refusal) {
                try checkGrant(kept, for: next)
                let grant = Grant(account: account, epoch: device.epoch, token: kept)
                if let fields = try handOver(asked.request, asked.participant, grant) {
                    reply(asked.request.number, fields)
                }
            } catch {
                refuse(asked.request, error)
            }
        }
    }

    mutating func refuseTokens(_ refusal: Refusal, where isMeant: (TokenRequest) -> Bool = { _ in true }) {
        let meant = provider.queue.filter(isMeant)
        provider.queue.removeAll(where: isMeant)
        for request in meant {
            if let asked = asked.removeValue(forKey: request.number) { refuse(asked.request, refusal) }
        }
    }

    /// The app does not wait any more. A renewal that is under way for it goes on, because its answer may have a new record.
    mutating func forgetTokenRequest(_ number: UInt64) { provider.queue.removeAll { $0.number == number } }
}
