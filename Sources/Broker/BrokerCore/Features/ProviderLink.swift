import Basics
import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
@_spi(Extensions) import SharedDevice

/// The session with the organisation's provider: how it begins and ends, how long it lasts without confirmation, which
/// app gets which token, and what the provider reports and is told.
///
/// A renewal both gets a token for an app and checks whether the person may stay signed in. Only one is in flight at a
/// time: a provider revokes all tokens of a sign-in if a refresh token is used twice.
struct ProviderLink: Sendable {
    struct Renewal: Sendable {
        let number: UInt64
        let generation: UInt64
        /// The app's request; `nil` for a check.
        let token: TokenRequest?
        /// Whether this is an early check, which is repeated if the provider cannot be reached.
        let isEarly: Bool
        /// The outbox entry that waits for the end of the renewal, if the sign-in is over.
        var held: UInt64?
        /// Whether something was revoked since it was sent, so that its token may be invalid.
        var isDoubtful = false
    }

    // MARK: The session

    /// The session; `nil` if no account is signed in, or if the account belongs to another directory.
    private(set) var session: ProviderSession?
    /// When the provider last confirmed that the person is signed in.
    private var lastGood = Duration.zero
    private(set) var tokens = TokenVault()
    /// The latest ID token.
    private var identity: IdentityToken?
    /// Whether the provider requires the person, before it issues a token or, without a record, is asked at all.
    var needsPerson: Bool { session.map { $0.needsPerson || $0.record == nil } ?? false }
    /// When the provider began to require the person; `nil` if that was before this run of the broker.
    private var demandedAt: Duration?
    /// Grows with each sign-in of the person. Renewals of an earlier generation are ignored.
    private var generation: UInt64 = 0
    /// The change that stores the newest record. No token is handed out before it is committed.
    var change: UInt64 = 0

    // MARK: Requests

    /// Whether the identity service responds: it serves only the owner of the broker's bus name, which is not yet the
    /// broker at a start. A refused renewal would not be repeated before the next check.
    var isReachable = false
    /// When the next check is due, with or without a request of an app.
    private var nextCheck = Duration.zero
    /// When an early check is due, and when the last one was.
    private var soon: Duration?
    private var lastSoon: Duration?
    /// When the machine woke up with the grace nearly over, for the first time since the last confirmation.
    private var wokeAt: Duration?

    /// Since when a check has been overdue without a response, whatever the reason.
    private var unanswered: Duration?
    private(set) var problem: Refusal?
    /// The logged reason of the last failed renewal; `nil` after one that worked.
    private var loggedFailure: String?
    /// How many renewals have failed in a row, and until when the provider is therefore not asked.
    private var failures = 0
    private var pausedUntil: Duration?
    /// Whether the record's token may be used up by a renewal without a response, or revoked with earlier tokens.
    private var mayBeUsed = false
    /// Whether the broker is about to end. It then sends no renewals.
    var isEnding = false
    private(set) var renewal: Renewal?
    private(set) var lastNumber: UInt64 = 0
    /// The apps that wait for a token, in order of their requests.
    private var queue: [TokenRequest] = []
    /// Limits how often each app causes a renewal: each costs a request over the network and a commit. Starts again
    /// with the next sign-in.
    private var pace = ProviderLink.newPace
    /// The scopes that the provider last refused to each app since the sign-in.
    private var refused: [Participant: Set<String>] = [:]

    // MARK: Ends and events

    var outbox: ProviderOutbox
    private(set) var heard = HeardEvents()
    /// Why stored records could not be opened at the start.
    private(set) var recordProblem: String?

    /// How long an overdue check may stay unanswered: a little longer than the identity service's time for a response.
    static let answerPatience = Duration.seconds(90)
    /// The longest pause after failed renewals, and the longest Retry-After. There is no pause after the first failure,
    /// 2 s after the second, and twice as long after each further one.
    static let (longestRest, longestWish) = (Duration.seconds(60), Duration.seconds(300))
    /// How many failures in a row an early check survives: a network that has just returned may not reach the provider.
    static let earlyFailures = 6
    /// How many token requests may wait at a time.
    static let longestQueue = 256
    /// The shortest pause between two early requests to the provider, whatever the number of reasons.
    static let soonPause = Duration.seconds(30)
    /// How far the provider's clock may be behind this device's clock, in seconds.
    static let clockSkew: TimeInterval = 60

