import Identity
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

/// Deliberate mistakes. Each changes the events or effects between the broker's reducer and the simulated world, and
/// the simulation must detect it.
package enum Mutant: String, CaseIterable, Sendable {
    case transactionIsNotSynced, noteIsNotWritten, noteIsNotRead, noteAfterBroadcast, answersBeforeCommit
    case ledgerIsNotWritten, restartForgets, noBroadcastAtStart
    case receiptOfAnotherSession, receiptOfAnotherApp, endSettles, debtByApp, throttleByName
    case signOutNamesNoSession, policyIsAdvisory, brokenConfigurationIsDefaults
    case eventsLoseTheirTime, eventsAreNotHeeded, eventsOfStrangersAreForgotten
    case lostAnswerIsNoUse, everyTokenIsUnused, providerRecordIsNotWritten
    case sleepIsUnseen, clockMovesWaits, nobodyIsProven, remindsNobody, neverConfiguredIsDefaults
    case loginsAreForgotten
    case reportsBeforeDeletion, deletesWithoutSync, enforcementReportsFirst, claimsAreNotWritten

    /// The first seed whose schedule detects the mistake. A change of the broker or of the simulation may move it, so
    /// that a campaign from here takes longer. `MUTANTS=yes SEED=1` finds the new number.
    package var exampleSeed: UInt64 {
        switch self {
        case .transactionIsNotSynced: 16
        case .noteIsNotWritten: 17
        case .noteIsNotRead: 17
        case .noteAfterBroadcast: 14
        case .noBroadcastAtStart: 95
        case .endSettles: 13
        case .throttleByName: 694
        case .signOutNamesNoSession: 446
        case .brokenConfigurationIsDefaults: 24
        case .eventsLoseTheirTime: 325
        case .eventsAreNotHeeded: 8
        case .eventsOfStrangersAreForgotten: 63
        case .lostAnswerIsNoUse: 415
        case .everyTokenIsUnused: 66
        case .providerRecordIsNotWritten: 35
        case .sleepIsUnseen: 49
        case .clockMovesWaits: 59
        case .nobodyIsProven: 8
        case .remindsNobody: 10
        case .neverConfiguredIsDefaults: 24
        case .loginsAreForgotten: 326
        case .reportsBeforeDeletion: 3_227
        case .claimsAreNotWritten: 1_168
        default: 1
        }
    }

    var appMistakes: AppMistakes {
        switch self {
        case .reportsBeforeDeletion: .reportsBeforeDeletion
        case .deletesWithoutSync: .deletesWithoutSync
        default: []
        }
    }
}

extension World {
    /// The event as a broker with the mistake would receive it.
    func rewritten(_ event: Event, _ state: BrokerState) -> Event {
        if mutant == .lostAnswerIsNoUse, case .renewed(let number, .unavailable(let error, mayBeUsed: true)) = event {
            return .renewed(number, .unavailable(error, mayBeUsed: false))
        }
        guard let mutant, case .request(let request) = event else { return event }
        var (call, connection, claimed) = (request.call, request.connection, request.claimed)
        switch (mutant, call) {
        case (.receiptOfAnotherSession, .report(let progress, _, _, let detail)):
            call = .report(progress, session: state.ledger.rounds.last ?? 0, detail: detail)
        case (.receiptOfAnotherApp, .report(.finished, let session, _, _)):
            // The first receipt counts for all apps, so this one counts as another app's receipt.
            guard let other = otherDebtor(session, state, but: request) else { return event }
            (connection, claimed) = other
        case (.signOutNamesNoSession, .signOut(let identifier, _)):
            call = .signOut(identifier: identifier, session: nil)
        case (.eventsAreNotHeeded, .providerEvents): call = .providerEvents([])
        // While signed out, the broker with this mistake ignores the events.
        case (.eventsOfStrangersAreForgotten, .providerEvents) where state.device.account == nil:
            call = .providerEvents([])
        case (.eventsLoseTheirTime, .providerEvents(let events)):
            call = .providerEvents(
                events.map { ProviderEvent($0.kind, issuer: $0.issuer, subject: $0.subject, session: $0.session) }
            )
        default: return event
        }
        return .request(
            Request(
                number: request.number,
                connection: connection,
                claimed: claimed,
                call: call,
                method: request.method
            )
        )
    }

    private func otherDebtor(_ session: UInt64, _ state: BrokerState, but request: Request) -> (String, String?)? {
        for slot in slots where slot.connection != request.connection && known.contains(slot.connection) {
            guard let home = slot.home, slot.name != request.claimed,
                state.ledger.parts[session]?[homes[home].participant]?.progress?.isSettled == false
            else { continue }
            return (slot.connection, slot.name)
        }
        return nil
    }

    func rewritten(_ batch: Batch) -> Batch {
        var batch = batch
        if mutant == .ledgerIsNotWritten { batch.parts = [:] }
        if mutant == .claimsAreNotWritten { batch.claims = [:] }
        // Only the first record of a session is written.
        if mutant == .providerRecordIsNotWritten, batch.providerOwner == disk.providerOwner { batch.provider = nil }
        return batch
    }

    func ordered(_ effects: [Effect], of event: Event) -> [Effect] {
        if mutant == .noBroadcastAtStart, case .busRestored = event {
            return effects.filter { if case .announce = $0 { false } else { true } }
        }
        // An announcement on a timer without a new state is a reminder.
        if mutant == .remindsNobody, case .time = event,
            !effects.contains(where: { if case .noteState = $0 { true } else { false } })
        {
            return effects.filter { if case .announce = $0 { false } else { true } }
        }
        guard mutant == .noteAfterBroadcast,
            let index = effects.firstIndex(where: { if case .noteState = $0 { true } else { false } })
        else { return effects }
        var effects = effects
        effects.append(effects.remove(at: index))
        return effects
    }

    func settleAll(_ index: Int, _ connection: String) {
        guard let broker, let home = slots[index].home else { return }
        for owed in broker.ledger.owed(by: homes[home].participant) {
            let call = Request.Call.report(.finished, session: owed.epoch, mark: owed.mark, detail: nil)
            feed(
                .request(
                    Request(number: 0, connection: connection, claimed: slots[index].name, call: call, method: "mutant")
                )
            )
        }
    }
}
