import DeviceConfiguration
import SharedDevice
import SharedDeviceBroker

/// The begin and the end of each schedule. At the end all that was broken is repaired, and then every promise of an end has to come true.
extension World {
    /// How long a device may need, once nothing is wrong with it.
    private static let patience = Duration.seconds(1200)

    /// The device is switched on.
    func begin(_ file: Setting.File) {
        configure(file)
        startBroker()
        startEnforcer()
        for index in Setting.apps { startApp(index) }
        settle(100)
    }

    func heal() {
        note("all is repaired")
        stop = nil
        diskMode = .works
        takeNote()
        providerMode = .answers
        networkIsBack()
        atSeat(.logindComes)
        restoreBus()
        startBroker()
        startEnforcer()
        if case .valid = file {
        } else {
            configure(.valid(0))
        }
        // What hangs does so for ever; under the other policies it closes the device until somebody ends it.
        if oracle.policy.cleanup.deadline == nil { endHung() }
        random = SplitMix64(seed: 1)
        becomeQuiet(until: now.uptime + .seconds(2))
        // Somebody opens the apps, and the administrator sees to what no app of this device will ever clean up.
        for index in ownApps { startApp(index) }
        for index in Setting.apps where !ownApps.contains(index) { killApp(index) }
        slots[Setting.hostile].toBroker.append(.left(slots[Setting.hostile].connection))
        connect(Setting.hostile)
        becomeQuiet(until: now.uptime + .seconds(5))
        waiveStrangers()
        becomeQuiet(until: now.uptime + Self.patience)
        // A session that lasted until now may have ended by itself, and a stranger may have been given its account.
        waiveStrangers()
        becomeQuiet(until: now.uptime + Self.patience)
        guard violation == nil else { return }
        // Nobody sees what a process shows that hangs and owes nothing; those that were stopped show what there is when they run again.
        if let broker, broker.ledger.debtors.isEmpty { endHung() }
        for index in ownApps { startApp(index) }
        becomeQuiet(until: now.uptime + Self.patience)
        // The patience may have ended in the middle of something that takes a moment.
        for _ in 0..<5 where broker?.isOnDisk == false { becomeQuiet(until: now.uptime + .seconds(1)) }
        guard violation == nil else { return }
        checkEnd()
    }

    private func endHung() { for index in Setting.apps where slots[index].isHung { killApp(index) } }

    /// The apps that take part: under an enforced policy only those of the manifests' user.
    var ownApps: [Int] {
        Setting.apps.filter { oracle.policy.cleanup.deadline == nil || slots[$0].user == Setting.enforcedUser }
    }

    private func waiveStrangers() {
        guard let broker else { return }
        let own = Set(Setting.homes.map(\.app))
        for app in Set(broker.ledger.debtors.map(\.app)).subtracting(own).sorted() {
            administer(.waive(app: app, user: nil, session: nil, reason: "unknown app"))
        }
        guard oracle.policy.cleanup.deadline != nil else { return }
        // Nothing is enforced while somebody is signed in.
        if broker.device.account != nil { administer(.signOutAnyone(identifier: nil, reason: "test")) }
        // What an app owes that may take part no more nobody but the administrator settles.
        for participant in Setting.homes where participant.user != Setting.enforcedUser {
            administer(.waive(app: participant.app, user: participant.user, session: nil, reason: "left out"))
        }
    }

    private func administer(_ call: Request.Call) {
        let number = slots[Self.administrator].calls.send(call)
        slots[Self.administrator].calls.sent = []
        send(Self.administrator, number, call, claiming: nil)
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
            var next = deadline
            for slot in slots {
                if let retry = slot.process?.retryAt, retry > now.uptime { next = min(next ?? retry, retry) }
            }
            if let time = enforcer?.nextTime(after: now.uptime) { next = min(next ?? time, time) }
            guard let next, next <= end else { return }
            advance(by: max(next - now.uptime, .milliseconds(1)))
        }
    }

    private var isSettled: Bool {
        guard let broker else { return false }
        return broker.ledger.debtors.isEmpty && broker.isOnDisk && openCalls.isEmpty && disk.outbox.isEmpty
            && organisation.events.isEmpty
            && slots.allSatisfy { $0.process?.retryAt == nil }
    }

    /// The calls without an answer, but for the question that waits for somebody who is late.
    private var openCalls: [UInt64] { unanswered.filter { $0.value != Self.enforcer }.keys.sorted() }

    private func checkEnd() {
        guard let broker else { return oracle.fail("no end", "there is no broker") }
        let debtors = broker.ledger.debtors
        if !debtors.isEmpty || broker.ledger.hasIncompleteRounds {
            return oracle.fail("a round does not end", "\(debtors.sorted().map { "\($0.app) of \($0.user)" })")
        }
        if let number = openCalls.first { return oracle.fail("a call is never answered", "\(number)") }
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
        for index in ownApps where slots[index].process?.shown != open && !mayShowOther(index) {
            return oracle.fail(
                "an app shows another account than the device has",
                "process \(index) shows \(slots[index].process?.shown ?? 0), the device has \(open ?? 0)"
            )
        }
        checkPolicy(broker)
        oracle.checkProviderEnd(self)
        oracle.checkSeatEnd(broker.device, self)
    }

    /// Whether nobody is to remind the process any more: it has not heard the sign-out, and an administrator waived what its app owed.
    private func mayShowOther(_ index: Int) -> Bool {
        guard slots[index].hasMissedBroadcast, let home = slots[index].home, let shown = slots[index].process?.shown
        else { return false }
        return oracle.waived.contains(Oracle.Debt(session: shown, home: home))
    }

    private func checkPolicy(_ broker: BrokerState) {
        var policy = oracle.policy
        policy.problem = broker.policy.problem
        if broker.policy != policy {
            oracle.fail("another configuration is in force than the last valid one", "\(broker.policy.cleanup)")
        }
    }
}
