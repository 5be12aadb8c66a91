import BrokerCore
import DeviceConfiguration
import SharedDevice

/// The beginning and the end of each schedule. At the end all faults are repaired, and then each promise about the
/// outcome must be kept.
extension World {
    /// How long a device without faults may need.
    private static let patience = Duration.seconds(1200)

    func begin(_ file: Setting.File) {
        configure(file)
        startBroker()
        startEnforcer()
        for index in Setting.apps { startApp(index) }
        progress(100)
    }

    func heal() {
        note("all is repaired")
        stop = nil
        diskMode = .works
        takeNote()
        providerMode = .answers
        networkIsBack()
        atSeat(.logindComes)
        endScreen()
        restoreBus()
        startBroker()
        startEnforcer()
        if case .valid = file {
        } else {
            configure(.valid(0))
        }
        // A hung process never recovers. Without enforcement its debt closes the device until the process is killed.
        if oracle.policy.cleanup.deadline == nil { endHung() }
        random = SplitMix64(seed: 1)
        becomeQuiet(until: now.uptime + .seconds(2))
        // The apps are opened, and an administrator waives debts that no app of this device will ever settle.
        for index in ownApps { startApp(index) }
        for index in Setting.apps where !ownApps.contains(index) { killApp(index) }
        slots[Setting.hostile].toBroker.append(.left(slots[Setting.hostile].connection))
        connect(Setting.hostile)
        becomeQuiet(until: now.uptime + .seconds(5))
        waiveStrangers()
        becomeQuiet(until: now.uptime + Self.patience)
        // A session that was still open may have ended automatically, and a stranger may have been given its account.
        waiveStrangers()
        becomeQuiet(until: now.uptime + Self.patience)
        guard violation == nil else { return }
        // A hung process without debts still shows its old account, so it is killed. Stopped apps show the present
        // account when they run again.
        if let broker, broker.ledger.debtors.isEmpty { endHung() }
        for index in ownApps { startApp(index) }
        becomeQuiet(until: now.uptime + Self.patience)
        // The patience may have ended during a write that takes a moment.
        for _ in 0..<5 where broker?.isOnDisk == false { becomeQuiet(until: now.uptime + .seconds(1)) }
        guard violation == nil else { return }
        checkEnd()
    }

    private func endHung() { for index in Setting.apps where slots[index].isHung { killApp(index) } }

    /// The apps that take part. Under an enforced policy these are only the apps of the manifests' user.
    var ownApps: [Int] {
        Setting.apps.filter { oracle.policy.cleanup.deadline == nil || slots[$0].user == Setting.enforcedUser }
    }

    private func waiveStrangers() {
        guard let broker else { return }
        let own = Set(Setting.homes.map(\.app))
        for app in Set(broker.ledger.debtors.map(\.app)).subtracting(own).sorted() {
            send(Self.administrator, .waive(app: app, user: nil, session: nil, reason: "unknown app"))
        }
        guard oracle.policy.cleanup.deadline != nil else { return }
        // Cleanup is not enforced during a session.
        if broker.device.account != nil { send(Self.administrator, .signOutAnyone(identifier: nil, reason: "test")) }
        // Only an administrator can settle the debts of an app that may not take part any more.
        for home in Setting.homes where home.user != Setting.enforcedUser {
            send(Self.administrator, .waive(app: home.app, user: home.user, session: nil, reason: "left out"))
        }
    }

    /// Takes all possible steps, and advances the time when there are none.
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

    /// The calls without a response, except those of the enforcer, whose request waits for overdue apps.
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
        for index in ownApps where slots[index].process?.shown != shown(open, index) && !mayShowOther(index) {
            return oracle.fail(
                "an app shows another account than the device has",
                "process \(index) shows \(slots[index].process?.shown ?? 0), the device has \(open ?? 0)"
            )
        }
        checkPolicy(broker)
        oracle.checkProviderEnd(self)
        oracle.checkSeatEnd(broker.device, self)
    }

    /// The session that the process has to show: none if its app is not for the user.
    private func shown(_ open: UInt64?, _ index: Int) -> UInt64? {
        guard let account = broker?.device.account, let home = slots[index].home, mayUse(home, account) else {
            return nil
        }
        return open
    }

    /// Whether the app of this home is for the user, by the present manifests.
    func mayUse(_ home: Int, _ account: Account) -> Bool {
        let manifest = manifests.first { $0.identifier == Setting.homes[home].app }
        return manifest?.allowedUsers?.users.contains(account.username) ?? true
    }

    /// Whether the process will get no reminder: it has missed the broadcast of the sign-out, and an administrator has
    /// waived its debt.
    private func mayShowOther(_ index: Int) -> Bool {
        guard slots[index].hasMissedBroadcast, let home = slots[index].home, let shown = slots[index].process?.shown
        else { return false }
        return oracle.waived.contains(Oracle.Debt(session: shown, home: home))
    }

    private func checkPolicy(_ broker: BrokerState) {
        var policy = oracle.policy
        (policy.problem, policy.lockedBefore) = (broker.policy.problem, broker.policy.lockedBefore)
        if broker.policy != policy {
            oracle.fail("another configuration is in force than the last valid one", "\(broker.policy.cleanup)")
        }
    }
}