    private static let newPace = RateLimit<Participant>(burst: 16, every: .seconds(15))

    /// Continues the session that an earlier run of the broker has opened, if an account is signed in.
    init(_ content: StoredContent, isSignedIn: Bool, at now: Moment) {
        outbox = ProviderOutbox(entries: content.outbox)
        if !content.recordProblems.isEmpty {
            recordProblem =
                "the stored record of the sign-in with the organisation's provider cannot be opened ("
                + Set(content.recordProblems).sorted().joined(separator: "; ")
                + "); start the broker with the key that it was sealed with (the credential token-key), or have the person sign in again"
        }
        guard isSignedIn, let session = content.provider else { return }
        self.session = session
        mayBeUsed = !session.isSettled
        if !session.needsPerson { demandedAt = now.uptime }
        // The clock may have been set back since. A check in the future counts as one now.
        lastGood = now.uptime - .seconds(max(0, now.wall.timeIntervalSince(session.checkedAt)))
        nextCheck = now.uptime
    }

    // MARK: Beginning

    /// Opens the session of a person whose sign-in with the provider began at `began`.
    mutating func open(_ signIn: ProviderSignIn, since began: Duration, _ facts: Facts) {
        guard let settings = facts.policy.organisation else { return }
        session = ProviderSession(settings, record: signIn.record, since: facts.date(of: began), at: facts.now)
        generation += 1
        forgetRequests()
        isGood(since: facts.now.uptime)
        (identity, recordProblem) = (nil, nil)
        (pace, refused) = (Self.newPace, [:])
        tokens.keepCommon(keepIdentity(signIn.token))
        scheduleCheck(facts)
    }

    private mutating func forgetRequests() {
        (mayBeUsed, problem, unanswered) = (false, nil, nil)
        (demandedAt, pausedUntil, failures) = (nil, nil, 0)
        loggedFailure = nil
    }

    private mutating func isGood(since time: Duration) { (lastGood, wokeAt) = (time, nil) }

    /// Replaces the session after the same person has authenticated again. Revokes the earlier tokens, unless they
    /// belong to the same session at the provider: revoking them could end it.
    mutating func replace(with signIn: ProviderSignIn, since began: Duration, _ facts: Facts) -> [Decision] {
        var decisions: [Decision] = []
        if let old = session?.record, old.session == nil || old.session != signIn.record.session {
            decisions = tellLater(old, keepsSession: true, isRenewed: isRenewed, facts)
        }
        // Tokens of the earlier sign-in meet no claims, and may be revoked.
        tokens.drop()
        open(signIn, since: began, facts)
        return decisions + [.persist(.provider, within: .zero)]
    }

    /// Whether a renewal of the present record is in flight.
    private var isRenewed: Bool { renewal?.generation == generation }

    func row(_ facts: Facts) -> ProviderSession? {
        guard let pending = facts.pending else { return session }
        guard let attempt = pending.attempt, let signIn = attempt.provided, let settings = facts.policy.organisation
        else { return nil }
        return ProviderSession(settings, record: signIn.record, since: facts.date(of: attempt.beganAt), at: facts.now)
    }

    // MARK: End

    /// Closes the session on this device at once. The provider is told afterwards.
    mutating func close(_ facts: Facts) -> [Decision] {
        tokens.drop()
        guard let session else { return [] }
        let isRenewed = isRenewed
        (self.session, soon, identity) = (nil, nil, nil)
        generation += 1
        forgetRequests()
        var decisions: [Decision] = [.persist(.provider, within: nil), .persist(.erasure, within: nil)]
        if let record = session.record { decisions += tellLater(record, isRenewed: isRenewed, facts) }
        decisions += queue.map { .refuse($0.request, facts.sessionIsOver($0.account.identifier)) }
        queue = []
        return decisions
    }

    /// Signs out or withholds tokens at the end of the provider's session, as the configuration says.
    private mutating func endByProvider(_ cause: String, _ facts: Facts) -> [Decision] {
        if facts.policy.organisation?.onProviderSessionEnd == .reauthenticate { return needPerson(facts) }
        return [.end(cause: cause)]
    }

