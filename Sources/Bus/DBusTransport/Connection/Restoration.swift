import Synchronization

/// Puts names and match rules back in place on a new socket, and tells the layer above when the bus has answered for all.
struct Restoration {
    let rules: [MatchRuleTable<ConnectionCore.RuleWaiter>.Action]
    let names: [String: BusNameOptions]

    func perform(on core: ConnectionCore) {
        let additions = rules.count { if case .add = $0 { true } else { false } }
        let progress = Progress(expected: additions + names.count) { failures in
            let handlers = core.state.withLock { Array($0.eventHandlers.values) }
            for handler in handlers { handler(.restored(failures: failures)) }
        }
        core.perform(rules) { progress.settle($0) }
        for (name, options) in names {
            core.requestName(name, options) { progress.settle($0) }
        }
        progress.settleNothing()
    }

    /// Counts the answers; the last one finishes.
    private final class Progress: Sendable {
        private let state: Locked<(remaining: Int, failures: [DBusError])>
        private let finish: @Sendable ([DBusError]) -> Void

        init(expected: Int, finish: @escaping @Sendable ([DBusError]) -> Void) {
            // One more than expected, so that answers that come at once do not finish early.
            state = Locked((expected + 1, []))
            self.finish = finish
        }

        func settleNothing() { settle(nil) }

        func settle(_ failure: DBusError?) {
            let failures = state.withLock { state -> [DBusError]? in
                state.remaining -= 1
                if let failure { state.failures.append(failure) }
                return state.remaining == 0 ? state.failures : nil
            }
            // A bus that was lost again meanwhile is restored, and reported, anew.
            guard let failures, !failures.contains(where: { $0.code == .disconnected || $0.code == .closed }) else {
                return
            }
            finish(failures)
        }
    }
}
