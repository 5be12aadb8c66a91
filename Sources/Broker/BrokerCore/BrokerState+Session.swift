import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
@_spi(Extensions) import SharedDevice

/// How a session begins, is committed or dropped, and ends.
extension BrokerState {
    /// Makes `next` the device's state at once. The log names the user, app or rule that is the cause.
    mutating func enter(_ next: DeviceState, cause: String) {
        let before = device
        if let account = before.account, next.account == nil {
            facts.ledger.end(before.epoch, at: now)
            let detail = facts.lock?.isShown == true ? "\(cause), while the session was locked" : cause
            enterLog(.signedOut, session: before.epoch, account: account, detail: detail)
            noteCompletion(before.epoch, detail: "no app held any data")
            if next.mode == .shared { seat.sessionEnded(before.epoch, facts) }
        }
        if next.mode != before.mode { enterLog(.modeChanged, detail: "\(next.mode.rawValue), by \(cause)") }
        enterLog(.announced, session: next.account.map { _ in next.epoch }, detail: "epoch \(next.epoch)")
        facts.device = next
        unsaved.insert(.device)
        (facts.authenticatedAt, facts.lock) = (nil, nil)
        directoryTokens.drop()
        if next.account == nil { apply(provider.close(facts)) }
        prune()
        needsDisk(within: .zero)
        if next.account == nil {
            effects.append(.noteState(next))
            // Also tries a disk that has just failed, because the noted state has to reach the disk.
            facts.disk.due = now.uptime
        }
        announce(modeChanged: next.mode != before.mode)
        touch()
    }

    /// Tells all apps to ask for the state: they may also have missed a signal, at a start or a loss of the bus.
    mutating func announce(modeChanged: Bool) {
        effects.append(.announce(modeChanged: modeChanged))
        wakeups.remind(facts)
        apply(automaticSignOut.look(facts, isAnnounced: true))
        apply(wakeups.startDebtors(facts))
    }

    mutating func signOutAutomatically(because reason: String) {
        dropPendingSignIn(because: .requestAbandoned)
        guard let next = try? device.signingOut(nil) else { return }
        enter(next, cause: reason)
        effects.append(.note(.notice, "signed out automatically", ["reason": reason, "epoch": "\(device.epoch)"]))
    }

    // MARK: Locking

    /// Locks the session, or adapts its lock. Apps are told when the screen shows it.
    mutating func use(_ lock: SessionLock) {
        let before = facts.lock
        facts.lock = lock
        if lock.isShown, before?.isShown != true {
            enterLog(.locked, session: device.epoch, detail: lock.cause)
            effects.append(.note(.notice, "locked", ["reason": lock.cause, "epoch": "\(device.epoch)"]))
            announce(modeChanged: false)
            touch()
        } else if before == nil {
            apply(automaticSignOut.look(facts))
            touch()
        }
    }

    // MARK: Sign-ins

    mutating func startSignIn(_ request: Request, _ participant: Participant) throws(Refusal) {
        // It waited for the cleanup of the locked session that it has ended.
        if case .completeSignIn = request.call { return apply(try signIns.continueSignIn(request, participant, facts)) }
        if case .signIn = request.call { return apply(try signIns.signIn(request, participant, facts)) }
        guard case .beginSignIn(let wish) = request.call else { return }
        // For an app that may not have the account, an account is signed in, and it cannot continue the session.
        let app = wish.app.map { Participant(app: $0, user: participant.user) } ?? participant
        let isAgain =
            (wish.asksAgain || provider.needsPerson) && device.account != nil
            && facts.mayUse(participant, in: device) && facts.mayUse(app, in: device)
        apply(try signIns.beginSignIn(request, participant, isAgain: isAgain, providerRecord?.person, facts))
    }

