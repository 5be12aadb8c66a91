import Basics
import Cryptography
import DBus
import Identity
import Synchronization

/// The provider's keys, shared by concurrent callers. At most one read is in flight; every caller that lacks a key
/// waits for its end. A token that arrives during a read is checked with the new keys.
final class ProviderKeys: Sendable {
    /// Reads the keys. It calls `willAsk` just before it requests the keys: a failure before that call has not cost the
    /// provider a request.
    typealias Reading = @Sendable (_ willAsk: @Sendable () -> Void) async -> Result<JSONWebKeySet, IdentityError>

    private struct State {
        var cache = KeyCache()
        /// The numbers of reads begun and ended. They differ by one while a read is in flight.
        var begun: UInt64 = 0
        var ended: UInt64 = 0
        /// The error of the last read that has ended; `nil` if it succeeded.
        var failure: IdentityError?
        var nextWaiter: UInt64 = 0
        var waiting: [UInt64: CheckedContinuation<IdentityError?, Never>] = [:]

        var isReading: Bool { ended < begun }

        /// - Returns: The number of the read, which is in flight from now on.
        mutating func beginReading() -> UInt64 {
            begun += 1
            return begun
        }
    }

    /// The next step of a caller.
    private enum Step<Judgement> {
        case judged(Judgement)
        /// Another caller's read is in flight: wait for its end.
        case join(UInt64)
        /// This caller must begin the read. The others join it.
        case begin(UInt64)
    }

    private let clock: OpenIDConnectClient.Clock
    private let state = Locked(State())

    init(clock: OpenIDConnectClient.Clock) { self.clock = clock }

    /// Verifies a token, and reads the keys again if that may help.
    ///
    /// - Returns: The verdict, and whether this call has read the keys itself.
    /// - Throws: The reason why the keys could not be read; `cancelled`.
    func verify(
        _ token: CompactSignature,
        for need: KeyNeed,
        _ read: @escaping Reading
    ) async throws(IdentityError) -> (verdict: KeyCache.Verdict, hasRead: Bool) {
        var hasRead = false
        var failure: IdentityError?
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
            // If the other caller's read has failed, this caller's own may succeed.
            case .join(let reading): failure = try await end(of: reading)
            case .begin(let reading):
                hasRead = true
                begin(need, read)
                if let failure = try await end(of: reading) { throw failure }
            }
        }
    }

    /// The token's content, if the cached keys verify it.
    func verifiedByKnownKeys(_ token: CompactSignature) -> VerifiedToken? {
        guard case .verified(let verified) = state.withLock({ $0.cache.verify(token, at: clock.now()) }) else {
            return nil
        }
        return verified
    }

    /// Makes sure that there are keys that stay valid for a while.
    ///
    /// - Returns: `false` if the last attempt failed just now, and the pause is not over.
    /// - Throws: The reason why the keys could not be read; `cancelled`.
    func prepare(_ read: @escaping Reading) async throws(IdentityError) -> Bool {
        var failure: IdentityError?
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

    /// Reads the keys, even if the cached ones are fresh.
    func reread(_ read: @escaping Reading) async throws(IdentityError) {
        let (reading, isFirst) = state.withLock { state in
            state.isReading ? (state.begun, false) : (state.beginReading(), true)
        }
        if isFirst { begin(.preparation, read) }
        if let failure = try await end(of: reading) { throw failure }
    }

    /// Lets the next attempt start without a pause.
    func forgetFailures() { state.withLock { $0.cache.forgetFailures() } }

    /// Reads the keys in an unstructured task. It goes on if the caller is cancelled, because other callers may wait
    /// for it and the next caller needs its result. The time limits of the request end it.
    private func begin(_ need: KeyNeed, _ read: @escaping Reading) {
        Task { [self] in
            let outcome = await read { [self] in state.withLock { $0.cache.willFetch(at: clock.now(), for: need) } }
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

    /// Waits for the end of a read, which may have ended already.
    ///
    /// - Returns: The error of the read; `nil` if it succeeded, or if a later one has ended since. The caller then
    ///   looks at the cache again.
    /// - Throws: `cancelled` if this task is cancelled.
    private func end(of reading: UInt64) async throws(IdentityError) -> IdentityError? {
        let number = state.withLock { state in
            state.nextWaiter += 1
            return state.nextWaiter
        }
        let failure = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let result = state.withLock { state -> IdentityError?? in
                    if state.ended >= reading { return .some(state.ended == reading ? state.failure : nil) }
                    // The cancellation handler has already run, and found no continuation.
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
