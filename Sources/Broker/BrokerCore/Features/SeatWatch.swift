import Basics
import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
import SharedDevice

/// Follows the login at the seat: it is the device's account if the configuration says so, and a sign-out ends it if
/// the configuration says so.
struct SeatWatch: Sendable {
    private enum Shutdown: Equatable {
        case none
        /// The machine shuts down when this session's cleanup is complete; `nil` means that there is no session to wait
        /// for.
        case waits(for: UInt64?)
        case allowed
    }

    private struct Ending: Sendable {
        var sessions: Set<LoginName>
        /// The session whose cleanup the login sessions are kept for.
        let session: UInt64
        /// The latest time at which logind is asked.
        var due: Duration
        var pauses = Backoff(first: SeatWatch.endPause, longest: Facts.longestPause)
        var isAsked = false
        /// Why the login sessions still exist.
        var problem: String?
    }

    private var seat: Seat?
    /// When logind stopped responding; `nil` if it responds.
    private var silentSince: Duration?
    /// The login of the present session; `nil` after a start of the broker until the login is identified.
    private var login: SeatLogin?
    /// Login sessions whose account was signed out although the login still exists. They do not sign in again, because
    /// another person may sit there.
    private var spent: Set<LoginName> = []
    /// The spent sessions that a screen lock has signed out. Unlocking them counts as a login.
    private var lockedOut: Set<LoginName> = []
    /// For each sign-out, the login sessions that it has to end and that still exist.
    private var endings: [Ending] = []
    /// Why a logged-in person is not signed in, or sign-in by login is not possible. It names no account.
    private var signInProblem: String?
    private var shutdown = Shutdown.none
    /// Whether logind has not responded since the broker's start.
    private var isFromStart = true

    /// The longest time that a login session outlasts the sign-out, so that its programs can clean up.
    static let endPatience = Duration.seconds(10)
    /// How long logind may take to end a session before it is asked again.
    static let endPause = Duration.seconds(5)
    /// How long logind may be silent before the person at the seat counts as gone. Its restart takes less than a
    /// second.
    static let silencePatience = Duration.seconds(60)

    /// When the seat has to be checked again; `nil` means at the next event.
    func next(_ facts: Facts) -> Duration? {
        let isInUse = facts.device.account != nil && facts.policy.identity == .loginSession
        let silent = isInUse ? silentSince.map { $0 + Self.silencePatience } : nil
        // Without logind no login session can be ended. Its return is an event.
        let ending = seat == nil ? nil : endings.map(\.due).min()
        return [ending, silent].compactMap { $0 }.min()
    }

    /// The problem with logins that administrators are told. It names no account.
    var problem: String? { endings.lazy.compactMap(\.problem).first ?? signInProblem }

    // MARK: Reports of logind

    /// - Parameter seat: `nil` means that logind does not respond.
    mutating func look(at seat: Seat?, _ facts: Facts) {
        let before = self.seat
        self.seat = seat
        guard let seat else {
            silentSince = silentSince ?? facts.now.uptime
            return
        }
        silentSince = nil
        if let before {
            let unlocked = before.locked.subtracting(seat.locked).intersection(lockedOut)
            spent.subtract(unlocked)
            lockedOut.subtract(unlocked)
        } else if login == nil {
            findSpent(seat, facts)
        }
        isFromStart = false
        spent.formIntersection(seat.names)
        lockedOut.formIntersection(seat.names)
    }

    /// After a start of the broker or a long silence of logind, finds the logins that were already signed out: those
    /// from before the last session. While a session is open, only the logins of other users count.
    private mutating func findSpent(_ seat: Seat, _ facts: Facts) {
        guard let last = facts.ledger.sessions.keys.max(), let began = facts.ledger.sessions[last]?.startedAt else {
            return
        }
        let present = facts.device.account.flatMap(SeatLogin.user)
        guard facts.device.account == nil || present != nil else { return }
        // If the wall clock was set between the login and the sign-in, the monotonic clock is right.
        let awake = facts.now.uptime - facts.now.asleep - .seconds(max(0, facts.now.wall.timeIntervalSince(began)))
        let former = seat.sessions.filter { session in
            session.userID != present && (session.began <= began || session.beganAwake.map { $0 <= awake } ?? false)
        }
        spent.formUnion(former.map(\.name))
        guard facts.device.account == nil, isFromStart, facts.policy.identity == .loginSession,
            let owner = facts.ledger.sessions[last]?.account.flatMap(SeatLogin.user)
        else { return }
        // Ends only the owner's logins. The other users were at the seat earlier, and the last sign-out was not theirs.
        endLogins(former.filter { $0.userID == owner }.map(\.name), of: last, facts)
    }