    /// Withholds tokens until the person has authenticated again. A repeated demand by the provider does not extend
    /// their time.
    private mutating func needPerson(_ facts: Facts) -> [Decision] {
        guard !needsPerson else { return [] }
        demandedAt = facts.now.uptime
        session?.needsPerson = true
        tokens.drop()
        let details = ["epoch": "\(facts.device.epoch)"]
        return [.persist(.provider, within: .zero), .persist(.erasure, within: nil)] + refuseTokens(personNeeded)
            + [.note(.notice, "the provider wants the person to sign in again", details), .touch]
    }

    var personNeeded: Refusal { .signInAgain(session?.issuer ?? "the organisation") }

    /// Checks the session against a new configuration. Signs out if the session belongs to another provider or client.
    func configure(_ facts: Facts) -> [Decision] {
        guard facts.policy.isConfigured, facts.device.account != nil, facts.pending == nil else { return [] }
        let isOfConfiguration =
            switch (session, facts.policy.organisation) {
            case (let session?, let settings?): session.isOf(settings)
            case (nil, nil): true
            default: false
            }
        return isOfConfiguration || facts.policy.identity == .loginSession
            ? [] : [.end(cause: "the managed configuration")]
    }

    // MARK: Without confirmation

    /// When the session ends for lack of confirmation by the provider. It is `nil` without a configured grace, and
    /// while no check is overdue, the last check did not fail, and no person is needed.
    ///
    /// The grace counts from the last confirmation, whatever prevents the next one. There is a minimum of time, even if
    /// the grace is over:
    ///
    /// - A person has the lifetime of a prompt.
    /// - A request has the time for its response.
    /// - After a sleep the network has as much time to return, once after each confirmation: repeated sleeps do not
    ///   extend the session.
    private func graceEnd(_ facts: Facts) -> Duration? {
        guard let grace = facts.policy.organisation?.offlineGrace.duration else { return nil }
        let word = lastGood + grace
        if needsPerson { return max(word, demandedAt.map { $0 + Facts.promptLifetime } ?? word) }
        let end = max(word, wokeAt.map { $0 + Self.answerPatience } ?? word)
        if problem != nil { return end }
        return unanswered.map { max(end, $0 + Self.answerPatience) }
    }

    /// Notes a sleep after which the grace is nearly over, so that a check still has time for its response.
    mutating func wake(_ facts: Facts) {
        guard wokeAt == nil, let grace = facts.policy.organisation?.offlineGrace.duration,
            lastGood + grace < facts.now.uptime + Self.answerPatience
        else { return }
        wokeAt = facts.now.uptime
    }

    mutating func passTime(_ facts: Facts) -> [Decision] {
        guard session != nil, facts.device.account != nil, let end = graceEnd(facts), end <= facts.now.uptime else {
            return []
        }
        let seconds = (facts.now.uptime - lastGood).components.seconds
        let failure = problem == nil ? facts.disk.problem?.printable(300) : nil
        let reason = needsPerson ? "the person has not signed in again" : failure
        return [.end(cause: "offline for \(seconds) s" + (reason.map { ": \($0)" } ?? ""))]
    }

    // MARK: Tokens

    /// Gives the app a token of the provider: a cached one or a new one.
    mutating func acquireToken(_ wanted: TokenRequest, _ facts: Facts) throws(Refusal) -> [Decision] {
        let participant = wanted.participant
        var token = wanted
        token.scopes = try scopes(wanted.scopes, for: participant, facts)
        if needsPerson { throw personNeeded }
        if let kept = keptToken(for: token, facts) { return [try handOver(kept, for: token, facts)] }
        if let pausedUntil, facts.now.uptime < pausedUntil, renewal == nil, let problem { throw problem }
        guard queue.count(where: { $0.participant.user == participant.user }) < Facts.tokensOfUser,
            queue.count < Self.longestQueue
        else { throw .tooManyQuestions }
        // A request for a token that is already awaited gets it from the same renewal.
        if !queue.contains(where: token.isSameToken(as:)) {
            let waiting = Set(queue.filter { $0.participant == participant }.map(\.scopes)).count
            if let pause = pace.pause(of: participant, waiting: waiting, at: facts.now.uptime) {
                // The app has used up its requests. It gets the cached result, or a refusal.
                if refused[participant] == token.scopes { throw .scopesNotGranted }
                guard let kept = storedToken(for: token, facts) else { throw .askedTooOften(pause) }
                return [try handOver(kept, for: token, facts)]
            }
        }
        queue.append(token)
        return []
    }

