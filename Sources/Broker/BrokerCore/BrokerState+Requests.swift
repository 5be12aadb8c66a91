import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
@_spi(Extensions) import SharedDevice

extension BrokerState {
    static let providerUnit = "shared-device-identity.service"
    /// How many app names one connection may use: callers can invent names, and each becomes an app that may owe a
    /// cleanup.
    static let namesOfConnection = 16
    /// How long the response to a sign-out waits for the commit.
    static let signOutPatience = Duration.milliseconds(500)
    /// How many apps of one user a session may list: callers can invent names.
    static let appsOfUser = 200

    // MARK: Dispatch

    mutating func take(_ request: Request) {
        var request = request
        request.askedAt = now.uptime
        respond(to: request) { state throws(Refusal) in
            guard let caller = state.connected[request.connection]?.caller else { throw .requestAbandoned }
            return try state.answer(request, caller)
        }
    }

    /// - Returns: The response; `nil` if the request waits.
    private mutating func answer(_ request: Request, _ caller: Caller) throws(Refusal) -> Response? {
        switch request.call {
        case .deviceInformation: return .device(summary)
        case .join(let credentials), .leave(let credentials):
            guard caller.isAdministrator else { throw .notPermitted }
            // The device's own directory knows nothing about the organisation's people.
            if case .join = request.call, policy.organisation != nil { throw .noJoinByPage }
            let participant = Participant(app: "enrolment", user: caller.user)
            let attempt = Attempt(.membership, request, participant, at: now)
            apply(try signIns.check(credentials, request, attempt, facts))
            return nil
        case .providerEvents(let events):
            guard facts.isService(caller, unit: Self.providerUnit) else { throw .notTheProvider }
            var isKept = false
            for event in events {
                let (decisions, isEventKept) = provider.heed(event, during: signIns.firstBegan(facts), facts)
                apply(decisions)
                isKept = isKept || isEventKept
            }
            guard isKept else { return .done }
            wait(request, for: .stored(.done, nil))
            return nil
        case .forgetAccount(let identifier):
            guard caller.isAdministrator else { throw .notPermitted }
            forgetAccount(identifier)
            wait(request, for: .stored(.done, nil))
            return nil
        case .activity where facts.isAccount(caller.user):
            apply(automaticSignOut.noteActivity(facts))
            return .done
        case .overdue:
            apply(try enforcement.overdue(request, caller, facts))
            return nil
        case .enforced:
            apply(try enforcement.report(request, caller, facts))
            return nil
        default: break
        }
        if let right = request.call.right {
            apply(try administration.permit(right, request, caller, facts))
            return nil
        }
        let participant: Participant
        do throws(Refusal) {
            participant = try identify(request, caller)
        } catch {
            guard error.code == .appNotEligible,
                let app = eligibility.identityOfRefused(caller.credentials, claiming: request.claimed)
            else { throw error }
            let debtor = app.participant(of: caller.user)
            try facts.checkNotEnforced(debtor)
            return try answerDebtor(request, debtor, error)
        }
        try facts.checkNotEnforced(participant)
        try facts.checkPurpose(participant, request.call)
        switch request.call {
        case .currentAccount: return try currentAccount(request, participant)
        case .signIn, .beginSignIn: try startSignIn(request, participant)
        case .completeSignIn, .awaitSignIn: apply(try signIns.continueSignIn(request, participant, facts))
        case .cancelSignIn(let label):
            cancelSignIn(label, of: request.connection)
            return .done
        case .acquireToken(let identifier, let scopes, let refresh, let session, let maximumAge):
            try facts.checkMayUse(participant, in: device)
            let account = try facts.checkAccount(identifier, session)
            guard policy.identity != .loginSession else { throw .noTokens }
            try facts.checkAuthentication(maximumAge)
            try facts.checkOwesNothing(participant, request.connection)
            let wanted = TokenRequest(
                request: request,
                participant: participant,
                account: account,
                epoch: device.epoch,
                scopes: scopes,
                areNamed: !scopes.isEmpty,
                isRefresh: refresh
            )
            let isOfProvider = provider.session != nil
            apply(try isOfProvider ? provider.acquireToken(wanted, facts) : directoryTokens.acquireToken(wanted, facts))
        case .signOut(let identifier, let session):
            try facts.checkMayUse(participant, in: pending?.next ?? device)
            return try signOut(request, identifier, session, cause: participant.app)
        case .report: return report(request, participant)
        case .round: return round(request)
        case .screen:
            noteScreen()
            apply(try screen.ask(request, participant, facts))
        case .activity:
            apply(automaticSignOut.noteActivity(facts))
            return .done
        default: break
        }
        return nil
    }

