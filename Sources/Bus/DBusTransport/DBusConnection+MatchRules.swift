import Synchronization

extension DBusConnection {
    /// Has the bus send what matches `rule`, until the lease ends. The rule is in force when this returns. Equal rules of one
    /// connection are shared and counted, so that the thousandth lease of a rule costs nothing on the bus. Blocks the calling thread, for
    /// 25 seconds at most.
    ///
    /// - Parameters:
    ///   - fallback: a broader rule that takes the place of `rule` when the bus grants no more rules.
    ///   - timeout: how long to wait, if that is less than 25 seconds.
    /// - Throws: ``DBusError/Code/limitsExceeded`` where that has no place either; ``DBusError/Code/refused`` for a rule
    ///   that the bus does not take; ``DBusError/Code/timedOut``; ``DBusError/Code/noBus``; ``DBusError/Code/disconnected``; ``DBusError/Code/closed``;
    ///   ``DBusError/Code/noResources``; ``DBusError/Code/wouldDeadlock`` on the reading thread, where ``addMatchInOrder(_:fallback:failed:)``
    ///   does not wait. The rule is not kept then.
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

    /// As the blocking form, without holding a thread: many at once travel together. While a handler holds up the reading thread, it waits for that, too.
    ///
    /// - Parameter timeout: how long it waits for the rule, counted from the call. To find the bus first may take 25 seconds of its own, and so may a broader
    ///   rule in place of this one.
    /// - Throws: as the blocking form. A task that is cancelled waits all the same.
    public func addMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(DBusError) -> MatchRuleLease {
        let core = core
        let deadline = ContinuousClock.now + timeout
        try await core.connectAside("add the match rule \(rule)")
        // Otherwise the rule's own 25 seconds end first: ten thousand registrations at once need no timers.
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

    /// As the blocking form, for the reading thread, which must not wait. The bus reads the request before what this thread sends later.
    ///
    /// - Parameter failed: called once if the bus does not grant the rule, as `settled` of ``keepMatch(_:fallback:settled:)`` is. The rule is
    ///   kept: it is requested again each time that the bus is back.
    /// - Throws: ``DBusError/Code/disconnected`` and ``DBusError/Code/closed``, and the reason why the bus has refused this rule before. The rule
    ///   is not kept then.
    package func addMatchInOrder(
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

    /// Keeps `rule` until the lease ends, whatever the bus says of it now: it is asked for again each time that the bus is back.
    ///
    /// - Parameter settled: called once, here, on the reading thread, or on a thread that uses another rule of the connection just then, so that
    ///   it takes no lock which is held while rules are used: with `nil` when the rule is in force, or with the reason why it
    ///   is not, after 25 seconds at most. A rule that the bus had not answered for by then is in force when it does answer.
    package func keepMatch(
        _ rule: MatchRule,
        fallback: MatchRule? = nil,
        settled: @escaping @Sendable (DBusError?) -> Void
    ) -> MatchRuleLease {
        MatchRuleLease(core.retain(rule, fallback: fallback, waiter: settled), core)
    }
}
