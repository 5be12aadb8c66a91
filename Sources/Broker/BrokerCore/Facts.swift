import DeviceConfiguration
import FoundationEssentials
import Identity
@_spi(Extensions) import SharedDevice

/// The state of the device that all features read. Only ``BrokerState`` changes it.
struct Facts: Sendable {
    var now: Moment
    var device: DeviceState
    var membership: Membership?
    var policy = DevicePolicy()
    var manifests: [AppManifest] = []
    /// Manifests that could not be read so far.
    var unknownManifests: [String] = []
    var eligibility = AppEligibility()
    let requiresProof: Bool
    var ledger: CleanupLedger
    var connected: [String: Connected] = [:]
    var waiting = WaitingRequests()
    /// The session that is being committed.
    var pending: PendingSession?
    /// The lock of the present session; `nil` if it is not locked.
    var lock: SessionLock?
    /// When the signed-in person last authenticated; `nil` if that was before the broker's start.
    var authenticatedAt: Duration?
    /// The organisation's last report on the compliance of this device.
    var compliance: ComplianceWord?
    var disk = Disk()
    /// Whether a user of the device's own directory can sign in with a badge.
    var hasBadges = false

    /// The lifetime of a sign-in at a prompt.
    static let promptLifetime = Duration.seconds(600)
    /// How many token requests of one user may wait at a time.
    static let tokensOfUser = 64
    /// The longest pause between two attempts of anything.
    static let longestPause = Duration.seconds(60)

    /// A connection and the apps that it has identified as.
    struct Connected: Sendable {
        let caller: Caller
        /// The apps by the names that the caller gave. One process may be several apps.
        var apps: [String?: Participant] = [:]
        /// The change that has to be committed before the connection receives the account.
        var held: UInt64 = 0
    }

    struct PendingSession: Sendable {
        /// The sign-in; `nil` for a login at the seat.
        let attempt: Attempt?
        let next: DeviceState
        let change: UInt64
    }

    struct Disk: Sendable {
        /// The number of the latest change.
        var changes: UInt64 = 0
        /// All changes up to this number are committed.
        var committed: UInt64 = 0
        /// The batch that is being written; `nil` if there is none.
        var writing: Batch?
        /// The latest time at which the next write begins; `nil` if there is nothing to write.
        var due: Duration?
        /// The number of successful writes that contained log entries.
        var logWrites: UInt64 = 0
        /// Why the last write failed; `nil` if it succeeded.
        var problem: String?

        /// How long a change that a crash may lose can stay in memory.
        static let lazyWrite = Duration.milliseconds(200)

        var isIdle: Bool { writing == nil && due == nil }
    }
}

// MARK: Callers

extension Facts {
    /// Whether the app has an identified connection on the bus.
    func isRunning(_ participant: Participant) -> Bool {
        connected.values.contains { $0.apps.values.contains(participant) }
    }

    /// Whether the caller is the service of this unit. On a bus that only one user reaches, it may be any program of
    /// the broker's user that is not an app.
    func isService(_ caller: Caller, unit: String) -> Bool {
        if requiresProof { return caller.credentials.unit == unit }
        return caller.isAdministrator && connected[caller.connection]?.apps.isEmpty == true
    }

    /// Checks that the caller is still the same app after a wait: the rules may have changed.
    func checkIdentity(_ request: Request, _ participant: Participant) throws(Refusal) {
        guard connected[request.connection]?.apps[request.claimed] == participant else {
            throw .appNotEligible("which apps take part has changed since this app asked; ask again")
        }
    }

    /// Whether the app is the screen program. It needs a manifest, because it learns the person's name, and because a
    /// lock relies on it.
    func isScreen(_ participant: Participant) -> Bool { eligibility.manifest(of: participant.app)?.isScreen == true }

