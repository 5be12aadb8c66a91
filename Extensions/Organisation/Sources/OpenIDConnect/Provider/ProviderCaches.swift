package import Cryptography
package import HTTPClient
package import Identity

/// The cached metadata of the provider. Decides when to read it again.
package struct MetadataCache: Sendable {
    /// How long a copy is fresh if the provider sets no time.
    package static let usualAge: Duration = .seconds(3600)
    /// The bounds of the provider's own time.
    package static let ages: ClosedRange<Duration> = .seconds(300) ... .seconds(86_400)
    /// How long an old copy is used while no new one can be read.
    package static let longestAge: Duration = .seconds(7 * 86_400)
    /// The time between two attempts.
    package static let pause: Duration = .seconds(60)

    package enum Decision: Sendable, Hashable {
        case use(ProviderMetadata)
        case fetch
        /// The last attempt failed, and the pause after it is not over.
        case fail(IdentityError)
    }

    private struct Copy {
        let metadata: ProviderMetadata
        let readAt: ContinuousClock.Instant
        let staleAt: ContinuousClock.Instant
    }

    private var copy: Copy?
    private var failure: (error: IdentityError, at: ContinuousClock.Instant)?

    package init() {}

    package func decision(at now: ContinuousClock.Instant) -> Decision {
        if let copy, now < copy.staleAt { return .use(copy.metadata) }
        guard let failure, now - failure.at < max(Self.pause, failure.error.retryAfter ?? .zero) else { return .fetch }
        if let copy, now - copy.readAt < Self.longestAge { return .use(copy.metadata) }
        return .fail(failure.error)
    }

    /// Stores a new copy.
    ///
    /// - Parameter age: The time that the provider's `Cache-Control` allows.
    package mutating func read(_ metadata: ProviderMetadata, age: Duration?, at now: ContinuousClock.Instant) {
        let age = min(max(age ?? Self.usualAge, Self.ages.lowerBound), Self.ages.upperBound)
        copy = Copy(metadata: metadata, readAt: now, staleAt: now + age)
        failure = nil
    }

    /// Records a failed attempt. A document that is untrusted or names another issuer is no outage: the old copy is
    /// dropped.
    package mutating func failed(_ error: IdentityError, at now: ContinuousClock.Instant) {
        if error.code != .providerUnavailable { copy = nil }
        failure = (error, now)
    }

    /// Lets the next attempt start without a pause, because the cause of the failure may have gone.
    package mutating func forgetFailure() { failure = nil }
}

/// The purpose for which keys are needed. Each purpose has its own pause between two attempts to read the keys. So
/// messages from strangers do not delay the check of a token that the provider has just issued.
package enum KeyNeed: Sendable, Hashable, CaseIterable {
    /// To check a token from a source that strangers can use as well.
    case message
    /// To check a token that the provider has just sent in response to a request.
    case answer
    /// To have the keys ready before a request that cannot be repeated.
    case preparation
}

/// The cached keys of the provider. Decides when to read them again.
package struct KeyCache: Sendable {
    /// How long keys are valid. It limits how long a withdrawn key is still trusted.
    package static let age: Duration = .seconds(3600)
    /// The time between two attempts, so that tokens of strangers do not cause endless requests.
    package static let pause: Duration = .seconds(60)

    package enum Verdict: Sendable, Hashable {
        case verified(VerifiedToken)
        /// Read the keys, then verify again.
        case fetch
        case refused(SignatureError)
        /// There are no keys, because the last attempt failed just now.
        case unavailable
    }

    /// Whether the keys are ready for a request that cannot be repeated.
    package enum Readiness: Sendable, Hashable {
        /// The keys stay valid for another ``pause`` at least.
        case ready
        case fetch
        case unavailable
    }

    private var keys: (set: JSONWebKeySet, readAt: ContinuousClock.Instant)?
    private var attempts: [KeyNeed: ContinuousClock.Instant] = [:]
    /// After a failure: the end of the provider's `Retry-After`.
    private var failedUntil: ContinuousClock.Instant?

    package init() {}

    package func readiness(at now: ContinuousClock.Instant) -> Readiness {
        if let keys, now - keys.readAt < Self.age - Self.pause { return .ready }
        return mayAsk(at: now, for: .preparation) ? .fetch : .unavailable
    }

    /// A message waits for the pause after the last attempt of any purpose, the other purposes only for their own.
    private func mayAsk(at now: ContinuousClock.Instant, for need: KeyNeed) -> Bool {
        if let failedUntil, now < failedUntil { return false }
        let last = need == .message ? attempts.values.max() : attempts[need]
        return last.map { now - $0 >= Self.pause } ?? true
    }

    /// Verifies a token with the cached keys. An unknown key or a wrong signature may be due to a change of keys.
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

    package mutating func willFetch(at now: ContinuousClock.Instant, for need: KeyNeed = .message) {
        attempts[need] = now
    }

    /// Records a failed attempt.
    package mutating func failed(retryAfter: Duration?, at now: ContinuousClock.Instant) {
        failedUntil = now + (retryAfter ?? .zero)
    }

    /// Lets the next attempt start without a pause if the last one failed, because the cause may have gone.
    package mutating func forgetFailures() {
        guard failedUntil != nil else { return }
        (failedUntil, attempts) = (nil, [:])
    }

    package mutating func read(_ set: JSONWebKeySet, at now: ContinuousClock.Instant) {
        (keys, failedUntil) = ((set, now), nil)
    }
}

extension HTTPResponse {
    /// The time that `Cache-Control` allows; zero if it forbids caching.
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