    private func handOver(_ token: AccessToken, for request: TokenRequest, _ facts: Facts) throws(Refusal) -> Decision {
        try checkGrant(token, for: request, facts)
        return request.handOver(token)
    }

    private func rights(of participant: Participant, _ facts: Facts) -> TokenRights {
        facts.eligibility.manifest(of: participant.app)?.tokens ?? TokenRights()
    }

    /// Checks that a token permits all scopes that the app named, and none that its manifest lacks. Providers may grant
    /// fewer or more scopes than requested (RFC 6749, section 3.3).
    private func checkGrant(_ token: AccessToken, for request: TokenRequest, _ facts: Facts) throws(Refusal) {
        let rights = rights(of: request.participant, facts).scopes
        let excess = AccessToken.scopes(token.scopes, beyond: rights)
        guard excess.isEmpty else { throw .excessScopes(excess.sorted()) }
        guard request.areNamed else { return }
        let declined = AccessToken.scopes(request.scopes, notIn: token.scopes)
        guard !declined.isEmpty else { return }
        // In the spelling of the manifest, which the app can use in its next request.
        throw .declinedScopes(declined.sorted(), granted: AccessToken.scopes(rights, in: token.scopes).sorted())
    }

    /// The ID token; `nil` if the app may not have it. Its manifest has to list each scope about the person that the
    /// sign-in was granted, because no claim can be removed from a signed token.
    func idToken(for participant: Participant, _ facts: Facts) -> String? {
        guard let identity, let rights = facts.eligibility.manifest(of: participant.app)?.tokens.scopes,
            identity.scopes.isSubset(of: rights)
        else { return nil }
        return identity.text
    }

    /// Stores the ID token once for all access tokens that come with it, and returns the access token without it.
    private mutating func keepIdentity(_ token: AccessToken) -> AccessToken {
        if let identity = token.identity { self.identity = identity }
        var token = token
        token.identity = nil
        return token
    }

    /// The scopes to request: without names all of the app's manifest.
    private func scopes(
        _ wanted: Set<String>,
        for participant: Participant,
        _ facts: Facts
    ) throws(Refusal) -> Set<String> {
        let rights = rights(of: participant, facts)
        guard !rights.scopes.isEmpty else { throw .noScopes }
        let refused = rights.refused(of: wanted)
        guard refused.isEmpty else { throw .refusedScopes(refused) }
        return wanted.isEmpty ? rights.scopes : wanted
    }

    private func keptToken(for request: TokenRequest, _ facts: Facts) -> AccessToken? {
        request.isRefresh ? nil : storedToken(for: request, facts)
    }

    /// A cached token, even if the app has asked for a new one.
    private func storedToken(for request: TokenRequest, _ facts: Facts) -> AccessToken? {
        if let token = tokens.anyToken(for: request.participant, scopes: request.scopes, at: facts.now) { return token }
        // The sign-in's token permits all scopes granted at that time, which may exceed the app's scopes.
        guard let token = tokens.common(at: facts.now),
            token.scopes.isSubset(of: rights(of: request.participant, facts).scopes),
            request.scopes.isSubset(of: token.scopes)
        else { return nil }
        return token
    }

    /// Stores a new token, and gives it to all waiting requests that it satisfies.
    private mutating func take(_ token: AccessToken, for request: TokenRequest?, _ facts: Facts) -> [Decision] {
        let token = keepIdentity(token)
        guard let request else {
            tokens.keepCommon(token)
            return []
        }
        tokens.store(token, for: request.participant, scopes: request.scopes, at: facts.now)
        var decisions: [Decision] = []
        let waiting = queue
        queue = []
        for next in waiting {
            guard let kept = next.isSameToken(as: request) ? token : keptToken(for: next, facts) else {
                queue.append(next)
                continue
            }
            do throws(Refusal) {
                decisions.append(try handOver(kept, for: next, facts))
            } catch {
                decisions.append(.refuse(next.request, error))
            }
        }
        return decisions
    }