    /// Restricts the prompt, the screen program and the reporter of input to calls that give them neither account nor
    /// token.
    func checkPurpose(_ participant: Participant, _ call: Request.Call) throws(Refusal) {
        let manifest = eligibility.manifest(of: participant.app)
        if case .screen = call, manifest?.isScreen != true { throw .onlyScreen }
        guard let manifest, manifest.holdsNothing else { return }
        if manifest.isScreen {
            switch call {
            case .screen, .signIn, .cancelSignIn, .activity: return
            default: throw .screenHoldsNothing
            }
        }
        switch call {
        case .beginSignIn, .completeSignIn, .awaitSignIn, .cancelSignIn: if !manifest.isPrompt { throw .onlyActivity }
        case .activity: if manifest.isPrompt { throw .onlyPrompts }
        default: throw manifest.isPrompt ? .onlyPrompts : .onlyActivity
        }
    }

    /// Whether this Linux user is the account. Its processes may report activity.
    func isAccount(_ user: UInt32) -> Bool {
        policy.identity == .loginSession && device.account.flatMap(SeatLogin.user(of:)) == user
    }

    /// Whether the app may have the account of this state, according to `allowedUsers` of the app's manifest. For an
    /// app that may not have it, the device looks like one on which no account is signed in.
    func mayUse(_ participant: Participant, in state: DeviceState) -> Bool {
        guard let account = state.account else { return true }
        return eligibility.manifest(of: participant.app)?.allowedUsers?.admits(account, state.groups) ?? true
    }

    /// Whether the apps that would learn of this attempt's person may have the account of this state.
    func mayUse(_ attempt: Attempt, in state: DeviceState) -> Bool {
        mayUse(attempt.participant, in: state) && (attempt.app.map { mayUse($0, in: state) } ?? true)
    }

    /// An app that was given the account of this state, and may not have it any more.
    func barred(in state: DeviceState) -> Participant? {
        ledger.parts[state.epoch, default: [:]].keys.sorted().first { !mayUse($0, in: state) }
    }

    /// Checks that the present app may have the account. It gets the refusal of a device without an account.
    func checkMayUse(_ participant: Participant, in state: DeviceState) throws(Refusal) {
        guard mayUse(participant, in: state) else { throw .noCurrentAccount }
    }

    /// Under a strict policy an app that owes a cleanup receives neither an account nor a token.
    func checkOwesNothing(_ participant: Participant, _ connection: String) throws(Refusal) {
        if policy.cleanup.isStrict, !ledger.owed(by: participant, on: connection).isEmpty { throw .cleanupRequired }
    }

    /// Refuses the calls of an app that is being stopped. A late receipt does not count either.
    func checkNotEnforced(_ participant: Participant) throws(Refusal) {
        guard ledger.claims[participant] == nil else { throw .isEnforced }
    }
}

// MARK: The next sign-in

extension Facts {
    /// The sign-in methods of this device, the usual one first.
    var signInMethods: [BrokerProtocol.SignInMethod] {
        switch policy.identity {
        case .embedded: hasBadges ? [.password, .badge] : [.password]
        case .oidc: policy.organisation?.signInMethods.map { $0 == .browser ? .browser : .deviceCode } ?? []
        case .loginSession: []
        }
    }

    /// Whether the session is open, and waits for its person to authenticate.
    var isLocked: Bool { lock != nil }

    /// Checks the conditions of a sign-in that depend on neither the person nor the caller. At a locked session, those
    /// of a new session count when another person has authenticated.
    func checkSignIn() throws(Refusal) {
        guard policy.isConfigured else { throw .neverConfigured }
        guard policy.identity != .loginSession else { throw .signedInByLogin }
        if let problem = complianceProblem { throw problem }
        if !isLocked {
            try device.checkSignIn(rules)
            try checkManifests()
        }
        guard pending == nil else { throw .signInUnderWay }
    }

    /// Whether the caller of a sign-in has stopped waiting for the response.
    func hasCallerGivenUp(_ request: Request) -> Bool {
        request.call.signInPatience.map { now.uptime >= request.askedAt + $0 } ?? false
    }

    /// Why compliance prevents sign-ins; `nil` if the device complies, or if no events about the device are configured.
    var complianceProblem: Refusal? {
        guard let word = compliance, !word.isCompliant, policy.organisation?.sharedSignals?.device != nil,
            isIssuer(word.issuer)
        else { return nil }
        return .notCompliant(word.issuer)
    }

