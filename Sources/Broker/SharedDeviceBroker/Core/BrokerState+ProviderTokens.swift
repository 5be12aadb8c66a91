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
        // Who wants what is waited for already gets it with the same question.
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

    /// The app has had the provider asked too often: it gets what is known already.
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

    /// What is asked for the app counts until the next sign-in, for which there has to be a person.
    func asker(_ participant: Participant) -> QuestionPace.Asker {
        QuestionPace.Asker(participant: participant, generation: provider.generation)
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
        request.isRefresh ? nil : storedToken(for: request)
    }

    /// One that is there, also where the app wants a new one.
    private func storedToken(for request: TokenRequest) -> AccessToken? {
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

/// How often each app has the provider asked, whatever comes of it: a question is a request to the provider, and a change of the disk. Pure: the caller
/// brings the time.
struct QuestionPace: Sendable {
    /// How many questions an app of one user has at first, and how long it takes until it has one more.
    static let (burst, interval) = (16, Duration.seconds(15))

    /// An app that asks during one sign-in: another person may be granted other scopes.
    struct Asker: Sendable, Hashable {
        let participant: Participant
        let generation: UInt64
    }

    private struct Entry {
        /// When the app has all of its questions again.
        var restored: Duration
        /// The scopes that the provider has refused last.
        var refused: Set<String>?
    }

    private var entries: [Asker: Entry] = [:]

    /// How many apps are remembered.
    var count: Int { entries.count }

    /// How long until the app may have the provider asked; `nil` where it may now.
    ///
    /// - Parameter waiting: how many of its questions are not put yet.
    func pause(of asker: Asker, waiting: Int = 0, at now: Duration) -> Duration? {
        let restored = max(entries[asker]?.restored ?? now, now) + Self.interval * waiting
        let pause = restored - now - Self.interval * (Self.burst - 1)
        return pause > .zero ? pause : nil
    }

    /// The app has the provider asked.
    mutating func take(_ asker: Asker, at now: Duration) {
        // Who has all questions again is as good as new.
        entries = entries.filter { $0.value.restored > now }
        entries[asker, default: Entry(restored: now)].restored += Self.interval
    }

    /// The provider has refused the scopes that the app has had it asked for.
    mutating func note(_ refused: Set<String>, to asker: Asker) { entries[asker]?.refused = refused }

    /// Whether these scopes are those that the provider has refused last.
    func hasRefused(_ scopes: Set<String>, to asker: Asker) -> Bool { entries[asker]?.refused == scopes }
}

extension Refusal {
    /// - Parameter pause: how long until the app may have the provider asked.
    fileprivate static func askedTooOften(_ pause: Duration) -> Refusal {
        // Rounded up, so that who waits that long has waited long enough.
        let seconds = pause.components.seconds + (pause.components.attoseconds > 0 ? 1 : 0)
        return Refusal(
            .tooManyAttempts,
            "this app has the organisation's provider asked too often; try again in \(seconds) s, or keep tokens until they end"
        )
    }
}
