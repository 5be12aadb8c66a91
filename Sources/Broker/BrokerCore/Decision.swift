import Identity
import Logging
import SharedDevice

/// An action that a feature requires. Features change only their own state; ``BrokerState`` applies their decisions, in
/// their order.
enum Decision: Sendable {
    // MARK: The outside

    case perform(Effect)

    // MARK: The session

    /// Signs the person out, and ends a sign-in whose session is being committed.
    case end(cause: String)
    /// Locks the session, or ends it if no screen program can show a lock.
    case lockScreen(because: String)
    /// The session is locked, or how its lock has changed.
    case lock(SessionLock)
    /// Starts to commit the session of a person who is logged in at the seat.
    case beginSession(DeviceState, detail: String)
    /// Begins the session of a person whom the directory or the provider has identified, or continues it.
    case begin(Attempt)
    /// Closes the provider's session of a sign-in that was given up.
    case discard(ProviderSignIn)
    /// Ends the sign-in whose session is being committed.
    case dropSignIn(Refusal)

    // MARK: The device

    /// Stores the organisation's report on this device. If it prevents sign-ins, ends the session and all sign-ins.
    case comply(ComplianceWord)
    case claim(Participant, CleanupLedger.Claim)
    /// Ends the claims. The apps may continue.
    case release([Participant])
    /// The claim's app was stopped and its data deleted.
    case enforced(Participant, detail: String?)

    // MARK: Requests

    case respond(UInt64, Response)
    case refuse(Request, Refusal)
    /// Gives the app the token, once the ledger lists the app.
    case handOver(Request, Participant, Grant)
    /// Carries out the request of a caller who has the right to it.
    ///
    /// - Parameter account: The organisation's administrator whom the directory has identified, for a join or leave.
    case administer(Request, as: Account? = nil)
    /// Has the request wait, and then checked again.
    case wait(Request, until: Duration? = nil, for: WaitingRequest.Reason)
    /// Drops a waiting request that its caller has given up.
    case abandon(UInt64)
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

    static func note(_ level: Logger.Level, _ text: String, _ details: [String: String]) -> Decision {
        .perform(.note(level, text, details))
    }
}
