import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The cleanup rounds after each session (architecture, D10).
extension BrokerState {
    // MARK: Reports

    /// Handles an app's report. The response waits for the commit, except at the begin of a cleanup. A report on a
    /// cleanup that the app does not owe changes nothing, because a report may arrive twice.
    mutating func report(_ request: Request, _ participant: Participant) -> Response? {
        guard case .report(let progress, let session, let mark, let took, let detail) = request.call else { return nil }
        let before = ledger.parts[session]?[participant]
        let effect = facts.ledger.report(
            progress,
            of: session,
            by: participant,
            on: request.connection,
            mark: mark,
            took: took,
            detail: detail,
            at: now
        )
        switch effect {
        case .none: break
        case .detailed: needsDisk(within: Facts.Disk.lazyWrite)
        case .refused where ledger.parts[session]?[participant] != before:
            let words = "the cleanup does not count: another connection of the app has closed without a report"
            enterRepeatable(.interrupted, "reports", session, participant, detail: words)
            needsDisk(within: .zero)
            wakeups.remindOfDebt(facts)
            touch()
        case .refused: break
        case .recorded, .completed:
            noteSettled(progress, session, participant, detail: detail)
            needsDisk(within: progress == .begun ? Facts.Disk.lazyWrite : .zero)
            if ledger.owes(participant, where: \.isIdle) { wakeups.remindOfDebt(facts) }
            touch()
        }
        guard progress != .begun else { return .done }
        wait(request, for: .stored(effect == .refused ? .again : .done, participant))
        return nil
    }

    mutating func waive(_ request: Request) -> Response? {
        guard case .waive(let app, let user, let session, let reason) = request.call else { return nil }
        var waived: Set<UInt64> = []
        for participant in ledger.debtors.sorted()
        where participant.app == app && (user ?? participant.user) == participant.user {
            for number in ledger.owed(by: participant).map(\.epoch) where session == nil || session == number {
                _ = facts.ledger.report(.waived, of: number, by: participant, on: nil, detail: reason, at: now)
                noteSettled(.waived, number, participant, detail: reason)
                waived.insert(number)
            }
        }
        change()
        wait(request, for: .stored(.waived(waived.sorted()), nil))
        return nil
    }

    /// Logs an app's progress, and the completion of the round.
    mutating func noteSettled(
        _ progress: CleanupReport.Progress,
        _ session: UInt64,
        _ participant: Participant,
        detail: String?
    ) {
        guard let event = AuditEntry.Event(rawValue: progress.rawValue) else { return }
        // A cleanup is settled only once.
        if ledger.parts[session]?[participant]?.progress?.isSettled == true {
            enterLog(event, session: session, participant: participant, detail: detail)
        } else {
            enterRepeatable(event, "reports", session, participant, detail: detail)
        }
        noteCompletion(session)
    }

    mutating func noteCompletion(_ session: UInt64, detail: String? = nil) {
        guard ledger.sessions[session]?.outcome == .complete else { return }
        enterLog(.completed, session: session, detail: detail)
        logQuota.forget(session)
        unsaved.insert(.erasure)
    }

    mutating func tell(_ participant: Participant) {
        // The note that an app was told is only for people: the ledger already contains the debt.
        for number in facts.ledger.tell(participant, at: now) {
            enterRepeatable(.told, "told", number, participant)
            needsDisk(within: Facts.Disk.lazyWrite)
            touch()
        }
    }

    /// Handles the end of the app's last process. It is started again if it owes a cleanup.
    mutating func appEnded(_ participant: Participant) {
        for number in facts.ledger.processEnded(participant) {
            enterRepeatable(.interrupted, "interrupted", number, participant)
            needsDisk(within: Facts.Disk.lazyWrite)
        }
        touch()
        if ledger.owes(participant) { apply(wakeups.startDebtor(participant.app, facts)) }
    }

    // MARK: Holders

    /// Records that each adapter holds data of the open sessions, because its program never asks for the account. Call
    /// this before the change that a new session's sign-in waits for.
    ///
    /// - Parameter state: The open session, or the one that begins. An adapter not for its person holds no data of it.
    mutating func holdForAdapters(_ state: DeviceState) {
        for (number, session) in ledger.sessions.sorted(by: { $0.key < $1.key }) where session.outcome == nil {
            for manifest in eligibility.adapters {
                let participant = AppIdentity(identifier: manifest.identifier, manifest: manifest).participant(of: 0)
                guard number != state.epoch || facts.mayUse(participant, in: state),
                    facts.ledger.hold(number, by: participant, on: nil)
                else { continue }
                enterLog(.held, session: number, participant: participant, detail: "by its adapter's manifest")
                change()
            }
        }
    }

    /// Logs that the app holds the account, and by which property of its manifest it was identified.
    mutating func noteHolder(_ participant: Participant, of session: UInt64) {
        let identity = eligibility.manifest(of: participant.app)?.identity
        let detail = identity.map { "known by \($0)" } ?? "no manifest"
        enterLog(.held, session: session, participant: participant, detail: detail)
    }

    // MARK: Requests

    /// Returns a round at once if it is complete or has changed. Otherwise the request waits.
    mutating func round(_ request: Request) -> Response? {
        guard case .round(let session, let known, let awaitsEnd, let patience, _) = request.call,
            let number = session ?? ledger.rounds.last, let outcome = ledger.sessions[number]?.outcome
        else { return .done }
        let deadline = request.askedAt + patience
        if outcome == .complete || (revision != known && !awaitsEnd) || deadline <= now.uptime {
            if let found = round(of: number) { return .round(found) }
            return .done
        }
        wait(request, until: deadline, for: .round)
        return nil
    }
}
