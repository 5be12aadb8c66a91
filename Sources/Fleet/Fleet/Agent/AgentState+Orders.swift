// Orders, and the device's own limit of time: whom the agent signs out when.

extension AgentState {
    /// Carries out what can be carried out now.
    mutating func advance(_ now: Moment) {
        if let retryAt, now.uptime >= retryAt { self.retryAt = nil }
        guard underWay == nil, retryAt == nil else { return }
        for scope in OrderScope.allCases {
            guard let order = orders[scope], let view else { continue }
            guard order.number > memory.seen[scope] else {
                orders[scope] = nil
                continue
            }
            let begun = memory.intents[scope].flatMap { $0.order == order.number ? $0.session : nil }
            let newest = min(order.session ?? .max, begun ?? .max)
            if !view.isSignedIn {
                conclude(order, scope, begun == nil ? .nobody : .signedOut, ended: view.epoch)
            } else if view.epoch > newest {
                conclude(order, scope, begun == nil ? .sessionOver : .signedOut, ended: view.epoch - 1)
            } else {
                // First on the disk which session is meant: after a crash somebody else may be signed in.
                memory.intents[scope] = AgentMemory.Intent(order: order.number, session: view.epoch)
                effects.append(.store(memory))
                begin(.order(scope, order), view.epoch, reason: Self.words(order))
                return
            }
        }
        if let left = secondsLeft(now), left <= 0, let view {
            let seconds = secondsWithoutContact(now)
            let text = seconds.isFinite ? "no contact for \(Int(min(seconds, 1e12).rounded())) s" : "no contact so far"
            problems[.noContact] = text
            effects.append(.note("\(text): session \(view.epoch) is signed out"))
            begin(.noContact, view.epoch, reason: text)
        }
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
        orders[scope] = nil
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
        effects += [.store(memory), .note("order \(order.number): \(outcome.rawValue)")]
    }

    /// The broker has answered a sign-out.
    mutating func finish(_ answer: AgentEvent.SignOutAnswer, _ now: Moment) {
        guard let cause = underWay else { return }
        underWay = nil
        switch answer {
        case .ended:
            if case .order(let scope, let order) = cause, let session = memory.intents[scope]?.session {
                conclude(order, scope, .signedOut, ended: session)
            }
            ask()
        case .overAlready:
            // Whether somebody else is signed in by now, the next view says.
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

    private func secondsWithoutContact(_ now: Moment) -> Double {
        // The later of both: the disk has one of an earlier run.
        let times = [heard, memory.contact].compactMap { $0 }.map { now.seconds(since: $0) }
        return times.min() ?? .infinity
    }

    /// How many seconds the open session has until the device ends it; `nil` where it may go on for ever.
    func secondsLeft(_ now: Moment) -> Double? {
        guard let timeout = policy.contactTimeout, underWay == nil, retryAt == nil, let view, view.isSignedIn,
            let session = memory.session
        else { return nil }
        let without = secondsWithoutContact(now)
        // A session that began without contact has as long, unless contact is required.
        let elapsed = policy.requiresContact ? without : min(without, now.seconds(since: session.since))
        return timeout - elapsed
    }
}
