import DBus
import DeviceConfiguration
import FoundationEssentials
import Identity
import Logging
@_spi(Extensions) import SharedDevice

/// Signing in, joining and leaving: the requests that need the identity provider.
extension BrokerState {
    /// Continues a sign-in: once the cleanup rounds allow it, the provider is asked.
    mutating func signIn(_ request: Request, _ participant: Participant) throws(Refusal) -> BrokerProtocol.Fields? {
        guard case .signIn(let credentials, let scopes, let patience, _) = request.call else { return nil }
        // A device where people sign in by login is excluded: a prompt does not help there, and the checks below throw
        // the reason.
        guard policy.passwordSignIn || policy.identity == .loginSession else {
            // If no sign-in is possible at all, the refusal says so instead of naming the prompt.
            try facts.checkIdentity(request, participant)
            try checkSignIn()
            throw policy.organisation.map { .promptNeeded($0.issuer.text) } ?? .promptNeeded
        }
        // All checks precede the password check: a refusal must not reveal whether the password was right.
        guard try admitSignIn(request, participant, until: request.askedAt + patience) else { return nil }
        try facts.checkScopes(scopes, of: participant)
        try authenticate(credentials, request, participant, .signIn(scopes: scopes))
        return nil
    }

    /// Checks all conditions of a sign-in before the person is asked or identified.
    ///
    /// - Returns: `false` if the request waits for earlier cleanup rounds.
    mutating func admitSignIn(
        _ request: Request,
        _ participant: Participant,
        until deadline: Duration
    ) throws(Refusal) -> Bool {
        try facts.checkIdentity(request, participant)
        try checkSignIn()
        if facts.isSignInHeld {
            guard deadline > now.uptime else { throw .cleanupPending(facts.awaited) }
            wait(request, until: deadline, for: .signIn(participant))
            return false
        }
        try facts.checkOwesNothing(participant, request.connection)
        return true
    }

    private func checkSignIn() throws(Refusal) {
        guard policy.isConfigured else { throw .neverConfigured }
        guard policy.identity != .loginSession else { throw .signedInByLogin }
        if let problem = provider.complianceProblem(facts) { throw problem }
        try device.checkSignIn(facts.rules)
        try facts.checkManifests()
        guard pending == nil else { throw .signInUnderWay }
    }

    mutating func authenticate(
        _ credentials: Request.Credentials,
        _ request: Request,
        _ participant: Participant,
        _ purpose: Asked.Purpose
    ) throws(Refusal) {
        let own = asked.values.count { $0.participant.user == participant.user && !$0.isAbandoned }
        guard own < Self.checksOfUser else { throw .tooManyQuestions }
        var next = Asked(request: request, participant: participant, purpose: purpose)
        next.throttleName = Self.throttleName(credentials.username)
        if let wait = throttle.admit(next.throttleName, of: participant.user, at: now.uptime) {
            throw Refusal(.slowDown(wait))
        }
        asked[request.number] = next
        effects.append(.authenticate(request.number, credentials))
    }

    /// The throttle's key. All names that are too long for any user share one key, so that they do not fill the memory.
    private static func throttleName(_ username: String) -> String {
        username.utf8.count > 4 * longestUsername ? "" : usernameKey(username)
    }

    // MARK: The provider's results

    mutating func authenticated(_ number: UInt64, _ result: Result<AuthenticatedIdentity, IdentityError>) {
        guard var attempt = asked[number] else { return }
        do throws(Refusal) {
            let identity = try self.identity(by: result, of: attempt)
            switch attempt.purpose {
            case _ where attempt.isAbandoned: asked[number] = nil
            case .signIn(let scopes):
                attempt.account = identity.account
                asked[number] = attempt
                effects.append(.issueToken(number, identity.account, scopes: scopes))
            case .prompt:
                // A prompt gets no token.
                asked[number] = nil
                try begin(attempt, identity.account, nil)
            case .membership:
                asked[number] = nil
                guard identity.isAdministrator else { throw .notOrganisationAdministrator }
                if case .join = attempt.request.call {
                    try join(attempt.request, identity.account)
                } else {
                    try leave(attempt.request, identity.account)
                }
            }
        } catch {
            asked[number] = nil
            reopenPrompt(of: attempt)
            if !attempt.isAbandoned { refuse(attempt.request, error) }
        }
    }

