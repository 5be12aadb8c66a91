// Orders, and the device's own limit of time: whom the agent signs out when.

extension AgentState {
    /// Carries out what can be carried out now.
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
                // First on the disk which session is meant: after a crash somebody else may be signed in.
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

    /// The broker's disk does not have it that the session is over: a power cut would open it again. The order does not count as carried out.
    private mutating func waitForDisk(_ now: Moment) {
        // The first time it may merely be writing.
        if isWaitingForDisk {
            problems[.unstored] = "the broker's disk does not have the sign-out yet; free some space on the device"
        }
        isWaitingForDisk = true
        retryAt = now.uptime + Self.storeInterval
        mustAsk = true
    }

    /// A session that was ended, and is open again, was not on the broker's disk when the power was cut.
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

    /// The order is carried out, and counts as seen from here on.
    private mutating func conclude(
        _ order: FleetOrder,
        _ scope: OrderScope,
        _ outcome: DeviceReport.Outcome,
        ended: UInt64
    ) {
        // A newer one may have come while this one was under way.
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

    /// The broker has answered a sign-out.
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
            // Whether somebody else is signed in by now, and whether the disk has it, the next view says.
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

    /// Since when there is no contact: the later of both counts, because the disk has one of an earlier run.
    private var watches: [Stopwatch] { [heard, memory.contact].compactMap { $0 } }

    /// How many seconds the open session has until the device ends it; `nil` where it may go on for ever.
    func secondsLeft(_ now: Moment) -> Double? {
        guard let timeout = policy.contactTimeout, underWay == nil, retryAt == nil, let view, view.isSignedIn,
            let session = memory.session
        else { return nil }
        let left = watches.map { $0.left(of: timeout, now) }.max() ?? -.infinity
        // A session that began without contact has as long, unless contact is required.
        return policy.requiresContact ? left : max(left, session.since.left(of: timeout, now))
    }

    /// While there is no contact, the time that the machine runs is put on the disk now and then, so that starting it again ends no limit.
    private mutating func count(_ now: Moment) {
        guard policy.contactTimeout != nil, memory.session != nil,
            heard.map({ $0.seconds(now) >= 2 * ControllerState.heartbeatInterval }) ?? true
        else { return }
        let hasNews = [memory.contact?.count(now), memory.session?.since.count(now)]
        if hasNews.contains(true) { effects.append(.store(memory)) }
    }
}