    /// Begins the session of an identified person, or continues it if its person was asked again. Checks everything
    /// again, because another person may have signed in or out since.
    mutating func begin(_ attempt: Attempt) throws(Refusal) {
        guard case .session(let request, let account, _, let provided) = attempt.stage else { return }
        // The person may have been identified by a directory or a provider that is no longer configured.
        guard (provided != nil) == (policy.organisation != nil) else { throw .requestAbandoned }
        if let provided { try provider.checkLasts(provided.record, since: attempt.beganAt, facts) }
        if let session = attempt.prompt?.session { return try goOn(session, attempt, request, account) }
        if facts.hasCallerGivenUp(request) { throw .requestAbandoned }
        if let session = attempt.lockedSession { return try goOn(session, attempt, request, account) }
        try facts.checkSignIn()
        try checkCleanups(attempt)
        noteUnknownGroups(attempt.groups)
        let next = try facts.signingIn(account, attempt.groups)
        guard facts.mayUse(attempt, in: next) else { throw .appNotForUser }
        write(next, of: attempt, detail: attempt.participant.app)
    }

    /// Tells the administrator why no rule about groups lets the person in.
    private mutating func noteUnknownGroups(_ groups: PersonGroups) {
        guard let flaw = groups.flaw else { return }
        effects.append(.note(.warning, "the provider does not give the user's groups", ["reason": flaw.rawValue]))
    }

    /// Continues the session whose person has authenticated again, and unlocks it.
    private mutating func goOn(
        _ session: UInt64,
        _ attempt: Attempt,
        _ request: Request,
        _ person: Account
    ) throws(Refusal) {
        guard session == device.epoch, let account = device.account else { throw .noSuchPrompt }
        // The policy may have become strict while the person was asked.
        try facts.checkOwesNothing(attempt.participant, attempt.connection)
        let provided = attempt.provided
        let isSame = provided.flatMap { provided in providerRecord.map { $0.person == provided.record.person } } ?? true
        guard isSame, account.hasIdentifier(person.identifier) else { throw .otherPerson }
        let (before, next) = (device, device.authenticated(attempt.groups.names))
        noteUnknownGroups(attempt.groups)
        do throws(Refusal) {
            try facts.rules.check(person, attempt.groups)
            guard facts.barred(in: next) == nil else { throw .appNotForUser }
        } catch {
            signOutAutomatically(because: "the user is not allowed any more (allowedUsers)")
            throw error
        }
        if let provided { apply(provider.replace(with: provided, since: attempt.beganAt, facts)) }
        let lock = facts.lock
        (facts.authenticatedAt, facts.lock) = (now.uptime, nil)
        if lock != nil { lastSignIn = request.call.signInLabel.map { ($0, request.connection, session) } }
        if lock?.isShown == true { enterLog(.unlocked, session: session, participant: attempt.participant) }
        apply(automaticSignOut.noteActivity(facts))
        // The clock may have been set, so that the session is over.
        guard device.epoch == session else { return refuse(request, facts.sessionIsOver(account.identifier)) }
        effects.append(.note(.notice, "the person has authenticated again", ["epoch": "\(session)"]))
        if next != device {
            facts.device = next
            unsaved.insert(.device)
            needsDisk(within: .zero)
            holdForAdapters(next)
        }
        // Apps may have the account now that could not have it before.
        if next != before || lock != nil { announce(modeChanged: false) }
        if let token = attempt.token, case .app(let scopes) = attempt.kind {
            directoryTokens.keep(token, for: attempt.participant, scopes, facts)
            let grant = Grant(account: account, epoch: session, token: token)
            respond(to: request) { state throws(Refusal) in try state.handOver(request, attempt.participant, grant) }
        } else if facts.mayUse(attempt, in: device) {
            wait(request, for: .stored(.signedIn(username: account.username, epoch: session), nil))
        } else {
            refuse(request, .appNotForUser)
        }
        if attempt.provided != nil { heedHeard(since: attempt.beganAt) }
        touch()
    }

    private mutating func heedHeard(since began: Duration) {
        for event in provider.heardEvents(since: began, facts) { apply(provider.heedHeard(event, facts)) }
    }