    /// Passes the result to the throttle and returns the identity.
    private mutating func identity(
        by result: Result<AuthenticatedIdentity, IdentityError>,
        of attempt: Asked
    ) throws(Refusal) -> AuthenticatedIdentity {
        switch result {
        case .success(let identity):
            throttle.succeeded(attempt.throttleName, of: attempt.participant.user, at: now.uptime)
            return identity
        case .failure(let error):
            if error.code == .accountDisabled {
                throttle.succeeded(attempt.throttleName, of: attempt.participant.user, at: now.uptime)
            } else if error.code != .invalidGrant {
                throttle.cancelled(attempt.throttleName, of: attempt.participant.user, at: now.uptime)
            }
            throw Refusal(error)
        }
    }

    mutating func issued(_ number: UInt64, _ result: Result<AccessToken, IdentityError>) {
        if let decisions = directoryTokens.issued(number, result, facts) { return apply(decisions) }
        guard let attempt = asked.removeValue(forKey: number) else { return }
        do throws(Refusal) {
            switch result {
            case .success(let token):
                guard let account = attempt.account else { throw .requestAbandoned }
                try begin(attempt, account, token)
            case .failure(let error): throw Refusal(error)
            }
        } catch {
            refuse(attempt.request, error)
        }
    }

    /// Begins the session of an identified person. Checks everything again, because another person may have signed in
    /// or out since, and then starts to commit the session.
    ///
    /// - Parameter token: The first token of the app that asks; a prompt gets none.
    mutating func begin(_ attempt: Asked, _ account: Account, _ token: AccessToken?) throws(Refusal) {
        guard !hasCallerGivenUp(attempt.request) else { throw .requestAbandoned }
        try checkSignIn()
        // The person may have been identified by a directory that is no longer configured.
        guard (attempt.provided != nil) == (policy.organisation != nil) else { throw .requestAbandoned }
        try checkCleanups(attempt)
        write(try facts.signingIn(account), of: attempt, token, detail: attempt.participant.app)
    }

    /// Starts to commit the session of the account that signs in.
    ///
    /// - Parameters:
    ///   - attempt: The request for it; `nil` for a login at the seat.
    ///   - token: The first token of the app that asks; `nil` for a prompt or a login.
    ///   - detail: The app or the login that signs the person in, for the log.
    mutating func write(_ next: DeviceState, of attempt: Asked?, _ token: AccessToken?, detail: String) {
        guard let account = next.account else { return }
        facts.ledger.begin(next.epoch, account: account, at: now)
        // In the same transaction as the session, so that each session that a restart finds is in the log.
        enterLog(.signedIn, session: next.epoch, account: account, detail: detail)
        // The response gives the app the account, so the ledger lists the app from the start. A prompt holds nothing.
        let holder = token == nil ? nil : attempt
        if let holder {
            _ = facts.ledger.hold(next.epoch, by: holder.participant, on: holder.request.connection)
            noteHolder(holder.participant, of: next.epoch)
        }
        holdForAdapters()
        unsaved.insert(.device)
        if attempt?.provided != nil { unsaved.insert(.provider) }
        let change = needsDisk(within: .zero)
        if let holder { facts.connected[holder.request.connection]?.held = change }
        facts.pending = PendingSignIn(asked: attempt, next: next, token: token, change: change)
    }

    private func checkCleanups(_ attempt: Asked) throws(Refusal) {
        try facts.checkIdentity(attempt.request, attempt.participant)
        if facts.isSignInHeld { throw .cleanupPending(facts.awaited) }
        try facts.checkOwesNothing(attempt.participant, attempt.request.connection)
    }

    /// Checks the session that is being committed against changed rules.
    mutating func checkPendingSignIn() {
        guard let pending else { return }
        do throws(Refusal) {
            guard policy.isConfigured else { throw .neverConfigured }
            if let asked = pending.asked { try checkCleanups(asked) }
        } catch {
            dropPendingSignIn(because: error)
        }
    }

