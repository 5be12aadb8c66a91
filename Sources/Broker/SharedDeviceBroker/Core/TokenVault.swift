import FoundationEssentials
package import Identity
import SharedDevice

/// The access tokens of the one session that is open, in memory only. Pure: the caller brings the time.
///
/// Each app has tokens of its own. All of them go with the session.
package struct TokenVault: Sendable {
    private struct Key: Hashable {
        let participant: Participant
        let scopes: Set<String>
    }

    private struct Kept {
        let token: AccessToken
        let since: Duration
    }

    /// How long a token must still be valid to be handed out, in seconds: it has yet to travel.
    static let margin: TimeInterval = 60
    /// How many tokens of one user's apps are kept at most; over that, the one that ends first goes.
    static let capacity = 200
    /// How long a token is handed out again without asking the provider, which may have disabled the account: less than the three seconds in which that
    /// has to count.
    static let freshness = Duration.seconds(2)

    private var tokens: [Key: Kept] = [:]
    /// The token of the sign-in itself, or of a check: it is no app's.
    private var common: AccessToken?

    package init() {}

    /// How many tokens are kept.
    package var count: Int { tokens.count }

    /// Forgets all tokens.
    package mutating func drop() { (tokens, common) = ([:], nil) }

    package mutating func keepCommon(_ token: AccessToken) { common = token }

    /// The token that is no app's; `nil` where there is none, or it ends too soon.
    package func common(at now: Moment) -> AccessToken? { common.flatMap { isUsable($0, at: now.wall) ? $0 : nil } }

    /// Keeps `token`, in place of an earlier one of the same app for the same scopes.
    ///
    /// - Parameter scopes: What was asked for, which may be more than the token permits.
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

    /// The app's token for these scopes; `nil` where there is none, it ends too soon, or the provider has not been asked for long.
    package func token(for participant: Participant, scopes: Set<String>, at now: Moment) -> AccessToken? {
        guard let kept = tokens[Key(participant: participant, scopes: scopes)], isUsable(kept.token, at: now.wall),
            now.uptime - kept.since < Self.freshness
        else { return nil }
        return kept.token
    }

    /// The app's token for these scopes, however long ago the provider was asked; `nil` where there is none, or it ends too soon.
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