    private mutating func refuseTokens(
        _ refusal: Refusal,
        where isMeant: (TokenRequest) -> Bool = { _ in true }
    ) -> [Decision] {
        let meant = queue.filter(isMeant)
        queue.removeAll(where: isMeant)
        return meant.map { .refuse($0.request, refusal) }
    }

    /// Removes the requests of a connection. A renewal in flight for one continues, because its response may contain a
    /// new record.
    mutating func abandonRequests(of connection: String) -> [Decision] {
        refuseTokens(.requestAbandoned) { $0.request.connection == connection }
    }

    // MARK: Timing

    /// When the provider is asked next. A pause also delays an early check.
    var nextRequest: Duration { max(min(nextCheck, soon ?? nextCheck), pausedUntil ?? .zero) }

    /// Whether the session and the configuration permit a renewal, ignoring one in flight.
    private func mayAsk(_ facts: Facts) -> Bool {
        session?.record != nil && facts.policy.organisation != nil && !needsPerson && !isEnding
    }

    func next(_ facts: Facts) -> Duration? {
        var times = [isReachable ? outbox.next(isCommitted: isCommitted(facts)) : nil]
        if facts.device.account != nil, session != nil, facts.policy.organisation != nil {
            times.append(graceEnd(facts))
            // If a check is overdue and something blocks it, no wake-up is needed: the obstacle ends with an event, or
            // the session ends.
            let isFree = isReachable && renewal == nil && isCommitted(facts)
            if mayAsk(facts), isFree || unanswered == nil { times.append(nextRequest) }
        }
        return times.compactMap { $0 }.min()
    }

    /// Whether the disk has the session's present record.
    private func isCommitted(_ facts: Facts) -> Bool { facts.disk.committed >= change }

    /// Schedules the next check after the configured interval, varied by up to a tenth, so that the devices of an
    /// organisation do not all ask at once.
    private mutating func scheduleCheck(_ facts: Facts) {
        unanswered = nil
        guard let interval = facts.policy.organisation?.remoteCheckInterval.duration else { return }
        // A predictable variation is enough, because epochs differ between devices.
        let spread = (facts.device.epoch &* 31 &+ lastNumber &* 17) % 21
        nextCheck = facts.now.uptime + interval * (90 + Int(spread)) / 100
    }

    // MARK: Requests

    /// Sends a renewal if an app waits or a check is due, and the next report of a session's end that is due.
    ///
    /// - Parameter began: When the oldest sign-in in progress began; `nil` if there is none. Buffered events do not
    ///   apply to later sign-ins.
    mutating func ask(during began: Duration?, _ facts: Facts) -> [Decision] {
        if began == nil, !heard.isEmpty { heard = HeardEvents() }
        var decisions: [Decision] = []
        if isReachable, let (number, entry) = outbox.takeDue(isCommitted: isCommitted(facts), at: facts.now.uptime) {
            decisions = [.perform(.tellSessionEnd(number, entry.record, keepsSession: entry.keepsSession))]
        }
        guard mayAsk(facts), let record = session?.record else { return decisions }
        let isDue = nextRequest <= facts.now.uptime
        if isDue, unanswered == nil { unanswered = facts.now.uptime }
        guard isReachable, renewal == nil, isDue || !queue.isEmpty else { return decisions }
        // A power cut would lose a record that is not committed, and its predecessor is used up.
        guard isCommitted(facts) else {
            return decisions + (facts.disk.problem.map { refuseTokens(.failed($0)) } ?? [])
        }
        guard session?.isSettled == false else { return decisions + settle(false) }
        lastNumber += 1
        let isEarly = soon.map { $0 <= facts.now.uptime } ?? false
        if isEarly { soon = nil }
        // A check requests no scopes, because a refusal of scopes says nothing about the session.
        let token = isDue ? nil : queue.first
        if let token { pace.take(token.participant, at: facts.now.uptime) }
        renewal = Renewal(number: lastNumber, generation: generation, token: token, isEarly: isEarly)
        let mayBeUsed = self.mayBeUsed || outbox.revokes(record.person)
        let scopes = token?.scopes ?? []
        return decisions + [.perform(.renew(lastNumber, record, scopes: scopes, mayBeUsed: mayBeUsed))]
    }