    /// Signs the person in once the session is committed.
    mutating func finishSignIn() {
        guard let pending, disk.committed >= pending.change, let account = pending.next.account else { return }
        // The disk may have stalled. The person was told that the sign-in failed, and may have left the device.
        if let asked = pending.asked, hasCallerGivenUp(asked.request) {
            return dropPendingSignIn(because: .requestAbandoned)
        }
        facts.pending = nil
        enter(pending.next, cause: pending.asked?.participant.app ?? "login")
        guard let asked = pending.asked else {
            // The clock may have been set, so that the new session ended at once.
            guard device == pending.next else { return }
            effects.append(.note(.notice, "signed in by login", ["epoch": "\(device.epoch)"]))
            return apply(automaticSignOut.noteActivity(facts))
        }
        let request = asked.request
        guard device == pending.next else {
            discard(asked)
            reopenPrompt(of: asked)
            return refuse(request, facts.sessionIsOver(account.identifier))
        }
        if let provided = asked.provided {
            provider.open(provided, since: asked.beganAt, facts)
            provider.change = pending.change
        }
        lastSignIn = request.call.signInLabel.map { ($0, request.connection, device.epoch) }
        apply(automaticSignOut.noteActivity(facts))
        let program = connected[request.connection]?.caller.program ?? ""
        effects.append(.note(.notice, "signed in", ["epoch": "\(device.epoch)", "caller": program]))
        if case .signIn(let scopes) = asked.purpose, let token = pending.token {
            directoryTokens.keep(token, for: asked.participant, scopes, facts)
            reply(request.number, Grant(account: account, epoch: device.epoch, token: token).fields)
        } else {
            request.call.promptName.map { prompts[$0] = nil }
            reply(request.number, ["username": .string(account.username), "epoch": .uint64(device.epoch)])
        }
        if asked.provided != nil { heedHeard(since: asked.beganAt) }
    }

    /// Ends the sign-in whose session is being committed.
    ///
    /// The session may be on the disk already, so its number is used up, and its end is written like the end of any
    /// other session.
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
        guard let asked = pending.asked else { return }
        discard(asked)
        reopenPrompt(of: asked)
        refuse(asked.request, refusal)
    }

    /// Closes the session that a provider has opened for a failed sign-in.
    private mutating func discard(_ attempt: Asked) {
        guard let provided = attempt.provided else { return }
        // The disk may already have the provider's row.
        unsaved.insert(.provider)
        apply(provider.tellLater(provided.record, facts))
    }

    // MARK: Cancelling

    /// Whether the caller of a sign-in has stopped waiting for the response.
    private func hasCallerGivenUp(_ request: Request) -> Bool {
        request.call.signInPatience.map { now.uptime >= request.askedAt + $0 } ?? false
    }

    /// Cancels the sign-in that this connection began under this label or name. If the sign-in has already succeeded,
    /// signs the account out again.
    mutating func cancelSignIn(_ label: String, of connection: String) {
        func isMeant(_ request: Request) -> Bool {
            request.connection == connection && request.call.signInLabel == label
        }
        if let asked = pending?.asked, isMeant(asked.request) { dropPendingSignIn(because: .requestAbandoned) }
        for number in asked.filter({ isMeant($0.value.request) }).keys.sorted() { abandon(number) }
        for number in waiting.numbers(where: { isMeant($0.request) }) {
            guard let entry = waiting[number], case .signIn = entry.reason else { continue }
            waiting[number] = nil
            refuse(entry.request, .requestAbandoned)
        }
        if prompts[label]?.connection == connection { endPrompt(label, because: .requestAbandoned) }
        guard let lastSignIn, lastSignIn.label == label, lastSignIn.connection == connection,
            lastSignIn.epoch == device.epoch, let next = try? device.signingOut(nil)
        else { return }
        enter(next, cause: "the sign-in was cancelled")
    }

    mutating func abandon(_ number: UInt64) {
        guard let attempt = asked[number], !attempt.isAbandoned else { return }
        if attempt.account == nil {
            asked[number]?.isAbandoned = true
        } else {
            asked[number] = nil
        }
        refuse(attempt.request, .requestAbandoned)
    }

    // MARK: The organisation

    private mutating func join(_ request: Request, _ account: Account) throws(Refusal) {
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
        wait(request, for: .stored(["tenant": .string(tenant)], nil))
    }

    private mutating func leave(_ request: Request, _ account: Account) throws(Refusal) {
        guard let membership else { throw .notJoined }
        guard membership.tenantIdentifier == account.tenantIdentifier.lowercased() else { throw .tenantMismatch }
        changeMembership(to: nil, by: account)
        wait(request, for: .stored([:], nil))
    }
}
