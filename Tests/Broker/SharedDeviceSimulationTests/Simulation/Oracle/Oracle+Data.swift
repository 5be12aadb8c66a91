import SharedDevice
import SharedDeviceBroker

/// What holds at all times: whatever data there is, its owner is signed in or somebody owes its removal.
extension Oracle {
    mutating func check(_ world: World) {
        guard violation == nil, let revision = world.broker?.revision else { return }
        if lastRevision != revision, let ledger = world.broker?.ledger {
            lastRevision = revision
            checkLedger(ledger, world)
        }
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

    /// Whether a process still shows the session that the broker has lost sight of: it ended its connection, or the broker was started anew.
    /// It cleans up when it asks.
    func isInDoubt(_ session: UInt64, _ home: Int, _ world: World) -> Bool {
        world.slots.contains { $0.home == home && $0.process?.held.contains { $0.epoch == session } == true }
    }
}