    /// Starts to commit the session of the account that signs in, by an attempt or by a login at the seat.
    mutating func write(_ next: DeviceState, of attempt: Attempt?, detail: String) {
        guard let account = next.account else { return }
        facts.ledger.begin(next.epoch, account: account, at: now)
        // In the same transaction as the session, so that each session that a restart finds is in the log.
        enterLog(.signedIn, session: next.epoch, account: account, detail: detail)
        // The response gives the app the account, so the ledger lists the app from the start. A prompt holds nothing.
        let holder = attempt?.token == nil ? nil : attempt
        if let holder {
            _ = facts.ledger.hold(next.epoch, by: holder.participant, on: holder.connection)
            noteHolder(holder.participant, of: next.epoch)
        }
        holdForAdapters(next)
        unsaved.insert(.device)
        if attempt?.provided != nil { unsaved.insert(.provider) }
        let change = needsDisk(within: .zero)
        if let holder { facts.connected[holder.connection]?.held = change }
        facts.pending = Facts.PendingSession(attempt: attempt, next: next, change: change)
    }

    private func checkCleanups(_ attempt: Attempt) throws(Refusal) {
        if let request = attempt.request { try facts.checkIdentity(request, attempt.participant) }
        if facts.isSignInHeld { throw .cleanupPending(facts.awaited) }
        try facts.checkOwesNothing(attempt.participant, attempt.connection)
    }

    /// Checks the session that is being committed against changed rules.
    mutating func checkPendingSignIn() {
        guard let pending else { return }
        do throws(Refusal) {
            guard policy.isConfigured else { throw .neverConfigured }
            if let attempt = pending.attempt { try checkCleanups(attempt) }
            let isForPerson = pending.attempt.map { facts.mayUse($0, in: pending.next) } ?? true
            guard isForPerson, facts.barred(in: pending.next) == nil else { throw .appNotForUser }
        } catch {
            dropPendingSignIn(because: error)
        }
    }

    /// Ends the session if an app that was given the account may not have it any more: it has to clean up.
    mutating func checkRights() {
        guard let participant = facts.barred(in: device) else { return }
        signOutAutomatically(because: "\(participant.app) is not for the user any more (allowedUsers)")
    }

    /// Signs the person in once the session is committed.
    mutating func finishSignIn() {
        guard let pending, disk.committed >= pending.change, let account = pending.next.account else { return }
        let attempt = pending.attempt
        // The disk may have stalled, and the person was told that the sign-in failed.
        if let request = attempt?.request, facts.hasCallerGivenUp(request) {
            return dropPendingSignIn(because: .requestAbandoned)
        }
        facts.pending = nil
        enter(pending.next, cause: attempt?.participant.app ?? "login")
        guard let attempt, let request = attempt.request else {
            // The clock may have been set, so that the new session ended at once.
            guard device == pending.next else { return }
            effects.append(.note(.notice, "signed in by login", ["epoch": "\(device.epoch)"]))
            return apply(automaticSignOut.noteActivity(facts))
        }
        guard device == pending.next else { return takeBack(attempt, because: facts.sessionIsOver(account.identifier)) }
        if let provided = attempt.provided {
            provider.open(provided, since: attempt.beganAt, facts)
            provider.change = pending.change
        }
        lastSignIn = request.call.signInLabel.map { ($0, request.connection, device.epoch) }
        facts.authenticatedAt = now.uptime
        apply(automaticSignOut.noteActivity(facts))
        let program = connected[request.connection]?.caller.program ?? ""
        effects.append(.note(.notice, "signed in", ["epoch": "\(device.epoch)", "caller": program]))
        if case .app(let scopes) = attempt.kind, let token = attempt.token {
            directoryTokens.keep(token, for: attempt.participant, scopes, facts)
            reply(request.number, .grant(Grant(account: account, epoch: device.epoch, token: token)))
        } else {
            reply(request.number, .signedIn(username: account.username, epoch: device.epoch))
        }
        if attempt.provided != nil { heedHeard(since: attempt.beganAt) }
    }

