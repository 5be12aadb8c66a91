import Identity
import Logging
@_spi(Extensions) import SharedDevice

/// An action that a feature requires. Features change only their own state; ``BrokerState`` applies their decisions, in
/// their order.
enum Decision: Sendable {
    // MARK: The outside

    /// Sends a request to the bus, logind or an identity provider, or tells it something.
    case perform(Effect)
    case note(Logger.Level, String, [String: String])

    // MARK: The session

    /// Signs the person out, and ends a sign-in whose session is being committed.
    case end(cause: String)
    /// Signs the person out because the provider has ended its session.
    case endByProvider(cause: String)
    /// Starts to commit the session of a person who is logged in at the seat.
    case beginSession(DeviceState, detail: String)
    /// Begins the session of a person whom the directory has identified.
    case begin(Attempt, Account, AccessToken?)
    /// Begins or continues the session of a person whom the organisation's provider has identified.
    case complete(Attempt, ProviderSignIn)
    /// Closes the session that the provider has opened for a sign-in that was given up.
    case discard(ProviderSignIn)
    /// Ends the sign-in whose session is being committed.
    case dropSignIn(Refusal)
    case endPrompts(Refusal)

    // MARK: The device

    case changeMembership(Request, Account)
    case comply(ComplianceWord)
    case claim(Participant, CleanupLedger.Claim)
    case release(Participant)
    /// The claim's app was stopped and its data deleted.
    case enforced(Participant, detail: String?)
    /// Lets apps continue that were refused and not started during a claim.
    case claimsEnded([Participant])

    // MARK: Requests

    case respond(UInt64, BrokerProtocol.Fields)
    case refuse(Request, Refusal)
    /// Gives the app the token, once the ledger lists the app.
    case handOver(Request, Participant, Grant)
    /// Carries out the request of a caller who has the right to it.
    case administer(Request)
    /// Has the request wait, and then checked again.
    case wait(Request, until: Duration? = nil, for: BrokerState.Waiting.Reason)
    /// Drops a waiting request that its caller has given up.
    case abandon(UInt64)
    /// Refuses the waiting status, log and round requests of these users, who are no longer operators.
    case refuseStatus(of: Set<UInt32>)
    /// Has all waiting requests checked.
    case checkWaiting
    /// Counts a change that requests may wait for.
    case touch

    // MARK: The disk

    /// Has the row written, and all changes up to now within this time; `nil` means with the next ones.
    case persist(StoredRow?, within: Duration?)
    case log(
        AuditEntry.Event,
        session: UInt64? = nil,
        participant: Participant? = nil,
        app: String? = nil,
        detail: String?
    )
    /// Logs an event that the app can repeat, within the limit of such entries.
    case logRepeatable(AuditEntry.Event, String, session: UInt64, Participant, detail: String?)
}

extension BrokerState {
    mutating func apply(_ decisions: [Decision]) {
        for decision in decisions {
            switch decision {
            case .perform(let effect): effects.append(effect)
            case .persist(let row, let delay):
                if let row { unsaved.insert(row) }
                guard let delay else { continue }
                let change = needsDisk(within: delay)
                if row == .provider, delay == .zero { provider.change = change }
            case .end(let cause): signOutAutomatically(because: cause)
            case .log(let event, let session, let participant, let app, let detail):
                enterLog(event, session: session, participant: participant, app: app, detail: detail)
            case .logRepeatable(let event, let kind, let session, let participant, let detail):
                enterRepeatable(event, kind, session, participant, detail: detail)
            case .note(let level, let text, let details): effects.append(.note(level, text, details))
            case .beginSession(let next, let detail): write(next, of: nil, nil, detail: detail)
            case .dropSignIn(let refusal): dropPendingSignIn(because: refusal)
            case .endByProvider(let cause):
                guard let next = try? device.signingOut(nil) else { continue }
                enter(next, cause: cause)
                let details = ["reason": cause, "epoch": "\(device.epoch)"]
                effects.append(.note(.notice, "signed out by the provider", details))
            case .endPrompts(let refusal): apply(signIns.endPrompts(because: refusal))
            case .begin(let attempt, let account, let token):
                do throws(Refusal) {
                    try begin(attempt, account, token)
                } catch {
                    signIns.reopen(attempt)
                    if let request = attempt.request { refuse(request, error) }
                }
            case .complete(let attempt, let signIn):
                do throws(Refusal) {
                    try complete(attempt, signIn)
                } catch {
                    apply(provider.tellLater(signIn.record, facts))
                    if let request = attempt.request { refuse(request, error) }
                }
            case .discard(let signIn): apply(provider.tellLater(signIn.record, facts))
            case .changeMembership(let request, let account):
                respond(to: request) { state throws(Refusal) in
                    try state.changeMembership(request, account)
                    return nil
                }
            case .comply(let word):
                facts.compliance = word
                unsaved.insert(.compliance)
                change()
            case .administer(let request):
                respond(to: request) { state throws(Refusal) in try state.administer(request) }
            case .refuseStatus(let users):
                let facts = facts
                let refused = waiting.remove { Administration.isStatus($0.request, of: users, facts) }
                for entry in refused { refuse(entry.request, .notPermitted) }
            case .refuse(let request, let refusal): refuse(request, refusal)
            case .handOver(let request, let participant, let grant):
                respond(to: request) { state throws(Refusal) in try state.handOver(request, participant, grant) }
            case .respond(let number, let fields): reply(number, fields)
            case .wait(let request, let until, let reason): wait(request, until: until, for: reason)
            case .abandon(let number):
                guard waiting[number] != nil else { continue }
                waiting[number] = nil
                effects.append(.reply(number, .failure(.requestAbandoned)))
            case .checkWaiting: isTouched = true
            case .touch: touch()
            case .claim(let participant, let claim):
                facts.ledger.claim(participant, claim)
                change()
            case .release(let participant): facts.ledger.release(participant)
            case .enforced(let participant, let detail):
                for session in facts.ledger.enforce(participant, detail: detail, at: now) {
                    noteSettled(.enforced, session, participant, detail: detail)
                }
            case .claimsEnded(let participants):
                for participant in participants { wakeups.claimEnded(of: participant.app, facts) }
                effects.append(.announce(modeChanged: false))
                change()
            }
        }
    }
}
