import Identity
import Logging
import SharedDevice

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

    case respond(UInt64, Response)
    case refuse(Request, Refusal)
    /// Gives the app the token, once the ledger lists the app.
    case handOver(Request, Participant, Grant)
    /// Carries out the request of a caller who has the right to it.
    case administer(Request)
    /// Has the request wait, and then checked again.
    case wait(Request, until: Duration? = nil, for: WaitingRequest.Reason)
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
