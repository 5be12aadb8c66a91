import Basics
import Synchronization

extension DBusConnection {
    /// Subscribes to the messages that match `rule`, until the lease ends. The rule is in force on return.
    ///
    /// Equal rules of one connection are shared and counted, so that the thousandth lease of a rule costs nothing on
    /// the bus. Blocks the calling thread, for 25 seconds at most.
    ///
    /// - Parameters:
    ///   - fallback: a broader rule that replaces `rule` if the bus refuses further rules.
    ///   - timeout: how long to wait, if that is less than 25 seconds.
    /// - Throws: ``DBusError/Code/limitsExceeded`` if the bus has no room for the fallback either;
    ///   ``DBusError/Code/refused`` for a rule that the bus rejects; ``DBusError/Code/timedOut``;
    ///   ``DBusError/Code/noBus``; ``DBusError/Code/disconnected``; ``DBusError/Code/closed``;
    ///   ``DBusError/Code/noResources``; ``DBusError/Code/wouldDeadlock`` on the reading thread, on which
    ///   ``addMatchInOrder(_:fallback:failed:)`` works without waiting. After an error the rule is not kept.
    public func addMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        timeout: Duration = .seconds(25)
    ) throws(DBusError) -> MatchRuleLease {
        let core = core
        try core.checkWaiting("add the match rule \(rule)")
        var lease: MatchRuleLease?
        let deadline = ContinuousClock.now + min(timeout, core.state.withLock { $0.ruleTimeout })
        let error: DBusError? = core.wait(
            until: deadline,
            late: { .noAnswer("add the match rule \(rule)") },
            start: { waiter in
                let handle = core.retain(rule, fallback: fallback, by: deadline, waiter: waiter)
                lease = handle.map { MatchRuleLease($0, core) }
            }
        )
        guard error == nil, let lease else { throw error ?? .closed("add the match rule \(rule)") }
        return lease
    }

    /// Subscribes as the blocking form does, without holding a thread: many simultaneous requests are sent together. If
    /// a handler blocks the reading thread, this waits for it, too.
    ///
    /// - Parameter timeout: how long to wait for the rule, counted from the call. Connecting first may take 25 seconds
    ///   more, and so may a fallback.
    /// - Throws: as the blocking form. A cancelled task keeps waiting.
    public func addMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(DBusError) -> MatchRuleLease {
        let core = core
        let deadline = ContinuousClock.now + timeout
        try await core.connectAside("add the match rule \(rule)")
        // Otherwise the rule's own timeout of 25 seconds comes first, and ten thousand simultaneous registrations need
        // no timers.
        let needsTimer = deadline - .now < .seconds(25)
        let held = Locked<MatchRuleLease?>(nil)
        let error = await withCheckedContinuation { continuation in
            var waiter: MatchRuleTable.Waiter = { continuation.resume(returning: $0) }
            if needsTimer {
                let waiting = Locked<CheckedContinuation<DBusError?, Never>?>(continuation)
                waiter = { error in waiting.withLock { $0.take() }?.resume(returning: error) }
                Task { [waiter] in
                    try? await Task.sleep(until: deadline)
                    waiter(.noAnswer("add the match rule \(rule)"))
                }
            }
            let handle = core.retain(rule, fallback: fallback, waiter: waiter)
            held.withLock { $0 = handle.map { MatchRuleLease($0, core) } }
        }
        guard error == nil, let lease = held.withLock({ $0 }) else {
            throw error ?? .closed("add the match rule \(rule)")
        }
        return lease
    }

    /// Subscribes as the blocking form does, for the reading thread, which must not wait. The bus reads the request
    /// before everything that this thread sends later.
    ///
    /// - Parameter failed: called once if the bus does not grant the rule, under the conditions of `settled` in
    ///   ``keepMatch(_:fallback:settled:)``. The rule is kept, and requested again each time the bus is back.
    /// - Throws: ``DBusError/Code/disconnected`` and ``DBusError/Code/closed``, and the reason if the bus has refused
    ///   this rule before. The rule is not kept then.
    public func addMatchInOrder(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        failed: @escaping @Sendable (DBusError) -> Void
    ) throws(DBusError) -> MatchRuleLease {
        try core.checkProcess("add the match rule \(rule)")
        enum Progress {
            case requesting, requested
            case failed(DBusError)
        }
        let progress = Locked(Progress.requesting)
        let lease = keepMatch(rule, fallback: fallback) { error in
            guard let error else { return }
            let isLate = progress.withLock { progress in
                if case .requested = progress { return true }
                progress = .failed(error)
                return false
            }
            if isLate { failed(error) }
        }
        let known = progress.withLock { progress in
            defer { progress = .requested }
            return progress
        }
        if case .failed(let error) = known { throw error }
        return lease
    }

    /// Keeps `rule` until the lease ends, even if the bus refuses it now. It is requested again each time the bus is
    /// back.
    ///
    /// - Parameter settled: called once, with `nil` when the rule is in force, or with the reason why it is not, after
    ///   25 seconds at most. It runs here, on the reading thread, or on a thread that is using another rule of the
    ///   connection. So it must not take a lock that is held during the use of rules. After a timeout the rule is in
    ///   force once the bus grants it.
    public func keepMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        settled: @escaping @Sendable (DBusError?) -> Void
    ) -> MatchRuleLease {
        MatchRuleLease(core.retain(rule, fallback: fallback, waiter: settled), core)
    }
}