    mutating func heard(_ event: LoginEvent, _ facts: Facts) -> [Decision] {
        let isAccount = facts.policy.identity == .loginSession
        switch event {
        case .locked(let name) where facts.policy.endsAtScreenLock:
            // If the login is the account, a lock of another person's session in the background does not affect it.
            if isAccount, let login,
                seat?.sessions.contains(where: { $0.name == name && $0.userID != login.user }) == true
            {
                return []
            }
            let sessions = login?.sessions ?? []
            // Without this a person whose sign-in is being committed would be signed in behind the lock, because the
            // login still exists.
            if facts.device.account != nil || facts.isLoginPending { spent.formUnion(sessions) }
            lockedOut.formUnion(sessions.intersection(spent))
        // If the login is the account, the whole seat decides: the person may have another session.
        case .ended where facts.policy.endsAtLogout && !isAccount: break
        case .shutdown:
            shutdown = .waits(for: isAccount && facts.device.account != nil ? facts.device.epoch : nil)
            if !isAccount { return [] }
        case .shutdownCancelled:
            shutdown = .none
            return []
        case .locked, .ended: return []
        }
        return [.end(cause: event.cause)]
    }

    // MARK: Reactions

    mutating func configure(_ facts: Facts) {
        guard facts.policy.isConfigured, !facts.policy.followsSeat else { return }
        // The report on the seat is still valid, and is only repeated after a change.
        (login, spent, lockedOut, endings) = (nil, [], [], [])
        (signInProblem, shutdown, isFromStart) = (nil, .none, false)
    }

    /// Signs out an account of the other kind (login or directory), from before a change of the configuration.
    mutating func checkKindOfAccount(_ facts: Facts) -> [Decision] {
        guard facts.policy.isConfigured else { return [] }
        let isLogin = facts.policy.identity == .loginSession
        if facts.isLoginPending, !isLogin { return [.dropSignIn(.requestAbandoned)] }
        guard let account = facts.device.account, (SeatLogin.user(of: account) != nil) != isLogin else { return [] }
        login = nil
        return [.end(cause: "the managed configuration")]
    }

    /// Signs out the person who was at the seat so far, if that person has left.
    mutating func noticeDeparture(of former: UInt32?, _ facts: Facts) -> [Decision] {
        guard facts.policy.isConfigured else { return [] }
        guard isAccount(facts) else {
            let isWanted = facts.device.mode == .shared && (facts.policy.endsAtScreenLock || facts.policy.endsAtLogout)
            let problem =
                "logind does not respond, so a screen lock or a logout ends no session; see: systemctl status systemd-logind"
            return tell(isWanted && silentSince != nil ? problem : nil)
        }
        guard let seat else { return logindIsSilent(facts) }
        let login = seat.login(staying: former)
        if facts.isLoginPending, login.map({ continues($0, facts) }) != true { return [.dropSignIn(.requestAbandoned)] }
        guard facts.device.account != nil else { return [] }
        if let login, continues(login, facts) {
            self.login = login
            return []
        }
        self.login = nil
        let isThere = seat.sessions.contains { $0.userID == former }
        let isAnother = login != nil && login?.user != former
        return [.end(cause: isThere && isAnother ? "switch of users" : LoginEvent.ended.cause)]
    }

    private func isAccount(_ facts: Facts) -> Bool {
        facts.policy.identity == .loginSession && facts.device.mode == .shared
    }

    func user(_ facts: Facts) -> UInt32? { login?.user ?? facts.device.account.flatMap(SeatLogin.user) }

    private mutating func logindIsSilent(_ facts: Facts) -> [Decision] {
        guard let since = silentSince else { return [] }
        let note = tell(
            "logind does not respond, so the broker cannot tell who is logged in; see: systemctl status systemd-logind"
        )
        guard since + Self.silencePatience <= facts.now.uptime else { return note }
        login = nil
        return note + [.end(cause: "logind does not respond")]
    }

    /// Whether it is the login of the present or pending session. After a restart, a login that began after the session
    /// is another one.
    private func continues(_ login: SeatLogin, _ facts: Facts) -> Bool {
        if let known = self.login {
            return known.user == login.user && !known.sessions.isDisjoint(with: login.sessions)
        }
        guard let account = facts.device.account, SeatLogin.user(of: account) == login.user,
            let began = facts.ledger.sessions[facts.device.epoch]?.startedAt
        else { return false }
        return login.began <= began
    }