    /// Stores whether every renewal has a response, before one is sent and after its response. Otherwise a start could
    /// mistake the device's own second use of a token for a refusal by the provider, or the reverse.
    private mutating func settle(_ isSettled: Bool) -> [Decision] {
        guard let session, session.isSettled != isSettled else { return [] }
        self.session?.isSettled = isSettled
        return [.persist(.provider, within: isSettled ? Facts.Disk.lazyWrite : .zero)]
    }

    /// Notes that the record's token may be revoked, with the tokens of an earlier sign-in of the person. The next
    /// refusal may be due to that.
    private mutating func doubtRecord(of person: ProviderRecord.Person) -> [Decision] {
        guard session?.record?.person == person else { return [] }
        mayBeUsed = true
        // A token of a renewal in flight may be revoked, too.
        renewal?.isDoubtful = true
        return settle(false)
    }

    // MARK: Responses

    mutating func renewed(_ number: UInt64, _ outcome: RenewalOutcome, _ facts: Facts) -> [Decision] {
        guard let renewal, renewal.number == number else { return [] }
        self.renewal = nil
        if let held = renewal.held {
            // The renewal's sign-in is over. The entry gets the newest record, because the earlier one is used up and
            // cannot end the session. It is committed, so that a start finds it.
            guard case .renewed(_, let newest?) = outcome else {
                outbox.release(held, with: nil)
                return []
            }
            outbox.release(held, with: newest)
            return [.persist(nil, within: .zero)]
        }
        // The person has signed in again, so results of the earlier sign-in do not count.
        guard renewal.generation == generation, facts.device.account != nil else { return [] }
        if case .scopeRefused = outcome, let token = renewal.token {
            // This says nothing about the session or its record, so it delays neither the next check nor the end of the
            // grace.
            refused[token.participant] = token.scopes
            return refuseTokens(.scopesNotGranted) { $0.isSameToken(as: token) } + settle(!mayBeUsed)
        }
        scheduleCheck(facts)
        if needsPerson { return renewedInVain(outcome, facts) }
        var decisions: [Decision] = problem == nil ? [] : [.touch]
        problem = nil
        pausedUntil = nil
        switch outcome {
        case .renewed(let token, let record):
            (mayBeUsed, failures) = (renewal.isDoubtful, 0)
            isGood(since: facts.now.uptime)
            if loggedFailure != nil {
                loggedFailure = nil
                decisions.append(.note(.notice, "the provider gives tokens again", [:]))
            }
            session?.checkedAt = facts.now.wall
            if let record {
                session?.record = record
                decisions.append(.persist(.provider, within: .zero))
            }
            decisions += take(token, for: renewal.token, facts)
        case .sessionOver:
            (mayBeUsed, failures) = (false, 0)
            decisions += endByProvider("the provider has ended its session", facts)
            if !needsPerson { return decisions }
        case .reauthenticationNeeded:
            (mayBeUsed, failures) = (false, 0)
            decisions += needPerson(facts)
        // An outcome without a check of the token does not confirm that the token is valid.
        case .misconfigured(let error): decisions += fail(error, facts)
        case .unavailable(let error, let mayBeUsed):
            self.mayBeUsed = mayBeUsed || renewal.isDoubtful
            decisions += fail(error, facts)
            if renewal.isEarly, failures <= Self.earlyFailures { soon = soon ?? facts.now.uptime }
        case .scopeRefused:
            let what = "refuses the scopes of the sign-in (invalid_scope)"
            let error = IdentityError(.providerMisconfigured, "\(session?.issuer ?? "the provider") \(what)")
            decisions += fail(error, facts)
        }
        return decisions + settle(!mayBeUsed)
    }

    /// Handles the response to a renewal if the provider has asked for the person since it was sent: its token is not
    /// handed out. A new record is stored, so that the provider can end the session later.
    private mutating func renewedInVain(_ outcome: RenewalOutcome, _ facts: Facts) -> [Decision] {
        switch outcome {
        case .renewed(_, let record?):
            session?.record = record
            return [.persist(.provider, within: .zero)]
        case .sessionOver: return endByProvider("the provider has ended its session", facts)
        case .renewed, .reauthenticationNeeded, .misconfigured, .scopeRefused, .unavailable: return []
        }
    }