    // MARK: Waiting

    /// Checks the waiting requests whose condition may have changed or whose time is over.
    mutating func answerWaiting() {
        let hasChanged = isTouched
        isTouched = false
        for number in facts.waiting.due(hasChanged: hasChanged, disk, at: now.uptime) {
            guard let entry = facts.waiting[number] else { continue }
            facts.waiting[number] = nil
            respond(to: entry.request) { state throws(Refusal) in try state.resume(entry) }
        }
    }

    /// - Returns: The response; `nil` if the request continues to wait.
    private mutating func resume(_ entry: WaitingRequest) throws(Refusal) -> Response? {
        let request = entry.request
        let isLate = entry.until.map { $0 <= now.uptime } ?? false
        let isStored = disk.committed >= entry.change
        switch entry.reason {
        case .account(let participant) where isStored:
            try facts.checkIdentity(request, participant)
            return try currentAccount(request, participant)
        case .token(let participant, let grant) where isStored: return try handOver(request, participant, grant)
        case .stored(.signedOut(var end), _) where isStored || isLate || disk.problem != nil && disk.writing == nil:
            // The device is signed out. The response has the round that the caller would ask for next.
            (end.isStored, end.round) = (isStored, round(of: end.session))
            return .signedOut(end)
        case .stored(.done, let participant?) where isStored && device.account == nil:
            // After its receipt an app would ask for the session. It has to request an account separately, for the
            // ledger.
            return session(nil, owing: ledger.owed(by: participant, on: request.connection))
        case .stored(let response, _) where isStored: return response
        case .account, .token, .stored:
            // A sign-out has already happened, and its response says whether it is committed.
            if let problem = disk.problem, !request.call.isSignOut { throw .failed(problem) }
            facts.waiting[request.number] = entry
        case .signIn(let participant):
            if case .completeSignIn = request.call, facts.isSignInHeld, !isLate {
                facts.waiting[request.number] = entry
            } else {
                try startSignIn(request, participant)
            }
        case .overdue: apply(try enforcement.checkAgain(request, facts))
        case .round: return round(request)
        case .status: return status(request)
        case .screen(let participant):
            do throws(Refusal) {
                try facts.checkIdentity(request, participant)
            } catch {
                apply(screen.leave(request.connection, facts))
                throw error
            }
            apply(screen.answer(request, participant, facts.lock, facts))
        case .log where isLate: return .log([])
        case .log(let writes) where writes == disk.logWrites: facts.waiting[request.number] = entry
        case .log: apply(try administration.readLog(request, facts))
        // These have their response from an event, and are never checked.
        case .permission, .operators, .logRead, .directoryToken: break
        }
        return nil
    }

    // MARK: Administration

    mutating func administer(_ request: Request, as account: Account?) throws(Refusal) -> Response? {
        switch request.call {
        case .join: if let account { try join(request, account) }
        case .leave: if let account { try leave(request, account) }
        case .signOutAnyone(let identifier, let session, let reason):
            return try signOut(request, identifier, session, cause: reason)
        case .waive: return waive(request)
        case .runningApps: return .runningApps(runningApps)
        case .status: return status(request)
        case .log: apply(try administration.readLog(request, facts))
        case .round: return round(request)
        default: return .done
        }
        return nil
    }

    mutating func status(_ request: Request) -> Response? {
        guard case .status(let known, let patience) = request.call else { return .done }
        noteProblems()
        let deadline = request.askedAt + patience
        if revision != known || deadline <= now.uptime { return .status(status) }
        wait(request, until: deadline, for: .status)
        return nil
    }

    /// Counts a change of the problems, which appear and disappear without any other change.
    mutating func noteProblems() {
        let next = presentProblems
        guard next != problems else { return }
        problems = next
        touch()
    }

    /// Derives the screen's content from the facts. The content is not stored, so there is nothing to commit.
    mutating func noteScreen() { if screen.show(screenContent) { isTouched = true } }

