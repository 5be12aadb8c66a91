import Basics
import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
import SharedDevice

/// The login at the seat: the device's account if the configuration says so, and the login session that a sign-out
/// ends.
extension BrokerState {
    /// The state of the seat, and the broker's reactions to it.
    struct SeatWatch: Sendable {
        /// The last report of logind; `nil` until logind has responded, and while it does not.
        var seat: Seat?
        /// When logind stopped responding; `nil` if it responds.
        var silentSince: Duration?
        /// The login of the present session; `nil` after a start of the broker until the login is identified.
        var login: SeatLogin?
        /// Login sessions whose account was signed out although the login still exists. They do not sign in again,
        /// because another person may sit there.
        var spent: Set<LoginName> = []
        /// The spent sessions that a screen lock has signed out. Unlocking them counts as a login.
        var lockedOut: Set<LoginName> = []
        /// For each sign-out, the login sessions that it has to end and that still exist.
        var endings: [Ending] = []
        /// Why a logged-in person is not signed in, or why sign-in by login is not possible. It names no account.
        var problem: String?
        var shutdown = Shutdown.none
        /// Whether logind has not responded since the broker's start.
        var isFromStart = true
    }

    enum Shutdown: Equatable {
        case none
        /// The machine shuts down when this session's cleanup is complete; `nil` means that there is no session to wait
        /// for.
        case waits(for: UInt64?)
        case allowed
    }

    struct Ending: Sendable {
        var sessions: Set<LoginName>
        /// The session whose cleanup the login sessions are kept for.
        let session: UInt64
        /// The latest time at which logind is asked.
        var due: Duration
        /// The pause before logind is asked again.
        var pause = BrokerState.endPause
        var isAsked = false
        /// Why the login sessions still exist.
        var problem: String?
    }

    /// The longest time that a login session outlasts the sign-out, so that its programs can clean up while they run.
    static let endPatience = Duration.seconds(10)
    /// How long logind may take to end a session before it is asked again.
    static let endPause = Duration.seconds(5)
    /// How long logind may be silent before the person at the seat counts as gone. A restart of logind takes less than
    /// a second.
    static let silencePatience = Duration.seconds(60)

    /// When the seat has to be checked again; `nil` means at the next event.
    var nextLookAtSeat: Duration? {
        let silent = device.account == nil ? nil : watch.silentSince.map { $0 + Self.silencePatience }
        // Without logind no login session can be ended. Its return is an event.
        let ending = watch.seat == nil ? nil : watch.endings.map(\.due).min()
        let times = [ending, policy.identity == .loginSession ? silent : nil]
        return times.compactMap { $0 }.min()
    }

    /// The problem with logins that administrators are told. It names no account.
    var loginProblem: String? { watch.endings.lazy.compactMap(\.problem).first ?? watch.problem }

    // MARK: Reports of logind

    /// - Parameter seat: `nil` means that logind does not respond.
    mutating func look(at seat: Seat?) {
        let before = watch.seat
        watch.seat = seat
        guard let seat else {
            watch.silentSince = watch.silentSince ?? now.uptime
            return
        }
        watch.silentSince = nil
        if let before {
            let unlocked = before.locked.subtracting(seat.locked).intersection(watch.lockedOut)
            watch.spent.subtract(unlocked)
            watch.lockedOut.subtract(unlocked)
        } else if watch.login == nil {
            findSpent(seat)
        }
        watch.isFromStart = false
        watch.spent.formIntersection(seat.names)
        watch.lockedOut.formIntersection(seat.names)
    }

    /// Finds the logins that were already signed out, after a start of the broker or a long silence of logind. These
    /// are the logins that already existed when the last session began.
    ///
    /// While a session is open, only the logins of other users count: they may have been signed out before it.
    private mutating func findSpent(_ seat: Seat) {
        guard let last = ledger.sessions.keys.max(), let began = ledger.sessions[last]?.startedAt else { return }
        let present = device.account.flatMap(SeatLogin.user)
        guard device.account == nil || present != nil else { return }
        // The wall clock may have been set between the login and the sign-in. In that case the monotonic clock is
        // right, provided that the wall clock was not set after the sign-in.
        let awake = now.uptime - now.asleep - .seconds(max(0, now.wall.timeIntervalSince(began)))
        let former = seat.sessions.filter { session in
            session.userID != present && (session.began <= began || session.beganAwake.map { $0 <= awake } ?? false)
        }
        watch.spent.formUnion(former.map(\.name))
        guard device.account == nil, watch.isFromStart, policy.identity == .loginSession,
            let owner = ledger.sessions[last]?.account.flatMap(SeatLogin.user)
        else { return }
        // Ends only the owner's logins. The other users were at the seat earlier, and the last sign-out was not theirs.
        endLogins(former.filter { $0.userID == owner }.map(\.name), of: last)
    }