    /// Refuses token requests for now, and pauses. Logs the reason once until it changes.
    private mutating func fail(_ error: IdentityError, _ facts: Facts) -> [Decision] {
        let pause: Duration = failures == 0 ? .zero : min(.seconds(1 << min(failures, 6)), Self.longestRest)
        failures += 1
        pausedUntil = facts.now.uptime + max(pause, min(error.retryAfter ?? .zero, Self.longestWish))
        let grace = facts.policy.organisation?.offlineGrace.duration ?? .zero
        let left = (lastGood + grace - facts.now.uptime) / .seconds(1)
        let refusal = Refusal(error, staysSignedInUntil: facts.now.wall.addingTimeInterval(left))
        problem = refusal
        let decisions = refuseTokens(refusal) + [.touch]
        guard loggedFailure != error.description else { return decisions }
        loggedFailure = error.description
        let level: Logger.Level = refusal.code == .providerMisconfigured ? .error : .warning
        let details = ["reason": refusal.description.printable(1000)]
        return decisions + [.note(level, "the provider gives no token", details)]
    }

    // MARK: Ends of sessions

    /// Adds the end of a session to the outbox.
    ///
    /// - Parameters:
    ///   - keepsSession: Whether only its tokens are to be revoked.
    ///   - isRenewed: Whether a renewal of its record is in flight.
    mutating func tellLater(
        _ record: ProviderRecord,
        keepsSession: Bool = false,
        isRenewed: Bool = false,
        _ facts: Facts
    ) -> [Decision] {
        let (number, dropped) = outbox.add(record, keepsSession: keepsSession, isHeld: isRenewed, at: facts.now)
        if isRenewed { renewal?.held = number }
        let note = dropped.map { [noteEnd($0, .lost, "too many ended sessions wait to be reported")] } ?? []
        return note + [.persist(nil, within: .zero)]
    }

    mutating func sessionEndTold(_ number: UInt64, _ error: IdentityError?, _ facts: Facts) -> [Decision] {
        let entry = outbox.entries[number]
        let mayWork = error.map { $0.code == .providerUnavailable || $0.code == .busy }
        guard let outcome = outbox.ended(number, mayWork: mayWork, at: facts.now) else { return [] }
        var decisions: [Decision] = []
        if outcome == .done || outcome == .lost, let entry, entry.keepsSession {
            decisions = doubtRecord(of: entry.record.person)
        }
        let note = noteEnd(number, outcome, error?.description ?? "")
        return decisions + [.persist(nil, within: Facts.Disk.lazyWrite), note]
    }

    private func noteEnd(_ number: UInt64, _ outcome: ProviderOutbox.Outcome, _ reason: String) -> Decision {
        let (level, text): (Logger.Level, String) =
            switch outcome {
            case .done: (.notice, "the provider knows that a session is over")
            case .again(let pause): (.notice, "the provider is told again in \(pause.components.seconds) s")
            case .lost: (.warning, "the provider does not know that a session is over, and is not told again")
            }
        let details = ["number": "\(number)", "reason": reason.printable(500)].filter { !$0.value.isEmpty }
        return .note(level, text, details)
    }

    // MARK: Reports of the provider

