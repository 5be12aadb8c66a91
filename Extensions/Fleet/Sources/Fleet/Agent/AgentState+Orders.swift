// Orders and the device's own time limit: which session the agent ends, and when.

extension AgentState {
    /// Carries out pending orders as far as possible.
    mutating func advance(_ now: Moment) {
        if let retryAt, now.uptime >= retryAt { self.retryAt = nil }
        count(now)
        guard underWay == nil, retryAt == nil else { return }
        for scope in OrderScope.allCases {
            guard let order = orders[scope], let view else { continue }
            guard order.number > memory.seen[scope] else {
                orders[scope] = nil
                continue
            }
            let begun = memory.intents[scope].flatMap { $0.order == order.number ? $0.session : nil }
            let newest = min(order.session ?? .max, begun ?? .max)
            if view.isSignedIn, view.epoch <= newest {
                // Stores the session first: after a crash another user may be signed in.
                memory.intents[scope] = AgentMemory.Intent(order: order.number, session: view.epoch)
                effects.append(.store(memory))
                begin(.order(scope, order), view.epoch, reason: Self.words(order))
                return
            }
            guard view.isStored else { return waitForDisk(now) }
            if view.isSignedIn {
                conclude(order, scope, begun == nil ? .sessionOver : .signedOut, ended: view.epoch - 1)
            } else {
                conclude(order, scope, begun == nil ? .nobody : .signedOut, ended: view.epoch)
            }
        }
        endAgain()
        if let left = secondsLeft(now), left <= 0, let view { endForWantOfContact(view.epoch, now) }
    }

    /// Waits for the broker's disk: a power cut would reopen the session. The order does not count as carried out yet.
    private mutating func waitForDisk(_ now: Moment) {
        // At the first check the broker may still be writing.
        if isWaitingForDisk {
            problems[.unstored] = "the broker's disk does not have the sign-out yet; free some space on the device"
        }
        isWaitingForDisk = true
        retryAt = now.uptime + Self.storeInterval
        mustAsk = true
    }

    /// Ends a session again that was reopened, because it was not on the broker's disk at a power cut.
    private mutating func endAgain() {
        guard underWay == nil, let view, view.isSignedIn, view.epoch <= max(memory.result?.ended ?? 0, memory.ended)
        else { return }
        let text = "session \(view.epoch) is open again, which was over"
        effects.append(.note(text))
        begin(.again, view.epoch, reason: text)
    }

    private mutating func endForWantOfContact(_ session: UInt64, _ now: Moment) {
        let seconds = watches.map { $0.seconds(now) }.min() ?? .infinity
        let text =
            watches.contains { $0.isInDoubt(now) }
            ? "no contact since the machine was started, with a wrong clock"
            : seconds.isFinite ? "no contact for \(Int(min(seconds, 1e12).rounded())) s" : "no contact so far"
        problems[.noContact] = text
        effects.append(.note("\(text): session \(session) is signed out"))
        begin(.noContact(session), session, reason: text)
    }

    private static func words(_ order: FleetOrder) -> String {
        "fleet order \(order.number)" + (order.reason.isEmpty ? "" : ": \(order.reason)")
    }

    private mutating func begin(_ cause: Cause, _ session: UInt64, reason: String) {
        underWay = cause
        effects.append(.signOut(session: session, reason: reason))
    }

    /// Concludes an order, which counts as seen from here on.
    private mutating func conclude(
        _ order: FleetOrder,
        _ scope: OrderScope,
        _ outcome: DeviceReport.Outcome,
        ended: UInt64
    ) {
        // A newer order may have arrived in the meantime.
        if orders[scope]?.number == order.number { orders[scope] = nil }
        memory.intents[scope] = nil
        memory.seen[scope] = order.number
        let last = memory.result
        let isNewest = order.number >= last?.order ?? 0
        memory.result = DeviceReport.Result(
            order: max(order.number, last?.order ?? 0),
            outcome: isNewest ? outcome : last?.outcome ?? outcome,
            ended: max(ended, last?.ended ?? 0)
        )
        problems[.refused] = nil
        problems[.failed] = nil
        problems[.unstored] = nil
        isWaitingForDisk = false
        effects += [.store(memory), .note("order \(order.number): \(outcome.rawValue)")]
    }

    /// Handles the broker's response to a sign-out.
    mutating func finish(_ answer: AgentEvent.SignOutAnswer, _ now: Moment) {
        guard let cause = underWay else { return }
        underWay = nil
        if case .noContact(let session) = cause, [.ended, .endedUnstored].contains(answer) {
            memory.ended = max(memory.ended, session)
            effects.append(.store(memory))
        }
        switch answer {
        case .ended:
            if case .order(let scope, let order) = cause, let session = memory.intents[scope]?.session {
                conclude(order, scope, .signedOut, ended: session)
            }
            ask()
        case .overAlready, .endedUnstored:
            // The next view tells whether another user is signed in and whether the disk has the sign-out.
            ask()
        case .refused(let text):
            problems[.refused] = text
            if case .order(_, let order) = cause, order.number > memory.result?.order ?? 0 {
                let ended = memory.result?.ended ?? 0
                memory.result = DeviceReport.Result(order: order.number, outcome: .refused, ended: ended)
            }
            retryAt = now.uptime + Self.retryInterval
        case .failed(let text):
            problems[.failed] = text
            retryAt = now.uptime + Self.retryInterval
            ask()
        }
    }

    // MARK: The limit without contact

    /// The times of the last contact. The later one counts: the stored one may be from an earlier run.
    private var watches: [Stopwatch] { [heard, memory.contact].compactMap { $0 } }

    /// The seconds until the device ends the open session; `nil` if there is no limit.
    func secondsLeft(_ now: Moment) -> Double? {
        guard let timeout = policy.contactTimeout, underWay == nil, retryAt == nil, let view, view.isSignedIn,
            let session = memory.session
        else { return nil }
        let left = watches.map { $0.left(of: timeout, now) }.max() ?? -.infinity
        // A session that began without contact gets the full timeout, unless contact is required.
        return policy.requiresContact ? left : max(left, session.since.left(of: timeout, now))
    }

    /// Without contact, saves the uptime regularly, so that a restart of the machine does not reset a limit.
    private mutating func count(_ now: Moment) {
        guard policy.contactTimeout != nil, memory.session != nil,
            heard.map({ $0.seconds(now) >= 2 * ControllerState.heartbeatInterval }) ?? true
        else { return }
        let hasNews = [memory.contact?.count(now), memory.session?.since.count(now)]
        if hasNews.contains(true) { effects.append(.store(memory)) }
    }
}
