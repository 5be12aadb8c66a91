import SharedDevice
import SharedDeviceBroker

/// The begin and the end of each schedule. At the end all that was broken is repaired, and then every promise of an end has to come true.
extension World {
    /// How long a device may need, once nothing is wrong with it.
    private static let patience = Duration.seconds(1200)

    /// The device is switched on.
    func begin(_ configuration: Int) {
        file = .valid(configuration)
        startBroker()
        for index in Setting.apps { startApp(index) }
        settle(100)
    }

    func heal() {
        note("all is repaired")
        effectsLeft = nil
        diskMode = .works
        takeNote()
        providerMode = .answers
        restoreBus()
        startBroker()
        if case .valid = file {
        } else {
            file = .valid(0)
            readConfiguration()
        }
        random = SplitMix64(seed: 1)
        becomeQuiet(until: now.uptime + .seconds(2))
        // Somebody opens the apps, and the administrator sees to what no app of this device will ever clean up.
        for index in Setting.apps { startApp(index) }
        slots[Setting.hostile].toBroker.append(.left(slots[Setting.hostile].connection))
        connect(Setting.hostile)
        becomeQuiet(until: now.uptime + .seconds(5))
        waiveStrangers()
        becomeQuiet(until: now.uptime + Self.patience)
        // A session that lasted until now may have ended by itself, and a stranger may have been given its account.
        waiveStrangers()
        becomeQuiet(until: now.uptime + Self.patience)
        guard violation == nil else { return }
        checkEnd()
    }

    private func waiveStrangers() {
        guard let broker else { return }
        let own = Set(Setting.homes.map(\.app))
        for app in Set(broker.ledger.debtors.map(\.app)).subtracting(own).sorted() {
            let call = Request.Call.waive(app: app, user: nil, session: nil, reason: "unknown app")
            let number = slots[Self.administrator].calls.send(call)
            slots[Self.administrator].calls.sent = []
            send(Self.administrator, number, call, claiming: nil)
        }
    }

    /// Lets everything happen, and the time pass where nothing else can.
    private func becomeQuiet(until end: Duration) {
        while violation == nil {
            let steps = enabled()
            if !steps.isEmpty {
                take(steps[random.below(steps.count)])
                if self.steps > 20_000 { return oracle.fail("no end", "the device does not come to rest") }
                continue
            }
            if isSettled { return }
            var next = broker?.nextDeadline
            for slot in slots {
                if let retry = slot.process?.retryAt, retry > now.uptime { next = min(next ?? retry, retry) }
            }
            guard let next, next <= end else { return }
            advance(by: max(next - now.uptime, .milliseconds(1)))
        }
    }

    private var isSettled: Bool {
        guard let broker else { return false }
        return broker.ledger.debtors.isEmpty && broker.isOnDisk && unanswered.isEmpty
            && slots.allSatisfy { $0.process?.retryAt == nil }
    }

    private func checkEnd() {
        guard let broker else { return oracle.fail("no end", "there is no broker") }
        let debtors = broker.ledger.debtors
        if !debtors.isEmpty || broker.ledger.hasIncompleteRounds {
            return oracle.fail("a round does not end", "\(debtors.sorted().map { "\($0.app) of \($0.user)" })")
        }
        if let number = unanswered.keys.min() { return oracle.fail("a call is never answered", "\(number)") }
        if !broker.isOnDisk { return oracle.fail("the disk does not have it all", "after all is repaired") }
        let open = broker.device.account.map { _ in broker.device.epoch }
        for (index, home) in homes.enumerated() {
            let left = home.sessions.filter { session in
                let debt = Oracle.Debt(session: session, home: index)
                return session != open && !oracle.waived.contains(debt) && !oracle.unheard.contains(debt)
                    && !oracle.nameless.contains(session)
            }
            if !left.isEmpty {
                return oracle.fail("data was left for ever", "home \(index), sessions \(left.sorted())")
            }
        }
        for index in Setting.apps where slots[index].process?.shown != open {
            return oracle.fail(
                "an app shows another account than the device has",
                "process \(index) shows \(slots[index].process?.shown ?? 0), the device has \(open ?? 0)"
            )
        }
        checkPolicy(broker)
    }

    private func checkPolicy(_ broker: BrokerState) {
        var policy = oracle.policy
        policy.problem = broker.policy.problem
        if broker.policy != policy {
            oracle.fail("another configuration is in force than the last valid one", "\(broker.policy.cleanup)")
        }
    }
}