    /// Acts on an event that the identity service has received.
    ///
    /// - Parameter began: When the oldest sign-in in progress began; `nil` if there is none.
    /// - Returns: The decisions, and whether a change has to be committed before the service may forget the event. A
    ///   sign-out does not: ``Effect/noteState(_:)`` stores it before any response is sent.
    mutating func heed(_ event: ProviderEvent, during began: Duration?, _ facts: Facts) -> ([Decision], isKept: Bool) {
        let isOurs = facts.isIssuer(event.issuer)
        switch event.kind {
        case .compliant, .notCompliant: return isOurs ? heedCompliance(event, facts) : ([], false)
        case .networkUp:
            guard isOurs else { return ([], false) }
            // The Retry-After may have come from a captive portal, not from the provider.
            (pausedUntil, failures) = (nil, 0)
            askSoon(facts)
            return ([], false)
        case .doubt, .ended, .reauthenticate: break
        }
        if isOurs, let began { heard.add(event, at: facts.now.uptime, since: began) }
        if event.kind == .doubt {
            if isOurs, event.subject == nil || event.subject == session?.record?.person.subject { askSoon(facts) }
            return ([], false)
        }
        if event.kind == .ended, let attempt = facts.pending?.attempt, let provided = attempt.provided,
            event.concerns(provided.record), isSince(event, attempt.beganAt, facts)
        {
            // The session ended while its sign-in was still being committed.
            return ([.dropSignIn(.endedMeanwhile(event.issuer))], false)
        }
        return heedEnd(event, facts)
    }

    private mutating func heedEnd(_ event: ProviderEvent, _ facts: Facts) -> ([Decision], isKept: Bool) {
        guard let session, let record = session.record, event.concerns(record) else { return ([], false) }
        // The event is late or a repetition: the person has begun another session since, or has authenticated again.
        // The provider decides whether the session may continue.
        let since = event.kind == .ended ? session.beganAt : session.provedAt
        if let date = event.date, date < since.addingTimeInterval(-Self.clockSkew) {
            askSoon(facts)
            return ([], false)
        }
        let cause = "the provider has ended its session, and reported that"
        let decisions = event.kind == .reauthenticate ? needPerson(facts) : endByProvider(cause, facts)
        if case .end? = decisions.first { return (decisions, false) }
        return (decisions, needsPerson)
    }

    /// Whether the event happened after the sign-in began, by the provider's clock, or has no date.
    private func isSince(_ event: ProviderEvent, _ began: Duration, _ facts: Facts) -> Bool {
        event.date.map { $0 >= facts.date(of: began).addingTimeInterval(-Self.clockSkew) } ?? true
    }

    /// Refuses a sign-in if the provider has ended its session since it began, or if events were lost.
    func checkLasts(_ record: ProviderRecord, since began: Duration, _ facts: Facts) throws(Refusal) {
        guard heard.isComplete(since: began) else { throw .toldTooMuch(record.person.issuer) }
        let events = heard.about(record, since: began)
        guard !events.contains(where: { $0.kind == .ended && isSince($0, began, facts) }) else {
            throw .endedMeanwhile(record.person.issuer)
        }
    }

    /// The events that were buffered for a sign-in whose session is now open, except those that would have ended it. If
    /// events were lost, asks the provider.
    mutating func heardEvents(since began: Duration, _ facts: Facts) -> [ProviderEvent] {
        guard let record = session?.record else { return [] }
        if !heard.isComplete(since: began) { askSoon(facts) }
        return heard.about(record, since: began)
    }

    mutating func heedHeard(_ event: ProviderEvent, _ facts: Facts) -> [Decision] {
        guard event.kind == .doubt else { return heedEnd(event, facts).0 }
        askSoon(facts)
        return []
    }

    /// - Parameter isCounted: Whether it counts for the pause between early checks. A check after a sleep does not: the
    ///   network often returns some seconds later.
    mutating func askSoon(_ facts: Facts, isCounted: Bool = true) {
        // Without a session `soon` stays `nil`, so each reason computes a new time. The upper bound keeps it from
        // moving further and further away.
        let earliest = max(facts.now.uptime, lastSoon.map { $0 + Self.soonPause } ?? .zero)
        let time = min(earliest, facts.now.uptime + Self.soonPause)
        guard soon == nil else { return }
        if isCounted { lastSoon = time }
        // Scheduled even if a renewal is in flight: it may have begun before the reason arose.
        if session != nil { soon = time }
        outbox.hurry(to: time)
    }

    private func heedCompliance(_ event: ProviderEvent, _ facts: Facts) -> ([Decision], isKept: Bool) {
        let date = event.date ?? facts.now.wall
        // A late event: something newer is known.
        if let known = facts.compliance, facts.isIssuer(known.issuer), date < known.date { return ([], false) }
        let word = ComplianceWord(issuer: event.issuer, isCompliant: event.kind == .compliant, date: date)
        return ([.comply(word)], true)
    }
}
