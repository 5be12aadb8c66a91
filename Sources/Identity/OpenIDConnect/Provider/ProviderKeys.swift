import DBusTransport
import JSONWebSignature
import Synchronization

/// The provider's keys, for all who need them at the same time: at most one reading is under way, and whoever lacks a key meanwhile waits for its end.
/// A token that comes while the keys are read is judged by the new ones.
final class ProviderKeys: Sendable {
    /// Reads the keys. It says by the call that it is about to ask for them: what fails before that has cost the provider no request for keys.
    typealias Reading = @Sendable (_ willAsk: @Sendable () -> Void) async -> Result<JSONWebKeySet, SignInError>

    private struct State {
        var cache = KeyCache()
        /// How many readings have begun, and how many have ended: one less, where one is under way.
        var begun: UInt64 = 0
        var ended: UInt64 = 0
        /// Why the last one that has ended has failed; `nil` where it has not.
        var failure: SignInError?
        var nextWaiter: UInt64 = 0
        var waiting: [UInt64: CheckedContinuation<SignInError?, Never>] = [:]

        var isReading: Bool { ended < begun }

        /// - Returns: the number of the reading that is under way from now on.
        mutating func beginReading() -> UInt64 {
            begun += 1
            return begun
        }
    }

    /// What follows from what is known now.
    private enum Step<Judgement> {
        case judged(Judgement)
        /// Another caller's reading is under way.
        case join(UInt64)
        /// This caller has to begin one; nobody else does from now on.
        case begin(UInt64)
    }

    private let clock: OpenIDConnectClient.Clock
    private let state = Locked(State())

    init(clock: OpenIDConnectClient.Clock) { self.clock = clock }

    /// What the keys say of a token, read again where that may help.
    ///
    /// - Returns: the verdict, and whether this call has read the keys itself.
    /// - Throws: why the keys could not be read; `cancelled`.
    func verify(
        _ token: CompactSignature,
        for need: KeyNeed,
        _ read: @escaping Reading
    ) async throws(SignInError) -> (verdict: KeyCache.Verdict, hasRead: Bool) {
        var hasRead = false
        var failure: SignInError?
        while true {
            let step = state.withLock { state -> Step<KeyCache.Verdict> in
                let verdict = state.cache.verify(token, at: clock.now(), for: need)
                let lacksKey =
                    switch verdict {
                    case .verified: false
                    case .refused(let error): error.mayBeNewKey
                    case .fetch, .unavailable: true
                    }
                if lacksKey, !hasRead, state.isReading { return .join(state.begun) }
                guard verdict == .fetch, !hasRead else { return .judged(verdict) }
                return .begin(state.beginReading())
            }
            switch step {
            case .judged(let verdict):
                if verdict == .unavailable, let failure { throw failure }
                return (verdict, hasRead)
            // Where another's reading has failed, this caller's own may do better.
            case .join(let reading): failure = try await end(of: reading)
            case .begin(let reading):
                hasRead = true
                begin(need, read)
                if let failure = try await end(of: reading) { throw failure }
            }
        }
    }

    /// The token's content, if the keys that were read before verify it.
    func verifiedByKnownKeys(_ token: CompactSignature) -> VerifiedToken? {
        guard case .verified(let verified) = state.withLock({ $0.cache.verify(token, at: clock.now()) }) else {
            return nil
        }
        return verified
    }

    /// Sees to it that keys are there which count for a while.
    ///
    /// - Returns: whether they are; `false` where they could not be read just now, and are not asked for again yet.
    /// - Throws: why the keys could not be read; `cancelled`.
    func prepare(_ read: @escaping Reading) async throws(SignInError) -> Bool {
        var failure: SignInError?
        while true {
            let step = state.withLock { state -> Step<KeyCache.Readiness> in
                let readiness = state.cache.readiness(at: clock.now())
                guard readiness != .ready else { return .judged(readiness) }
                if state.isReading { return .join(state.begun) }
                guard readiness == .fetch else { return .judged(readiness) }
                return .begin(state.beginReading())
            }
            switch step {
            case .judged(let readiness):
                if readiness != .ready, let failure { throw failure }
                return readiness == .ready
            case .join(let reading): failure = try await end(of: reading)
            case .begin(let reading):
                begin(.preparation, read)
                if let failure = try await end(of: reading) { throw failure }
            }
        }
    }

    /// Reads the keys, whatever is known.
    func reread(_ read: @escaping Reading) async throws(SignInError) {
        let (reading, isFirst) = state.withLock { state in
            state.isReading ? (state.begun, false) : (state.beginReading(), true)
        }
        if isFirst { begin(.preparation, read) }
        if let failure = try await end(of: reading) { throw failure }
    }

    /// What has failed is worth another attempt at once.
    func forgetFailures() { state.withLock { $0.cache.forgetFailures() } }

    /// It goes on when whoever has begun it gives up: others may wait for it, and the next one needs it. The limits of a request end it.
    private func begin(_ need: KeyNeed, _ read: @escaping Reading) {
        Task { [self] in
            let outcome = await read { [self] in
                state.withLock { $0.cache.willFetch(at: clock.now(), for: need) }
            }
            let (waiting, failure) = state.withLock { state in
                switch outcome {
                case .success(let keys):
                    state.cache.read(keys, at: clock.now())
                    state.failure = nil
                case .failure(let error):
                    state.cache.failed(retryAfter: error.retryAfter, at: clock.now())
                    state.failure = error
                }
                state.ended = state.begun
                defer { state.waiting = [:] }
                return (state.waiting.values, state.failure)
            }
            for continuation in waiting { continuation.resume(returning: failure) }
        }
    }

    /// Waits for the end of this reading, which may have come already.
    ///
    /// - Returns: why it has failed; `nil` where it has not, or where a later one has ended, too: what is known by then says what follows.
    /// - Throws: `cancelled`, where this task is.
    private func end(of reading: UInt64) async throws(SignInError) -> SignInError? {
        let number = state.withLock { state in
            state.nextWaiter += 1
            return state.nextWaiter
        }
        let failure = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let result = state.withLock { state -> SignInError?? in
                    if state.ended >= reading { return .some(state.ended == reading ? state.failure : nil) }
                    // A task that was cancelled before has found nobody to wake.
                    if Task.isCancelled { return .some(nil) }
                    state.waiting[number] = continuation
                    return nil
                }
                if let result { continuation.resume(returning: result) }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(returning: nil)
        }
        guard !Task.isCancelled else { throw .cancelled }
        return failure
    }
}