    /// Whether it is the configured provider.
    func isIssuer(_ name: String) -> Bool { policy.organisation?.issuer.text.utf8.elementsEqual(name.utf8) == true }

    /// The rules for signing in. On a joined device the membership names the tenant.
    var rules: SignInRules {
        SignInRules(
            requiresJoin: policy.requiresJoin,
            isJoined: membership != nil,
            tenantIdentifier: membership?.tenantIdentifier ?? policy.tenantIdentifier,
            allowedUsers: policy.allowedUsers
        )
    }

    /// The state after this account's sign-in.
    func signingIn(_ account: Account, _ groups: PersonGroups = .none) throws(Refusal) -> DeviceState {
        let next = try device.signingIn(account, rules, groups)
        if let problem = disk.problem { throw .failed(problem) }
        return next
    }

    /// Whether the session of a login at the seat is being committed.
    var isLoginPending: Bool { pending.map { $0.attempt == nil } ?? false }

    /// Under a strict policy sign-in is blocked while a manifest cannot be read: the data of its program might not be
    /// cleaned up.
    func checkManifests() throws(Refusal) {
        if policy.cleanup.isStrict, let path = unknownManifests.first { throw .manifestUnknown(path) }
    }

    /// Whether an open round delays the next sign-in. One that outlasts the policy's timeout no longer does. A policy
    /// without a timeout also waits for rounds that expired under an earlier policy.
    var isSignInHeld: Bool {
        // An enforcement program may still delete data, which must not be the next person's.
        if !ledger.claims.isEmpty { return true }
        if waitsWithoutEnd { return ledger.hasIncompleteRounds }
        return policy.cleanup.timeout != nil && !ledger.openRounds.isEmpty
    }

    /// The apps that a sign-in has to wait for.
    var awaited: [String] {
        Set((waitsWithoutEnd ? ledger.debtors : ledger.awaited).union(ledger.claims.keys).map(\.app)).sorted()
    }

    private var waitsWithoutEnd: Bool { policy.cleanup.longestWait == nil }
}

// MARK: The session

extension Facts {
    func checkAccount(_ identifier: String, _ session: UInt64? = nil) throws(Refusal) -> Account {
        guard device.mode == .shared else { throw .notSharedDevice }
        guard let account = device.account else { throw .noCurrentAccount }
        guard account.hasIdentifier(identifier), session == nil || session == device.epoch else {
            throw .currentAccountMismatch
        }
        return account
    }

    /// - Parameter maximumAge: How long ago the person may have authenticated; `nil` for any time.
    func checkAuthentication(_ maximumAge: Duration?) throws(Refusal) {
        guard let maximumAge else { return }
        guard let authenticatedAt, now.uptime - authenticatedAt <= maximumAge else { throw .authenticatedTooEarly }
    }

    /// The refusal for a session that ended during the request, even if its person has signed in again (edge case E14).
    func sessionIsOver(_ identifier: String) -> Refusal {
        do throws(Refusal) {
            _ = try checkAccount(identifier)
            return .currentAccountMismatch
        } catch {
            return error
        }
    }

    /// The wall-clock time of a past moment, by the present setting of the clock.
    func date(of moment: Duration) -> Date { now.wall.addingTimeInterval((moment - now.uptime) / .seconds(1)) }

    /// Checks the requested scopes in tokens of the device's own directory, before any other work for the app.
    ///
    /// An app whose manifest has `scopes` gets those. Other apps get scopes that belong to no particular service or, if
    /// no enrolment is required, all: any program may then be an app, so a scope proves nothing about it.
    func checkScopes(_ wanted: Set<String>, of participant: Participant) throws(Refusal) {
        let manifest = eligibility.manifest(of: participant.app)
        let refused: [String]
        if let rights = manifest?.tokens, !rights.scopes.isEmpty {
            refused = rights.refused(of: wanted)
        } else if policy.requiresEnrolment {
            refused = wanted.filter { AccessToken.service(ofScope: $0) != nil }.sorted()
        } else {
            return
        }
        if !refused.isEmpty { throw .refusedScopes(refused) }
    }
}
