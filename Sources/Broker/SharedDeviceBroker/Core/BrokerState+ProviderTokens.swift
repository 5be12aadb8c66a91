import DBus
import DeviceConfiguration
import FoundationEssentials
import Identity
@_spi(Extensions) import SharedDevice

/// Tokens of the organisation's provider: which app receives which token, and which apps wait.
extension BrokerState {
    /// How many token requests may wait at a time.
    static let longestQueue = 256

    /// Gives the app a token of the provider: a cached one or a new one.
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
        // A request for a token that is already awaited gets it from the same renewal.
        if !provider.queue.contains(where: token.isSameToken(as:)) {
            let waiting = Set(provider.queue.filter { $0.participant == participant }.map(\.scopes)).count
            if let pause = provider.pace.pause(of: asker(participant), waiting: waiting, at: now.uptime) {
                return try handOverKnown(request, account, token, pause)
            }
        }
        let purpose = Asked.Purpose.token(scopes: scopes, epoch: device.epoch, identifier: account.identifier)
        asked[request.number] = Asked(request: request, participant: participant, purpose: purpose)
        provider.queue.append(token)
        return nil
    }

    /// Responds to an app that has used up its requests to the provider: with the cached result, or with a refusal.
    private mutating func handOverKnown(
        _ request: Request,
        _ account: Account,
        _ token: TokenRequest,
        _ pause: Duration
    ) throws(Refusal) -> BrokerProtocol.Fields? {
        if provider.pace.hasRefused(token.scopes, to: asker(token.participant)) { throw .scopesNotGranted }
        guard let kept = storedToken(for: token) else { throw .askedTooOften(pause) }
        try checkGrant(kept, for: token)
        return try handOver(request, token.participant, Grant(account: account, epoch: device.epoch, token: kept))
    }

    /// The key of the app's request count. The count starts again at the next sign-in, which an app cannot cause
    /// without a person.
    func asker(_ participant: Participant) -> QuestionPace.Asker {
        QuestionPace.Asker(participant: participant, generation: provider.generation)
    }

    /// The scopes to request, limited by the app's manifest. An app that names no scopes gets all of its manifest's
    /// scopes.
    private func scopes(_ wanted: Set<String>, for participant: Participant) throws(Refusal) -> Set<String> {
        let rights = eligibility.manifest(of: participant.app)?.tokens ?? TokenRights()
        guard !rights.scopes.isEmpty else { throw .noScopes }
        let refused = rights.refused(of: wanted)
        guard refused.isEmpty else { throw .refusedScopes(refused) }
        return wanted.isEmpty ? rights.scopes : wanted
    }

    private func keptToken(for request: TokenRequest) -> AccessToken? {
        request.isRefresh ? nil : storedToken(for: request)
    }

    /// A cached token, even if the app has asked for a new one.
    private func storedToken(for request: TokenRequest) -> AccessToken? {
        if let token = tokens.anyToken(for: request.participant, scopes: request.scopes, at: now) { return token }
        // The sign-in's token permits all scopes granted at that time, which may exceed the app's scopes.
        let rights = eligibility.manifest(of: request.participant.app)?.tokens.scopes ?? []
        guard let token = tokens.common(at: now), token.scopes.isSubset(of: rights),
            request.scopes.isSubset(of: token.scopes)
        else { return nil }
        return token
    }

    /// Stores a new token, and gives it to all waiting requests that it satisfies. The token of a check is only stored.
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

    /// Removes an app's request that was given up. A renewal in flight for it continues, because its response may
    /// contain a new record.
    mutating func forgetTokenRequest(_ number: UInt64) { provider.queue.removeAll { $0.number == number } }
}

/// Limits how often each app causes a request to the provider, whatever the result: each one costs a request over the
/// network and a commit.
///
/// Pure: the caller passes the time.
struct QuestionPace: Sendable {
    /// How many requests an app of one user has at first, and after what time it gets another one.
    static let (burst, interval) = (16, Duration.seconds(15))

    /// An app during one sign-in. The limit starts again with the next sign-in, because another person may be granted
    /// other scopes.
    struct Asker: Sendable, Hashable {
        let participant: Participant
        let generation: UInt64
    }

    private struct Entry {
        /// When the app has all of its requests again.
        var restored: Duration
        /// The scopes that the provider last refused.
        var refused: Set<String>?
    }

    private var entries: [Asker: Entry] = [:]

    var count: Int { entries.count }

    /// How long until the app may cause a request to the provider; `nil` if it may now.
    ///
    /// - Parameter waiting: How many of its requests are not sent yet.
    func pause(of asker: Asker, waiting: Int = 0, at now: Duration) -> Duration? {
        let restored = max(entries[asker]?.restored ?? now, now) + Self.interval * waiting
        let pause = restored - now - Self.interval * (Self.burst - 1)
        return pause > .zero ? pause : nil
    }

    mutating func take(_ asker: Asker, at now: Duration) {
        // An entry with all of its requests restored equals a new entry.
        entries = entries.filter { $0.value.restored > now }
        entries[asker, default: Entry(restored: now)].restored += Self.interval
    }

    mutating func note(_ refused: Set<String>, to asker: Asker) { entries[asker]?.refused = refused }

    /// Whether the provider last refused exactly these scopes.
    func hasRefused(_ scopes: Set<String>, to asker: Asker) -> Bool { entries[asker]?.refused == scopes }
}

extension Refusal {
    /// - Parameter pause: How long until the app may cause a request to the provider.
    fileprivate static func askedTooOften(_ pause: Duration) -> Refusal {
        // Rounded up, so that an app that waits for this time has waited long enough.
        let seconds = pause.components.seconds + (pause.components.attoseconds > 0 ? 1 : 0)
        return Refusal(
            .tooManyAttempts,
            "this app has caused too many requests to the organisation's provider; try again in \(seconds) s, or keep tokens until they expire"
        )
    }
}