    /// Forgets the account of a user who was removed from the directory. A sign-in in progress at that time ends here.
    mutating func forgetAccount(_ identifier: String) {
        if pending?.next.account?.hasIdentifier(identifier) == true { dropPendingSignIn(because: .requestAbandoned) }
        if let next = try? device.signingOut(identifier) { enter(next, cause: "the user's removal") }
        if facts.ledger.forget(identifier) { needsDisk(within: .zero) }
    }

    // MARK: The current account

    /// Tells an app which account is signed in and which cleanups it owes.
    mutating func currentAccount(_ request: Request, _ participant: Participant) throws(Refusal) -> Response? {
        if facts.ledger.ask(participant, on: request.connection) { needsDisk(within: Facts.Disk.lazyWrite) }
        let owed = ledger.owed(by: participant, on: request.connection)
        if !owed.isEmpty { tell(participant) }
        let visible = facts.mayUse(participant, in: device) ? device.account : nil
        let account = policy.cleanup.isStrict && !owed.isEmpty ? nil : visible
        if account != nil, let change = try hold(participant, request.connection) {
            wait(request, for: .account(participant), change: change)
            return nil
        }
        return session(account, owing: owed, isWithheld: account == nil && visible != nil)
    }

    /// Records that the app may hold data of the session, unless the session lists too many apps of this user.
    ///
    /// - Returns: The change that has to be committed first; `nil` if it is committed.
    private mutating func hold(_ participant: Participant, _ connection: String) throws(Refusal) -> UInt64? {
        let isListed = ledger.parts[device.epoch]?[participant] != nil
        guard
            isListed
                || ledger.parts[device.epoch, default: [:]].keys.count(where: { $0.user == participant.user })
                    < Self.appsOfUser
        else { throw .tooManyNames }
        if facts.ledger.hold(device.epoch, by: participant, on: connection) {
            if !isListed { noteHolder(participant, of: device.epoch) }
            let change = needsDisk(within: .zero)
            facts.connected[connection]?.held = change
            touch()
        }
        guard let change = connected[connection]?.held, disk.committed < change else { return nil }
        return change
    }

    // MARK: Tokens

    /// Gives the app a token, once the ledger entry that it may hold data of the session is committed.
    mutating func handOver(
        _ request: Request,
        _ participant: Participant,
        _ grant: Grant
    ) throws(Refusal) -> Response? {
        try facts.checkIdentity(request, participant)
        // The person may have lost a group while the provider was asked.
        try facts.checkMayUse(participant, in: device)
        // The policy may have become strict while the provider was asked or the change was committed.
        try facts.checkOwesNothing(participant, request.connection)
        // The provider may have refused the session while the change was committed.
        if provider.session != nil, provider.needsPerson { throw provider.personNeeded }
        guard grant.epoch == device.epoch, device.account != nil else {
            throw facts.sessionIsOver(grant.account.identifier)
        }
        let change = max(try hold(participant, request.connection) ?? 0, provider.change)
        if change > disk.committed {
            wait(request, for: .token(participant, grant), change: change)
            return nil
        }
        var grant = grant
        grant.idToken = provider.idToken(for: participant, facts)
        return .grant(grant)
    }

    // MARK: Signing out

    mutating func signOut(
        _ request: Request,
        _ identifier: String?,
        _ session: UInt64?,
        cause: String
    ) throws(Refusal) -> Response? {
        var ended = device.epoch
        // Also ends a sign-in in progress, so that an administrator who disables the user sees it end.
        if let pending, session == nil || session == pending.next.epoch,
            identifier.map({ pending.next.account?.hasIdentifier($0) == true }) ?? true
        {
            // Otherwise the person at the seat would be signed in again at once.
            if pending.attempt == nil { seat.sessionEnded(pending.next.epoch, facts) }
            dropPendingSignIn(because: .requestAbandoned)
            ended = pending.next.epoch
        } else {
            enter(try device.signingOut(identifier, session: session), cause: cause)
        }
        let isOwn = if case .signOut = request.call { true } else { false }
        let end = SignedOut(epoch: device.epoch, session: ended, endSessionURL: isOwn ? policy.endSessionURL : nil)
        let program = connected[request.connection]?.caller.program ?? ""
        effects.append(.note(.notice, "signed out", ["epoch": "\(device.epoch)", "caller": program]))
        wait(request, until: now.uptime + Self.signOutPatience, for: .stored(.signedOut(end), nil))
        return nil
    }
}