    /// Signs in the person at the seat, if the login is the account.
    mutating func noticeArrival(after former: UInt32?, _ facts: Facts) -> [Decision] {
        guard facts.policy.isConfigured, isAccount(facts), let seat else { return [] }
        guard facts.device.account == nil, facts.pending == nil, shutdown == .none,
            let login = seat.login(staying: former),
            !facts.policy.endsAtScreenLock || login.sessions.isDisjoint(with: seat.locked)
        else { return tell(nil) }
        guard spent.isDisjoint(with: login.sessions) else {
            return tell("the user at the seat has been signed out; to sign in again, log out and in")
        }
        do throws(Refusal) {
            try facts.device.checkSignIn(facts.rules)
            try facts.checkManifests()
            if facts.isSignInHeld { throw .cleanupPending(facts.awaited) }
            let next = try facts.signingIn(login.account(tenant: facts.rules.tenantIdentifier))
            self.login = login
            return [.beginSession(next, detail: "login session \(login.sessions.text)")] + tell(nil)
        } catch {
            return tell("the user at the seat is not signed in: \(error)")
        }
    }

    /// Records the problem, and logs it if it is new.
    private mutating func tell(_ problem: String?) -> [Decision] {
        guard problem != signInProblem else { return [] }
        signInProblem = problem
        return problem.map { [.note(.warning, "login session", ["problem": $0])] } ?? []
    }

    // MARK: The end of the login session

    mutating func sessionEnded(_ epoch: UInt64, _ facts: Facts) {
        let names = login?.sessions ?? (facts.policy.identity == .loginSession ? [] : seat?.graphical ?? [])
        if login != nil { spent.formUnion(names) }
        login = nil
        endLogins(names, of: epoch, facts)
    }

    private mutating func endLogins(_ names: some Collection<LoginName>, of epoch: UInt64, _ facts: Facts) {
        guard facts.policy.endsLoginSession, !names.isEmpty else { return }
        // A login session belongs only to the latest sign-out.
        for index in endings.indices { endings[index].sessions.subtract(names) }
        endings.removeAll(where: \.sessions.isEmpty)
        endings.append(Ending(sessions: Set(names), session: epoch, due: facts.now.uptime + Self.endPatience))
    }

    /// Asks logind to end the sessions when their cleanup is complete or the time is over, and again while one exists.
    mutating func endLogins(_ facts: Facts) -> [Decision] {
        // After a restart logind may reuse names. Only a session with the same name and beginning is the right one.
        guard let seat else { return [] }
        var decisions: [Decision] = []
        endings.removeAll { $0.sessions.isDisjoint(with: seat.names) }
        for index in endings.indices {
            var ending = endings[index]
            let isClean = facts.ledger.sessions[ending.session]?.outcome != .open
            guard ending.due <= facts.now.uptime || !ending.isAsked && isClean else { continue }
            if ending.isAsked, ending.problem == nil {
                ending.problem =
                    "login session \(ending.sessions.text) is still there, although logind was asked to end it"
                decisions.append(.note(.error, "login session", ["problem": ending.problem ?? ""]))
            }
            if !ending.isAsked {
                let detail = "login session \(ending.sessions.text)"
                decisions.append(.log(.loginEnded, session: ending.session, detail: detail))
            }
            ending.isAsked = true
            ending.due = facts.now.uptime + ending.pauses.next()
            endings[index] = ending
            let names = seat.names.intersection(ending.sessions).map(\.identifier).sorted()
            decisions.append(.perform(.endLogins(names)))
        }
        return decisions
    }

    /// - Parameter problem: The error; `nil` if logind has accepted the request.
    mutating func loginsEnded(_ identifiers: [String], _ problem: String?) -> [Decision] {
        var decisions: [Decision] = []
        for index in endings.indices {
            let ending = endings[index]
            guard ending.sessions.contains(where: { identifiers.contains($0.identifier) }) else { continue }
            let text = "login session \(ending.sessions.text) cannot be ended: "
            let next = problem.map { text + $0.printable(500) }
            endings[index].problem = next
            guard let next, next != ending.problem else { continue }
            decisions.append(.log(.loginEnded, session: ending.session, detail: next))
            decisions.append(.note(.error, "login session", ["problem": next]))
        }
        return decisions
    }

    // MARK: Shutdown

    /// Lets the machine shut down when the last session's cleanup is complete and committed.
    mutating func allowShutdown(_ facts: Facts) -> [Decision] {
        guard case .waits(let session) = shutdown, facts.device.account == nil, facts.disk.isIdle else { return [] }
        if let session, facts.ledger.sessions[session]?.outcome == .open { return [] }
        shutdown = .allowed
        return [.perform(.allowShutdown)]
    }
}

extension Set<LoginName> {
    fileprivate var text: String { map(\.identifier).sorted().joined(separator: ", ").printable(200) }
}
