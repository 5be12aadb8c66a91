package import HTTPClient
package import JSONWebSignature

/// What is known of the provider's description, and when it is worth reading again.
package struct MetadataCache: Sendable {
    /// How long a copy counts that the provider sets no time for.
    package static let usualAge: Duration = .seconds(3600)
    /// Whatever the provider says.
    package static let ages: ClosedRange<Duration> = .seconds(300) ... .seconds(86_400)
    /// How long an old copy serves while no new one can be read.
    package static let longestAge: Duration = .seconds(7 * 86_400)
    /// Between two attempts.
    package static let pause: Duration = .seconds(60)

    package enum Decision: Sendable, Hashable {
        case use(ProviderMetadata)
        case fetch
        /// The last attempt failed, just now.
        case fail(SignInError)
    }

    private struct Copy {
        let metadata: ProviderMetadata
        let readAt: ContinuousClock.Instant
        let staleAt: ContinuousClock.Instant
    }

    private var copy: Copy?
    private var failure: (error: SignInError, at: ContinuousClock.Instant)?

    package init() {}

    /// What to do when the description is needed.
    package func decision(at now: ContinuousClock.Instant) -> Decision {
        if let copy, now < copy.staleAt { return .use(copy.metadata) }
        guard let failure, now - failure.at < max(Self.pause, failure.error.retryAfter ?? .zero) else { return .fetch }
        if let copy, now - copy.readAt < Self.longestAge { return .use(copy.metadata) }
        return .fail(failure.error)
    }

    /// A new copy was read.
    ///
    /// - Parameter age: what the provider's `Cache-Control` allows.
    package mutating func read(_ metadata: ProviderMetadata, age: Duration?, at now: ContinuousClock.Instant) {
        let age = min(max(age ?? Self.usualAge, Self.ages.lowerBound), Self.ages.upperBound)
        copy = Copy(metadata: metadata, readAt: now, staleAt: now + age)
        failure = nil
    }

    /// No new copy could be read. One that names another issuer, or that is not to be believed, is no outage: the old copy does not serve then.
    package mutating func failed(_ error: SignInError, at now: ContinuousClock.Instant) {
        if error.code != .providerUnavailable { copy = nil }
        failure = (error, now)
    }

    /// The reason of a failure may be gone: the next attempt need not wait.
    package mutating func forgetFailure() { failure = nil }
}

/// Who needs keys. Each has a pause of its own between two attempts to read them, so that what strangers send keeps nothing from being judged that the
/// provider has just said itself.
package enum KeyNeed: Sendable, Hashable, CaseIterable {
    /// To judge a token that came from where others can send one, too.
    case message
    /// To judge a token that the provider has just given for a question of ours.
    case answer
    /// To have them there, before something is asked for that cannot be asked for again.
    case preparation
}

/// The provider's keys, and when they are worth reading again.
package struct KeyCache: Sendable {
    /// How long keys count: a key that the provider has withdrawn is forgotten then.
    package static let age: Duration = .seconds(3600)
    /// Between two attempts: tokens of strangers must not make us ask without end.
    package static let pause: Duration = .seconds(60)

    package enum Verdict: Sendable, Hashable {
        case verified(VerifiedToken)
        /// The keys have to be read, and then it is asked again.
        case fetch
        case refused(SignatureError)
        /// There are no keys, because the last attempt failed just now.
        case unavailable
    }

    /// Whether the keys have to be there before something is asked for that cannot be asked for again.
    package enum Readiness: Sendable, Hashable {
        /// They count for another ``pause`` at least.
        case ready
        case fetch
        case unavailable
    }

    private var keys: (set: JSONWebKeySet, readAt: ContinuousClock.Instant)?
    private var attempts: [KeyNeed: ContinuousClock.Instant] = [:]
    /// Where the last attempt has failed: until when the provider wants to be left alone.
    private var failedUntil: ContinuousClock.Instant?

    package init() {}

    package func readiness(at now: ContinuousClock.Instant) -> Readiness {
        if let keys, now - keys.readAt < Self.age - Self.pause { return .ready }
        return mayAsk(at: now, for: .preparation) ? .fetch : .unavailable
    }

    /// Strangers wait for everybody's last attempt, the others for their own.
    private func mayAsk(at now: ContinuousClock.Instant, for need: KeyNeed) -> Bool {
        if let failedUntil, now < failedUntil { return false }
        let last = need == .message ? attempts.values.max() : attempts[need]
        return last.map { now - $0 >= Self.pause } ?? true
    }

    /// What the keys say of a token. A key that is not known, and a wrong signature, may be a change of keys.
    package func verify(
        _ token: CompactSignature,
        at now: ContinuousClock.Instant,
        for need: KeyNeed = .message
    ) -> Verdict {
        let mayAsk = mayAsk(at: now, for: need)
        guard let keys, now - keys.readAt < Self.age else { return mayAsk ? .fetch : .unavailable }
        do throws(SignatureError) {
            return .verified(try keys.set.verify(token))
        } catch {
            return error.mayBeNewKey && mayAsk ? .fetch : .refused(error)
        }
    }

    /// Somebody goes to read the keys now.
    package mutating func willFetch(at now: ContinuousClock.Instant, for need: KeyNeed = .message) {
        attempts[need] = now
    }

    /// They could not be read.
    ///
    /// - Parameter retryAfter: how long the provider wants to be left alone.
    package mutating func failed(retryAfter: Duration?, at now: ContinuousClock.Instant) {
        failedUntil = now + (retryAfter ?? .zero)
    }

    /// The reason of a failure may be gone: the next attempt need not wait. After one that has not failed it still does.
    package mutating func forgetFailures() {
        guard failedUntil != nil else { return }
        (failedUntil, attempts) = (nil, [:])
    }

    /// The keys were read.
    package mutating func read(_ set: JSONWebKeySet, at now: ContinuousClock.Instant) {
        (keys, failedUntil) = ((set, now), nil)
    }
}

extension HTTPResponse {
    /// What `Cache-Control` allows; zero where it forbids to keep the answer.
    package var maximumAge: Duration? {
        guard let control = fields["cache-control"]?.lowercased() else { return nil }
        for part in control.split(separator: ",") {
            let words = part.split(separator: "=").map { $0.filter { $0 != " " && $0 != "\"" } }
            if words == ["no-store"] || words == ["no-cache"] { return .zero }
            if words.count == 2, words[0] == "max-age", let seconds = UInt32(words[1]) { return .seconds(seconds) }
        }
        return nil
    }
}
