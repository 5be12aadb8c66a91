import FoundationEssentials
package import Identity
import SharedDevice

/// An app's request for a token.
struct TokenRequest: Sendable {
    let request: Request
    let participant: Participant
    let account: Account
    /// The session.
    let epoch: UInt64
    var scopes: Set<String>
    /// Whether the app named the scopes and gets all or none. Otherwise it gets those of its manifest that are granted.
    let areNamed: Bool
    /// Whether the app asks for a new token instead of a cached one.
    let isRefresh: Bool

    func isSameToken(as other: TokenRequest) -> Bool { participant == other.participant && scopes == other.scopes }

    func handOver(_ token: AccessToken) -> Decision {
        .handOver(request, participant, Grant(account: account, epoch: epoch, token: token))
    }
}

/// The access tokens of the open session, in memory only. Each app has separate tokens.
package struct TokenVault: Sendable {
    private struct Key: Hashable {
        let participant: Participant
        let scopes: Set<String>
    }

    private struct Kept {
        let token: AccessToken
        let since: Duration
    }

    /// How long a token must still be valid to be handed out, in seconds. It still has to travel.
    static let margin: TimeInterval = 60
    /// How many tokens are kept for the apps of one user. The one that expires first is then dropped.
    static let capacity = 200
    /// How long a token is handed out again without asking the provider, which may have disabled the account: less than
    /// the three seconds within which that has to take effect.
    static let freshness = Duration.seconds(2)

    private var tokens: [Key: Kept] = [:]
    /// The token of the sign-in or of a check, which belongs to no app.
    private var common: AccessToken?

    package init() {}

    package var count: Int { tokens.count }

    package mutating func drop() { (tokens, common) = ([:], nil) }

    package mutating func keepCommon(_ token: AccessToken) { common = token }

    /// The token that belongs to no app; `nil` if there is none, or if it expires too soon.
    package func common(at now: Moment) -> AccessToken? { common.flatMap { isUsable($0, at: now.wall) ? $0 : nil } }

    /// Stores the token, which may permit fewer scopes than these, and replaces an earlier one of the same app and
    /// scopes.
    package mutating func store(
        _ token: AccessToken,
        for participant: Participant,
        scopes: Set<String>,
        at now: Moment
    ) {
        let key = Key(participant: participant, scopes: scopes)
        if tokens[key] == nil { makeRoom(participant.user, at: now) }
        tokens[key] = Kept(token: token, since: now.uptime)
    }

    /// The app's token for these scopes; `nil` if there is none, if it expires too soon, or if it was obtained more
    /// than ``freshness`` ago.
    package func token(for participant: Participant, scopes: Set<String>, at now: Moment) -> AccessToken? {
        guard let kept = tokens[Key(participant: participant, scopes: scopes)], isUsable(kept.token, at: now.wall),
            now.uptime - kept.since < Self.freshness
        else { return nil }
        return kept.token
    }

    /// The app's token for these scopes, regardless of its age; `nil` if there is none, or if it expires too soon.
    package func anyToken(for participant: Participant, scopes: Set<String>, at now: Moment) -> AccessToken? {
        let token = tokens[Key(participant: participant, scopes: scopes)]?.token
        return token.flatMap { isUsable($0, at: now.wall) ? $0 : nil }
    }

    private func isUsable(_ token: AccessToken, at now: Date) -> Bool {
        token.expiresAt.timeIntervalSince(now) > Self.margin
    }

    private mutating func makeRoom(_ user: UInt32, at now: Moment) {
        guard tokens.keys.count(where: { $0.participant.user == user }) >= Self.capacity else { return }
        tokens = tokens.filter { isUsable($0.value.token, at: now.wall) }
        let own = tokens.filter { $0.key.participant.user == user }
        guard own.count >= Self.capacity,
            let first = own.min(by: { $0.value.token.expiresAt < $1.value.token.expiresAt })
        else { return }
        tokens[first.key] = nil
    }
}
