import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
import SharedDevice

/// Who is logged in at the seat: the device's account, where the configuration says so, and the login that a sign-out ends.
extension BrokerState {
    /// What the broker knows of the seat, and what it has made of it.
    struct SeatWatch: Sendable {
        /// `nil` until logind has answered, and while it does not.
        var seat: Seat?
        /// Since when logind does not answer; `nil` if it does.
        var silentSince: Duration?
        /// The login that the present session is of; `nil` after a start of the broker, until it is known again.
        var login: SeatLogin?
        /// Sessions whose sign-out somebody wanted: they sign nobody in again, because who sits there may be another person.
        var spent: Set<LoginName> = []
        /// Those of them that a locked screen has signed out. Their unlocking is a login, too.
        var lockedOut: Set<LoginName> = []
        /// For each sign-out, the login sessions that it has to end and that are still there.
        var endings: [Ending] = []
        /// Why somebody who is logged in is not signed in, or why nobody can be. It names no account.
        var problem: String?
        var shutdown = Shutdown.none
        /// Whether logind has not answered since the broker's start.
        var isFromStart = true
    }

    enum Shutdown: Equatable {
        case none
        /// The machine goes down as soon as this session's cleanup is done; `nil`: there is none.
        case waits(for: UInt64?)
        case allowed
    }

    /// Login sessions that logind is asked to end.
    struct Ending: Sendable {
        var sessions: Set<LoginName>
        /// The session whose receipts they are kept for.
        let session: UInt64
        /// When logind is asked at the latest.
        var due: Duration
        /// Until logind is asked again.
        var pause = BrokerState.endPause
        var isAsked = false
        /// Why they are still there.
        var problem: String?
    }

    /// How long a login session outlasts the sign-out at most, so that its programs clean up while they run.
    static let endPatience = Duration.seconds(10)
    /// How long logind may take to end a session before it is asked again.
    static let endPause = Duration.seconds(5)
    /// How long logind may be away before the person at the seat counts as gone. A restart of it takes less than a second.
    static let silencePatience = Duration.seconds(60)

    /// When the seat needs a look again; `nil` means when something happens.
    var nextLookAtSeat: Duration? {
        let silent = device.account == nil ? nil : watch.silentSince.map { $0 + Self.silencePatience }
        // Without logind nobody can be logged out, and its return is an event.
        let ending = watch.seat == nil ? nil : watch.endings.map(\.due).min()
        let times = [ending, policy.identity == .loginSession ? silent : nil]
        return times.compactMap { $0 }.min()
    }

    /// What administrators are told of logins; it names no account.
    var loginProblem: String? { watch.endings.lazy.compactMap(\.problem).first ?? watch.problem }

    // MARK: What logind says

    /// - Parameter seat: `nil` means that logind does not answer.
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

    /// After a start of the broker, or without logind for long: a login that was there when the last session began has been signed out since. Other
    /// people's logins beside the one whose session goes on may have been signed out, too.
    private mutating func findSpent(_ seat: Seat) {
        guard let last = ledger.sessions.keys.max(), let began = ledger.sessions[last]?.startedAt else { return }
        let present = device.account.flatMap(SeatLogin.user)
        guard device.account == nil || present != nil else { return }
        // Somebody may have set the wall clock between the login and the sign-in. Then the clock that never jumps is right, as long as nobody has set the
        // wall clock since the sign-in.
        let awake = now.uptime - now.asleep - .seconds(max(0, now.wall.timeIntervalSince(began)))
        let former = seat.sessions.filter { session in
            session.userID != present && (session.began <= began || session.beganAwake.map { $0 <= awake } ?? false)
        }
        watch.spent.formUnion(former.map(\.name))
        guard device.account == nil, watch.isFromStart, policy.identity == .loginSession,
            let owner = ledger.sessions[last]?.account.flatMap(SeatLogin.user)
        else { return }
        // Others were at the seat before her, and have not been signed out.
        endLogins(former.filter { $0.userID == owner }.map(\.name), of: last)
    }