    mutating func login(_ event: LoginEvent) {
        switch event {
        case .locked(let name) where policy.endsAtScreenLock:
            let sessions = watch.login?.sessions ?? []
            // If the login is the account, a lock of another person's session in the background does not affect it.
            if policy.identity == .loginSession, let login = watch.login,
                watch.seat?.sessions.contains(where: { $0.name == name && $0.userID != login.user }) == true
            {
                break
            }
            // Without this a person whose sign-in is being committed would be signed in behind the lock, because the
            // login still exists.
            if let pending, pending.asked == nil { watch.spent.formUnion(sessions) }
            signOutAutomatically(because: event.cause)
            watch.lockedOut.formUnion(sessions.intersection(watch.spent))
        // If the login is the account, the whole seat decides: the person may have another session.
        case .ended where policy.endsAtLogout && policy.identity != .loginSession:
            signOutAutomatically(because: event.cause)
        case .shutdown where policy.identity == .loginSession:
            watch.shutdown = .waits(for: device.account == nil ? nil : device.epoch)
            signOutAutomatically(because: event.cause)
        case .shutdown: watch.shutdown = .waits(for: nil)
        case .shutdownCancelled: watch.shutdown = .none
        case .locked, .ended: break
        }
    }

    // MARK: Reactions

    /// Adapts to a new configuration. An account of the other kind (login or directory) is signed out, because it is
    /// from before the change.
    mutating func checkKindOfAccount() {
        guard policy.isConfigured else { return }
        if !policy.followsSeat {
            // The report on the seat is still valid, and is only repeated after a change.
            watch = SeatWatch(seat: watch.seat, silentSince: watch.silentSince, isFromStart: false)
        }
        checkProviderSession()
        let isLogin = policy.identity == .loginSession
        if let pending, pending.asked == nil, !isLogin { dropPendingSignIn(because: .requestAbandoned) }
        if let account = device.account, (SeatLogin.user(of: account) != nil) != isLogin {
            watch.login = nil
            signOutAutomatically(because: "the managed configuration")
        }
    }

    /// If the login is the account, signs in the person at the seat and signs out any other account. Also ends login
    /// sessions and allows a shutdown when these are due.
    mutating func followSeat() {
        endLoginsIfDue()
        allowShutdown()
        guard policy.isConfigured else { return }
        guard policy.identity == .loginSession, device.mode == .shared else {
            let isWanted = device.mode == .shared && (policy.endsAtScreenLock || policy.endsAtLogout)
            return tellLoginProblem(isWanted && watch.silentSince != nil ? Self.nobodyTellsOfLogins : nil)
        }
        guard let seat = watch.seat else { return logindIsSilent() }
        let former = watch.login?.user ?? device.account.flatMap(SeatLogin.user)
        let login = seat.login(staying: former)
        if let pending, pending.asked == nil, login.map(continues) != true {
            dropPendingSignIn(because: .requestAbandoned)
        }
        if device.account != nil {
            if let login, continues(login) {
                watch.login = login
            } else {
                watch.login = nil
                let isThere = seat.sessions.contains { $0.userID == former }
                let isAnother = login != nil && login?.user != former
                signOutAutomatically(because: isThere && isAnother ? "switch of users" : LoginEvent.ended.cause)
            }
        }
        signIn(login, at: seat)
    }

    private static let nobodyTellsOfLogins =
        "logind does not respond, so a screen lock or a logout ends no session; see: systemctl status systemd-logind"

    private mutating func logindIsSilent() {
        guard let since = watch.silentSince else { return }
        tellLoginProblem(
            "logind does not respond, so the broker cannot tell who is logged in; see: systemctl status systemd-logind"
        )
        guard since + Self.silencePatience <= now.uptime else { return }
        watch.login = nil
        signOutAutomatically(because: "logind does not respond")
    }

    /// Whether it is the login of the present session, or of the session that is being committed. A broker that was
    /// restarted since then compares times: a login that began after the session is another login.
    private func continues(_ login: SeatLogin) -> Bool {
        if let known = watch.login {
            return known.user == login.user && !known.sessions.isDisjoint(with: login.sessions)
        }
        guard let account = device.account, SeatLogin.user(of: account) == login.user,
            let began = ledger.sessions[device.epoch]?.startedAt
        else { return false }
        return login.began <= began
    }

