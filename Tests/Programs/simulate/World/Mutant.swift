import BrokerCore
import Identity
@_spi(Extensions) import SharedDevice

/// Deliberate mistakes of the broker, an app or the enforcer. The simulation must detect each of them. No mistake
/// changes the broker's reducer: the mistakes of the broker change what the reducer receives and what the world
/// performs.
package enum Mutant: String, CaseIterable, Sendable {
    case transactionIsNotSynced, noteIsNotWritten, noteIsNotRead, noteAfterBroadcast, answersBeforeCommit
    case ledgerIsNotWritten, restartForgets, noBroadcastAtStart
    case receiptOfAnotherSession, receiptOfAnotherApp, endSettles, debtByApp, throttleByName
    case signOutNamesNoSession, policyIsAdvisory, brokenConfigurationIsDefaults
    case eventsLoseTheirTime, eventsAreNotHeeded, eventsOfStrangersAreForgotten
    case lostAnswerIsNoUse, everyTokenIsUnused, providerRecordIsNotWritten
    case sleepIsUnseen, clockMovesWaits, nobodyIsProven, remindsNobody, neverConfiguredIsDefaults
    case loginsAreForgotten
    case anyoneUnlocks, everyScreenLocks, startForgetsLock
    case reportsBeforeDeletion, deletesWithoutSync, enforcementReportsFirst, claimsAreNotWritten

    /// A seed whose schedule detects the mistake. A change of the broker or of the simulation may move it: then
    /// `make simulate-mutants` searches on from here, and prints the next one.
    package var exampleSeed: UInt64 { Self.exampleSeeds[self] ?? 1 }

    private static let exampleSeeds: [Mutant: UInt64] = [
        .transactionIsNotSynced: 16, .noteIsNotWritten: 17, .noteIsNotRead: 17, .noteAfterBroadcast: 14,
        .noBroadcastAtStart: 171, .receiptOfAnotherApp: 6, .endSettles: 13, .debtByApp: 2, .throttleByName: 694,
        .signOutNamesNoSession: 1_921, .policyIsAdvisory: 3, .brokenConfigurationIsDefaults: 24,
        .eventsLoseTheirTime: 950, .eventsAreNotHeeded: 8, .eventsOfStrangersAreForgotten: 63, .lostAnswerIsNoUse: 415,
        .everyTokenIsUnused: 66, .providerRecordIsNotWritten: 35, .sleepIsUnseen: 49, .clockMovesWaits: 59,
        .nobodyIsProven: 8, .remindsNobody: 10, .neverConfiguredIsDefaults: 24, .loginsAreForgotten: 326,
        .anyoneUnlocks: 64, .everyScreenLocks: 438, .startForgetsLock: 119, .reportsBeforeDeletion: 6_759,
        .deletesWithoutSync: 9, .enforcementReportsFirst: 3, .claimsAreNotWritten: 1_168,
    ]
}

extension Request {
    func calling(_ call: Call) -> Request {
        Request(number: number, connection: connection, claimed: claimed, call: call, method: method)
    }
}

extension World {
    /// The event as a broker with the mistake would receive it.
    func rewritten(_ event: Event, _ state: BrokerState) -> Event {
        if mutant == .lostAnswerIsNoUse, case .renewed(let number, .unavailable(let error, mayBeUsed: true)) = event {
            return .renewed(number, .unavailable(error, mayBeUsed: false))
        }
        // The broker with this mistake takes each person for the one who is signed in.
        if mutant == .anyoneUnlocks, case .authenticated(let number, .success(let identity)) = event,
            let account = state.device.account
        {
            let mistaken = AuthenticatedIdentity(account: account, isAdministrator: identity.isAdministrator)
            return .authenticated(number, .success(mistaken))
        }
        guard let mutant, case .request(let request) = event else { return event }
        var (call, connection, claimed) = (request.call, request.connection, request.claimed)
        switch (mutant, call) {
        case (.receiptOfAnotherSession, .report(let progress, _, _, _, let detail)):
            call = .report(progress, session: state.ledger.rounds.last ?? 0, detail: detail)
        case (.receiptOfAnotherApp, .report(.finished, let session, _, _, _)):
            // The receipt counts as that of another app that owes a cleanup.
            guard let other = otherDebtor(session, state, but: request) else { return event }
            (connection, claimed) = other
        case (.signOutNamesNoSession, .signOut(let identifier, _)):
            call = .signOut(identifier: identifier, session: nil)
        case (.everyScreenLocks, .screen(_, let known, let patience)):
            call = .screen(shows: .lock, known: known, patience: patience)
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
        let (number, method) = (request.number, request.method)
        return .request(Request(number: number, connection: connection, claimed: claimed, call: call, method: method))
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
        let note = effects.firstIndex { if case .noteState = $0 { true } else { false } }
        var effects = effects
        switch (mutant, event) {
        // An announcement on a timer without a new state is a reminder.
        case (.noBroadcastAtStart, .busRestored),
            (.remindsNobody, .time) where note == nil:
            effects.removeAll { if case .announce = $0 { true } else { false } }
        case (.noteAfterBroadcast, _): if let note { effects.append(effects.remove(at: note)) }
        default: break
        }
        return effects
    }

    func settleAll(_ index: Int, _ connection: String) {
        guard let broker, let home = slots[index].home else { return }
        for owed in broker.ledger.owed(by: homes[home].participant) {
            let name = slots[index].name
            let call = Request.Call.report(.finished, session: owed.epoch, mark: owed.mark, detail: nil)
            feed(.request(Request(number: 0, connection: connection, claimed: name, call: call, method: "mutant")))
        }
    }
}