    /// Ends the sign-in whose session is being committed. The session may be on the disk already, so its number is used
    /// up, and its end is written like that of any other.
    mutating func dropPendingSignIn(because refusal: Refusal) {
        guard let pending else { return }
        facts.pending = nil
        facts.ledger.remove(pending.next.epoch)
        enterLog(
            .signedOut,
            session: pending.next.epoch,
            account: pending.next.account,
            detail: "the sign-in failed: \(refusal.code)"
        )
        facts.device = pending.next.next(mode: device.mode, account: nil)
        unsaved.insert(.device)
        unsaved.insert(.erasure)
        needsDisk(within: .zero)
        effects.append(.noteState(device))
        touch()
        if let attempt = pending.attempt { takeBack(attempt, because: refusal) }
    }

    /// Refuses the sign-in, has the person sign in again, and closes the session that a provider has opened.
    mutating func takeBack(_ attempt: Attempt, because refusal: Refusal) {
        if let provided = attempt.provided {
            // The disk may already have the provider's row.
            unsaved.insert(.provider)
            apply(provider.tellLater(provided.record, facts))
        }
        signIns.reopen(attempt)
        if let request = attempt.request { refuse(request, refusal) }
    }

    // MARK: Cancelling

    /// Cancels the sign-in that this connection began under this label or name, or signs its account out again.
    mutating func cancelSignIn(_ label: String, of connection: String) {
        func isMeant(_ request: Request) -> Bool {
            request.connection == connection && request.call.signInLabel == label
        }
        if let request = pending?.attempt?.request, isMeant(request) { dropPendingSignIn(because: .requestAbandoned) }
        apply(signIns.cancel(label, of: connection))
        let held = facts.waiting.remove { if case .signIn = $0.reason { isMeant($0.request) } else { false } }
        for entry in held { refuse(entry.request, .requestAbandoned) }
        guard let lastSignIn, lastSignIn.label == label, lastSignIn.connection == connection,
            lastSignIn.epoch == device.epoch, let next = try? device.signingOut(nil)
        else { return }
        enter(next, cause: "the sign-in was cancelled")
    }

    // MARK: The organisation

    /// Changes the device's membership. An account that the new rules do not admit is signed out.
    mutating func changeMembership(to next: Membership?, by account: Account) {
        enterLog(next == nil ? .left : .joined, account: account, detail: next.map { "tenant \($0.tenantIdentifier)" })
        facts.membership = next
        unsaved.insert(.membership)
        dropPendingSignIn(because: next == nil ? .deviceNotJoined : .tenantMismatch)
        if next == nil, device.account != nil {
            enter(device.next(mode: device.mode, account: nil), cause: "the device's leaving")
        } else if let state = device.under(device.mode, facts.rules) {
            enter(state, cause: "the device's joining")
        }
        change()
    }

    mutating func join(_ request: Request, _ account: Account) throws(Refusal) {
        // The configuration may have changed during the password check.
        guard policy.organisation == nil else { throw .noJoinByPage }
        let tenant = account.tenantIdentifier.lowercased()
        if let membership {
            guard membership.tenantIdentifier == tenant else { throw .joinedElsewhere }
        } else {
            if let meant = policy.tenantIdentifier, meant.lowercased() != tenant { throw .tenantMismatch }
            let next = Membership(organization: policy.organization, tenantIdentifier: tenant, joinedAt: now.wall)
            changeMembership(to: next, by: account)
        }
        wait(request, for: .stored(.joined(tenant: tenant), nil))
    }

    mutating func leave(_ request: Request, _ account: Account) throws(Refusal) {
        guard let membership else { throw .notJoined }
        guard membership.tenantIdentifier == account.tenantIdentifier.lowercased() else { throw .tenantMismatch }
        changeMembership(to: nil, by: account)
        wait(request, for: .stored(.done, nil))
    }
}