    private mutating func signIn(_ login: SeatLogin?, at seat: Seat) {
        guard device.account == nil, pending == nil else { return tellLoginProblem(nil) }
        guard let login, watch.shutdown == .none,
            !policy.endsAtScreenLock || login.sessions.isDisjoint(with: seat.locked)
        else { return tellLoginProblem(nil) }
        guard watch.spent.isDisjoint(with: login.sessions) else {
            return tellLoginProblem(
                "the user at the seat has been signed out; to sign in again, log out and in"
            )
        }
        do throws(Refusal) {
            try device.checkSignIn(facts.rules)
            try facts.checkManifests()
            if facts.isSignInHeld { throw .cleanupPending(facts.awaited) }
            let account = login.account(tenant: facts.rules.tenantIdentifier)
            try write(account, of: nil, nil, detail: "login session \(login.sessions.text)")
            watch.login = login
            tellLoginProblem(nil)
        } catch {
            tellLoginProblem("the user at the seat is not signed in: \(error)")
        }
    }

    /// Records the problem, and logs it if it is new.
    private mutating func tellLoginProblem(_ problem: String?) {
        guard problem != watch.problem else { return }
        watch.problem = problem
        if let problem { effects.append(.note(.warning, "login session", ["problem": problem])) }
    }

    // MARK: The end of the login session

    /// Handles the end of a session whose login still exists.
    mutating func loginIsSpent(_ epoch: UInt64) {
        let names = watch.login?.sessions ?? (policy.identity == .loginSession ? [] : watch.seat?.graphical ?? [])
        if watch.login != nil { watch.spent.formUnion(names) }
        watch.login = nil
        endLogins(names, of: epoch)
    }

    private mutating func endLogins(_ names: some Collection<LoginName>, of epoch: UInt64) {
        guard policy.endsLoginSession, !names.isEmpty else { return }
        // A login session belongs only to the latest sign-out.
        for index in watch.endings.indices { watch.endings[index].sessions.subtract(names) }
        watch.endings.removeAll(where: \.sessions.isEmpty)
        watch.endings.append(Ending(sessions: Set(names), session: epoch, due: now.uptime + Self.endPatience))
    }

    /// Asks logind to end the sessions when their cleanup is complete or the time is over, and asks again while one of
    /// them exists.
    private mutating func endLoginsIfDue() {
        // After a restart logind may reuse names. Only a session with the same name and beginning is the right one.
        guard let seat = watch.seat else { return }
        watch.endings.removeAll { $0.sessions.isDisjoint(with: seat.names) }
        for index in watch.endings.indices {
            var ending = watch.endings[index]
            let isClean = ledger.sessions[ending.session]?.outcome != .open
            guard ending.due <= now.uptime || !ending.isAsked && isClean else { continue }
            if ending.isAsked, ending.problem == nil {
                ending.problem =
                    "login session \(ending.sessions.text) is still there, although logind was asked to end it"
                effects.append(.note(.error, "login session", ["problem": ending.problem ?? ""]))
            }
            if !ending.isAsked {
                enterLog(.loginEnded, session: ending.session, detail: "login session \(ending.sessions.text)")
            }
            ending.isAsked = true
            ending.due = now.uptime + ending.pause
            ending.pause = min(ending.pause * 2, Facts.longestPause)
            watch.endings[index] = ending
            effects.append(.endLogins(seat.names.intersection(ending.sessions).map(\.identifier).sorted()))
        }
    }

    /// - Parameters:
    ///   - identifiers: The sessions that logind was asked to end.
    ///   - problem: The error; `nil` if logind has accepted the request.
    mutating func loginsEnded(_ identifiers: [String], _ problem: String?) {
        for index in watch.endings.indices {
            let ending = watch.endings[index]
            guard ending.sessions.contains(where: { identifiers.contains($0.identifier) }) else { continue }
            let text = "login session \(ending.sessions.text) cannot be ended: "
            let next = problem.map { text + $0.printable(500) }
            watch.endings[index].problem = next
            guard let next, next != ending.problem else { continue }
            enterLog(.loginEnded, session: ending.session, detail: next)
            effects.append(.note(.error, "login session", ["problem": next]))
        }
    }

    // MARK: Shutdown

    /// Lets the machine shut down when the last session's cleanup is complete and committed. logind may stop waiting
    /// earlier.
    private mutating func allowShutdown() {
        guard case .waits(let session) = watch.shutdown, device.account == nil, isOnDisk else { return }
        if let session, ledger.sessions[session]?.outcome == .open { return }
        watch.shutdown = .allowed
        effects.append(.allowShutdown)
    }
}

extension Set<LoginName> {
    fileprivate var text: String { map(\.identifier).sorted().joined(separator: ", ").printable(200) }
}