    mutating func login(_ event: LoginEvent) {
        switch event {
        case .locked(let name) where policy.endsAtScreenLock:
            let sessions = watch.login?.sessions ?? []
            // Where the login is the account, the lock of another person's session in the background does not concern it.
            if policy.identity == .loginSession, let login = watch.login,
                watch.seat?.sessions.contains(where: { $0.name == name && $0.userID != login.user }) == true
            {
                break
            }
            // Otherwise a person whose sign-in is being written would be signed in behind the lock: the login is there still, and signs in again.
            if let pending, pending.asked == nil { watch.spent.formUnion(sessions) }
            signOutAutomatically(because: event.cause)
            watch.lockedOut.formUnion(sessions.intersection(watch.spent))
        // Where the login is the account, the whole seat decides: another session of the person may be left.
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

    // MARK: What follows

    /// A configuration is in force: an account of the other kind is from before its change.
    mutating func checkKindOfAccount() {
        guard policy.isConfigured else { return }
        if !policy.followsSeat {
            // Who is at the seat is still so, and is told again only when it changes.
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

    /// Makes the person at the seat the account, and nobody else.
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
        "logind does not answer, so that neither a screen lock nor a logout signs anybody out; see: systemctl status systemd-logind"

    private mutating func logindIsSilent() {
        guard let since = watch.silentSince else { return }
        tellLoginProblem(
            "logind does not answer, so that nobody knows who is logged in; see: systemctl status systemd-logind"
        )
        guard since + Self.silencePatience <= now.uptime else { return }
        watch.login = nil
        signOutAutomatically(because: "logind does not answer")
    }

    /// Whether it is the login of the present session, or of the one that is being written. A broker that was started since goes by time: a
    /// login that began after the session is another one.
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
                "who is logged in at the seat has been signed out; to sign in again, log out and in"
            )
        }
        do throws(Refusal) {
            try device.checkSignIn(rules)
            try checkManifests()
            if isSignInHeld { throw .cleanupPending(awaited) }
            let account = login.account(tenant: rules.tenantIdentifier)
            try write(account, of: nil, nil, detail: "login session \(login.sessions.text)")
            watch.login = login
            tellLoginProblem(nil)
        } catch {
            tellLoginProblem("somebody is logged in at the seat, and is not signed in: \(error)")
        }
    }

    /// Each problem is logged once.
    private mutating func tellLoginProblem(_ problem: String?) {
        guard problem != watch.problem else { return }
        watch.problem = problem
        if let problem { effects.append(.note(.warning, "login session", ["problem": problem])) }
    }

    // MARK: The end of the login session

    /// A session has ended that its login did not end itself.
    mutating func loginIsSpent(_ epoch: UInt64) {
        let names = watch.login?.sessions ?? (policy.identity == .loginSession ? [] : watch.seat?.graphical ?? [])
        if watch.login != nil { watch.spent.formUnion(names) }
        watch.login = nil
        endLogins(names, of: epoch)
    }

    private mutating func endLogins(_ names: some Collection<LoginName>, of epoch: UInt64) {
        guard policy.endsLoginSession, !names.isEmpty else { return }
        // A login session belongs to the latest sign-out alone.
        for index in watch.endings.indices { watch.endings[index].sessions.subtract(names) }
        watch.endings.removeAll(where: \.sessions.isEmpty)
        watch.endings.append(Ending(sessions: Set(names), session: epoch, due: now.uptime + Self.endPatience))
    }

    /// Has logind end the sessions when all receipts are there, or the patience is over; and again while one of them is still there.
    private mutating func endLoginsIfDue() {
        // A logind that was away may count anew: only a session that is there, with the same beginning, is the one that is meant.
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
            ending.pause = min(ending.pause * 2, Self.longestPause)
            watch.endings[index] = ending
            effects.append(.endLogins(seat.names.intersection(ending.sessions).map(\.identifier).sorted()))
        }
    }

    /// - Parameters:
    ///   - identifiers: what logind was asked to end.
    ///   - problem: `nil` if logind has taken the request.
    mutating func loginsEnded(_ identifiers: [String], _ problem: String?) {
        for index in watch.endings.indices {
            let ending = watch.endings[index]
            guard ending.sessions.contains(where: { identifiers.contains($0.identifier) }) else { continue }
            let text = "login session \(ending.sessions.text) cannot be ended: "
            let next = problem.map { text + $0.forLog(500) }
            watch.endings[index].problem = next
            guard let next, next != ending.problem else { continue }
            enterLog(.loginEnded, session: ending.session, detail: next)
            effects.append(.note(.error, "login session", ["problem": next]))
        }
    }

    // MARK: Shutdown

    /// Lets the machine be shut down when the last session's cleanup is done and on the disk. logind waits no longer than it likes.
    private mutating func allowShutdown() {
        guard case .waits(let session) = watch.shutdown, device.account == nil, isOnDisk else { return }
        if let session, ledger.sessions[session]?.outcome == .open { return }
        watch.shutdown = .allowed
        effects.append(.allowShutdown)
    }
}

extension Set<LoginName> {
    /// For people.
    fileprivate var text: String { map(\.identifier).sorted().joined(separator: ", ").forLog(200) }
}
