import DeviceConfiguration
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

struct LastUse {
    let session: UInt64
    var at: Duration
    /// Whether this run of the broker has seen the use. The disk may have lost a use that an earlier run has seen. Then
    /// the sign-out is early, or late by the time during which the broker was away.
    var isKnown = true
}

extension Oracle {
    private static let moment = Duration.seconds(1)

    /// Checks that an idle session ends after the configured time: not before, and not later even if the clock is set.
    mutating func judgeUse(_ effects: [Effect], _ state: BrokerState, _ world: World) {
        let now = world.now.uptime
        for case .journal(let entry) in effects
        where entry.event == .signedOut && entry.detail?.hasPrefix("inactivity") == true {
            guard let use, use.isKnown, use.session == entry.session, clockSetAt.map({ $0 < use.at }) ?? true,
                let most = policy.schedule.inactivity, now + Self.moment < use.at + most
            else { continue }
            fail("a session ended while it was used", "\(use.session), \(now - use.at) after its last use")
        }
        guard state.device.account != nil else {
            use = nil
            return
        }
        if use?.session != state.device.epoch { use = LastUse(session: state.device.epoch, at: now) }
        guard let use, let most = policy.schedule.inactivity, now > use.at + most + Self.moment else { return }
        fail("a session goes on that nobody uses", "\(use.session), \(now - use.at) after its last use")
    }
}

/// The invariant that holds at all times: the owner of any data is signed in, or the removal of the data is owed.
extension Oracle {
    mutating func check(_ world: World) {
        guard violation == nil, let revision = world.broker?.revision else { return }
        if lastRevision != revision, let ledger = world.broker?.ledger {
            lastRevision = revision
            checkLedger(ledger, world)
        }
        checkEnforcement(world)
        for home in world.homes.indices {
            for store in world.homes[home].data where !store.isEmpty {
                for session in store { checkData(session, home, world) }
            }
        }
    }

    private mutating func checkLedger(_ ledger: CleanupLedger, _ world: World) {
        for (number, session) in ledger.sessions where session.account == nil && session.outcome != .complete {
            nameless.insert(number)
        }
        for (session, homes) in given where session <= over {
            for (home, connections) in homes {
                let debt = Debt(session: session, home: home)
                guard !waived.contains(debt) else { continue }
                let part = ledger.parts[session]?[Setting.homes[home]]
                let isSettled = part.map { $0.progress?.isSettled == true } ?? true
                if isSettled, !receipts.contains(debt) {
                    return fail("a debt was lost", "home \(home), session \(session)")
                }
                guard isSettled, part != nil else { continue }
                let owing = connections.subtracting(gone).subtracting(receiptsOn[debt] ?? [])
                if !owing.isEmpty {
                    return fail("a round went on without a process", "\(owing.sorted()), session \(session)")
                }
            }
        }
    }

    /// Checks that no sign-in happens while the enforcer stops an app or deletes its data, because the next user's data
    /// would be deleted too. Neither a waiver nor a new policy changes that.
    private mutating func checkEnforcement(_ world: World) {
        guard world.broker?.device.account != nil else { return }
        for work in world.enforcer?.work ?? [] where work.stage == .stop || work.stage == .delete {
            return fail(
                "somebody was let in while data was deleted",
                "\(work.participant), sessions \(work.sessions.sorted())"
            )
        }
    }

    private mutating func checkData(_ session: UInt64, _ home: Int, _ world: World) {
        guard let device = world.broker?.device else { return }
        if device.epoch == session, device.account != nil { return }
        let debt = Debt(session: session, home: home)
        let part = world.broker?.ledger.parts[session]?[Setting.homes[home]]
        if let part, part.progress?.isSettled != true { return }
        if waived.contains(debt) || nameless.contains(session) || unheard.contains(debt)
            || isInDoubt(session, home, world)
        {
            return
        }
        fail("data was left without a debt", "home \(home), session \(session)")
    }

    /// Whether a process still shows a session of which the broker has lost track, because the process ended its
    /// connection or the broker was restarted. The process cleans up on its next call.
    func isInDoubt(_ session: UInt64, _ home: Int, _ world: World) -> Bool {
        world.slots.contains { $0.home == home && $0.process?.held.contains { $0.epoch == session } == true }
    }
}
