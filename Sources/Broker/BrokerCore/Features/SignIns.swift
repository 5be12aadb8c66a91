import DeviceConfiguration
import FoundationEssentials
import Identity
@_spi(Extensions) import SharedDevice

/// The sign-ins in progress, at most one of which is being committed (``Facts/pending``).
///
/// Only the connection that began a sign-in at a prompt may continue it. The sign-in ends with the connection.
struct SignIns: Sendable {
    /// The attempts, by the number of the request that began each.
    private var attempts: [UInt64: Attempt] = [:]
    private var throttle = PasswordThrottle()

    /// How many password checks of one user may wait at a time.
    static let checksOfUser = 4
    /// How long a prompt's sign-in waits for the cleanup of the locked session that it has ended.
    static let promptPatience = Duration.seconds(20)
    /// The limit for a lifetime that the provider chooses.
    static let longestLifetime = Duration.seconds(900)
    /// How many prompted sign-ins may be in progress: on the device, and by one user's programs.
    static let (prompts, promptsOfUser) = (8, 2)

    /// The attempts at prompts.
    var prompts: [Attempt] { attempts.values.filter { $0.prompt != nil } }

    /// When the oldest sign-in in progress with the provider began; `nil` if there is none.
    func firstBegan(_ facts: Facts) -> Duration? {
        let pending = facts.pending?.attempt.flatMap { $0.provided == nil ? nil : $0.beganAt }
        return (attempts.values.filter(\.usesProvider).map(\.beganAt) + [pending].compactMap(\.self)).min()
    }

    // MARK: Requests

    mutating func signIn(_ request: Request, _ participant: Participant, _ facts: Facts) throws(Refusal) -> [Decision] {
        guard case .signIn(let credentials, let scopes, let patience, _) = request.call else { return [] }
        // Where people sign in by login a prompt does not help, and the checks below throw the reason.
        let isScreen = facts.isScreen(participant)
        guard
            facts.policy.passwordSignIn || facts.policy.identity == .loginSession
                || isScreen && facts.policy.identity == .embedded
        else {
            // If no sign-in is possible at all, the refusal says so instead of naming the prompt.
            try facts.checkIdentity(request, participant)
            try facts.checkSignIn()
            throw facts.policy.organisation.map { .promptNeeded($0.issuer.text) } ?? .promptNeeded
        }
        // All checks precede the password check: a refusal must not reveal whether the password was right.
        if let wait = try admit(request, participant, until: request.askedAt + patience, facts) { return [wait] }
        if !isScreen { try facts.checkScopes(scopes, of: participant) }
        let attempt = Attempt(isScreen ? .prompt : .app(scopes: scopes), request, participant, at: facts.now)
        return try check(credentials, request, attempt, facts)
    }

    /// Checks all conditions of a sign-in before the person is asked or identified. Returns `nil` unless it has to
    /// wait.
    private func admit(
        _ request: Request,
        _ participant: Participant,
        until deadline: Duration,
        _ facts: Facts
    ) throws(Refusal) -> Decision? {
        try facts.checkIdentity(request, participant)
        try facts.checkSignIn()
        if !facts.isLocked, facts.isSignInHeld {
            guard deadline > facts.now.uptime else { throw .cleanupPending(facts.awaited) }
            return .wait(request, until: deadline, for: .signIn(participant))
        }
        try facts.checkOwesNothing(participant, request.connection)
        return nil
    }

    /// Has the credentials checked by the directory, within the limits.
    mutating func check(
        _ credentials: SignInRequest,
        _ request: Request,
        _ attempt: Attempt,
        _ facts: Facts
    ) throws(Refusal) -> [Decision] {
        let user = attempt.participant.user
        let checks = attempts.values.count { attempt in
            switch attempt.stage {
            case .password, .token: attempt.participant.user == user
            default: false
            }
        }
        guard checks < Self.checksOfUser else { throw .tooManyQuestions }
        var attempt = attempt
        attempt.throttleName = credentials.throttleName
        if let wait = throttle.admit(attempt.throttleName, of: user, at: facts.now.uptime) {
            throw Refusal(.slowDown(wait))
        }
        // After the throttle, because the refusal tells whether the name is that of the locked session.
        try Self.checkKind(credentials, lockedFor: facts.isLocked ? facts.device.account : nil)
        // Another person's password is not checked, and counts as a failure: the names could be tried out. A badge
        // names no person before it is checked.
        if attempt.prompt?.session != nil, let account = facts.device.account, let name = credentials.username,
            usernameKey(name) != usernameKey(account.username)
        {
            throw .otherPerson
        }
        attempt.stage = .password(request)
        attempt.lockedSession = facts.isLocked ? facts.device.epoch : nil
        attempts[attempt.number] = attempt
        return [.perform(.authenticate(request.number, credentials))]
    }

    /// A PIN without a badge counts only for the person of a locked session.
    static func checkKind(_ credentials: SignInRequest, lockedFor account: Account?) throws(Refusal) {
        guard case .pin(let username, _) = credentials else { return }
        guard let account, usernameKey(username) == usernameKey(account.username) else { throw .onlyPIN }
    }

    /// - Parameters:
    ///   - isAgain: Whether the signed-in person has to authenticate again, for the provider or for an app.
    ///   - person: That person, as the provider knows them.
    mutating func beginSignIn(
        _ request: Request,
        _ participant: Participant,
        isAgain: Bool,
        _ person: ProviderRecord.Person?,
        _ facts: Facts
    ) throws(Refusal) -> [Decision] {
        guard case .beginSignIn(let wish) = request.call else { return [] }
        if wish.claims != nil, !facts.signInMethods.contains(.browser) { throw .noClaims }
        if isAgain {
            guard facts.policy.identity != .loginSession else { throw .signedInByLogin }
            // The page's address and the response contain the name of the signed-in person.
            try facts.checkOwesNothing(participant, request.connection)
        } else if let wait = try admit(request, participant, until: request.askedAt + wish.patience, facts) {
            return [wait]
        }
        let possible = facts.signInMethods.filter { method in
            switch method {
            case .browser: wish.redirect != nil
            // An app that asks for the password itself is not a prompt, whatever method it calls.
            case .password: facts.policy.passwordSignIn || request.claimed == BrokerProtocol.promptIdentifier
            // Its request has no claims (RFC 8628, section 3.1).
            case .deviceCode: wish.claims == nil
            // A prompt of the method `password` takes a badge too.
            case .badge: false
            }
        }
        let wanted = wish.methods.isEmpty ? possible : wish.methods.filter(possible.contains)
        guard let method = wanted.first else {
            throw .otherMethod(wish.claims == nil ? facts.signInMethods.filter { $0 != .badge } : [.browser])
        }
        let open = prompts + [facts.pending?.attempt].compactMap(\.self).filter { $0.prompt != nil }
        guard open.count < Self.prompts,
            open.count(where: { $0.participant.user == participant.user }) < Self.promptsOfUser
        else { throw .tooManyPrompts }
        // Scopes that no manifest permits are left out.
        let scopes = wish.scopes.intersection(facts.manifests.flatMap(\.tokens.scopes))
        var attempt = Attempt(.prompt, request, participant, at: facts.now)
        let prompt = Attempt.Prompt(
            // Unique within a run. It need not be secret, because only this connection may use it.
            name: "\(facts.device.epoch)-\(request.number)",
            method: method,
            session: isAgain ? facts.device.epoch : nil,
            asksForMore: method != .password && !scopes.isEmpty,
            expires: facts.now.uptime + Facts.promptLifetime
        )
        attempt.prompt = prompt
        attempt.app = wish.app.map { Participant(app: $0, user: participant.user) }
        defer { attempts[request.number] = attempt }
        guard method != .password else { return [.respond(request.number, Self.begun(prompt, nil, facts))] }
        attempt.stage = .page(request)
        let start = SignInStart(
            method == .browser ? .browser : .deviceCode,
            redirect: method == .browser ? wish.redirect : nil,
            // An app that may know the name sends it. If the provider asks, the person may have begun by hand.
            loginHint: isAgain && !wish.asksAgain ? facts.device.account?.username : wish.loginHint,
            scopes: scopes,
            claims: wish.claims,
            only: isAgain ? person : nil
        )
        return [.perform(.beginSignIn(prompt.name, start))]
    }

    private static func begun(_ prompt: Attempt.Prompt, _ page: BegunSignIn.Prompt?, _ facts: Facts) -> Response {
        let expires = facts.date(of: prompt.expires)
        let takesBadge = prompt.method == .password && facts.hasBadges
        return .prompt(
            BegunPrompt(name: prompt.name, method: prompt.method, expires: expires, page: page, takesBadge: takesBadge)
        )
    }

    /// Continues a sign-in with the person's input, or waits for a person at another device. Refused input may be sent
    /// again.
    mutating func continueSignIn(
        _ request: Request,
        _ participant: Participant,
        _ facts: Facts
    ) throws(Refusal) -> [Decision] {
        guard let name = request.call.promptName, let number = number(of: name), let attempt = attempts[number],
            let prompt = attempt.prompt, attempt.connection == request.connection
        else {
            let isCommitted = facts.pending?.attempt.map {
                $0.prompt?.name == request.call.promptName && $0.connection == request.connection
            }
            throw isCommitted == true ? .promptIsAnswered : .noSuchPrompt
        }
        switch attempt.stage {
        case .person: break
        case .abandoned, .forgotten: throw .noSuchPrompt
        case .page, .password, .token, .provider, .pause, .session: throw .promptIsAnswered
        }
        if let session = prompt.session {
            guard session == facts.device.epoch, facts.device.account != nil, facts.mayUse(attempt, in: facts.device)
            else { throw .noSuchPrompt }
            try facts.checkOwesNothing(participant, request.connection)
        } else {
            // With this deadline the request never waits.
            _ = try admit(request, participant, until: facts.now.uptime, facts)
        }
        switch (request.call, prompt.method, prompt.handle) {
        case (.completeSignIn(_, .password(let credentials)), .password, _):
            return try check(credentials, request, attempt, facts)
        case (.completeSignIn(_, .query(let query)), .browser, let handle):
            attempts[number]?.stage = .provider(request, until: facts.now.uptime)
            guard let handle else { return [] }
            return [.perform(.completeSignIn(name, handle, query: query))]
        case (.awaitSignIn(_, let patience), .deviceCode, let handle?):
            attempts[number]?.stage = .provider(request, until: facts.now.uptime + patience)
            return [.perform(.pollSignIn(name, handle))]
        case (.awaitSignIn, _, _): throw .otherMethod([.deviceCode])
        default: throw .otherMethod([prompt.method])
        }
    }

    private func number(of name: String) -> UInt64? { attempts.first { $0.value.prompt?.name == name }?.key }

    // MARK: Results

    mutating func authenticated(
        _ number: UInt64,
        _ result: Result<AuthenticatedIdentity, IdentityError>,
        _ facts: Facts
    ) -> [Decision] {
        let found = attempts.first { _, attempt in
            switch attempt.stage {
            case .password(let request): request.number == number
            case .forgotten(let forgotten): forgotten == number
            default: false
            }
        }
        guard let (key, attempt) = found else { return [] }
        let (name, user, now) = (attempt.throttleName, attempt.participant.user, facts.now.uptime)
        switch result {
        case .success: throttle.succeeded(name, of: user, at: now)
        case .failure(let error) where error.code == .accountDisabled: throttle.succeeded(name, of: user, at: now)
        case .failure(let error) where error.code != .invalidGrant: throttle.cancelled(name, of: user, at: now)
        case .failure: break
        }
        attempts[key] = nil
        var failures: [Decision] = []
        if case .failure(let error) = result, error.code == .invalidGrant, let lock = facts.lock,
            let account = facts.device.account, name == usernameKey(account.username)
        {
            failures = [lock.failed]
        }
        guard case .password(let request) = attempt.stage else { return failures }
        switch result {
        case .failure(let error):
            reopen(attempt)
            return [.refuse(request, Refusal(error))] + failures
        case .success(let identity):
            var attempt = attempt
            attempt.groups = identity.groups
            if let decisions = takeOver(attempt, request, identity, facts) { return decisions }
            switch attempt.kind {
            case .app(let scopes):
                do throws(Refusal) {
                    // Otherwise the directory would issue a token for nothing.
                    try facts.checkPerson(attempt, identity)
                } catch {
                    return [.refuse(request, error)]
                }
                attempts[key] = attempt
                attempts[key]?.stage = .token(request, identity.account)
                return [.perform(.issueToken(number, identity.account, scopes: scopes))]
            case .prompt:
                // A prompt gets no token.
                return [.begin(attempt.identified(request, identity.account, nil, nil))]
            case .membership:
                guard identity.isAdministrator else { return [.refuse(request, .notOrganisationAdministrator)] }
                return [.administer(request, as: identity.account)]
            }
        }
    }

    /// Ends a locked session if another person has authenticated. That person's sign-in then begins anew.
    ///
    /// - Returns: `nil` if it is not another person at a locked session.
    private mutating func takeOver(
        _ attempt: Attempt,
        _ request: Request,
        _ identity: AuthenticatedIdentity,
        _ facts: Facts
    ) -> [Decision]? {
        guard facts.isLocked, attempt.lockedSession == facts.device.epoch, attempt.prompt?.session == nil,
            let present = facts.device.account, !present.hasIdentifier(identity.account.identifier)
        else { return nil }
        if case .membership = attempt.kind { return nil }
        reopen(attempt)
        do throws(Refusal) {
            // A person who may not or cannot sign in ends no session.
            if facts.hasCallerGivenUp(request) { throw .requestAbandoned }
            if let problem = facts.disk.problem { throw .failed(problem) }
            try facts.checkManifests()
            try facts.checkPerson(attempt, identity)
        } catch {
            return [.refuse(request, error)]
        }
        let patience = if case .signIn(_, _, let patience, _) = request.call { patience } else { Self.promptPatience }
        return [
            .end(cause: "another person signed in"),
            .wait(request, until: request.askedAt + patience, for: .signIn(attempt.participant)),
        ]
    }

    mutating func issued(_ number: UInt64, _ result: Result<AccessToken, IdentityError>) -> [Decision] {
        guard let attempt = attempts[number], case .token(let request, let account) = attempt.stage else { return [] }
        attempts[number] = nil
        switch result {
        case .success(let token): return [.begin(attempt.identified(request, account, token, nil))]
        case .failure(let error): return [.refuse(request, Refusal(error))]
        }
    }

    /// Handles the provider's page for a prompted sign-in.
    mutating func signInBegan(
        _ name: String,
        _ result: Result<BegunSignIn, IdentityError>,
        _ facts: Facts
    ) -> [Decision] {
        let number = number(of: name)
        guard let number, var attempt = attempts[number], var prompt = attempt.prompt,
            case .page(let request) = attempt.stage
        else {
            if let number { forgetAbandoned(number) }
            if case .success(let begun) = result { return [.perform(.cancelSignIn(begun.handle))] }
            return []
        }
        switch result {
        case .failure(let error):
            attempts[number] = nil
            return [.refuse(request, Self.refusal(error, prompt.asksForMore))]
        case .success(let begun):
            prompt.handle = begun.handle
            prompt.expires = facts.now.uptime + min(begun.lifetime, Self.longestLifetime)
            (attempt.prompt, attempt.stage) = (prompt, .person)
            attempts[number] = attempt
            return [.respond(request.number, Self.begun(prompt, begun.prompt, facts))]
        }
    }

    private mutating func forgetAbandoned(_ number: UInt64) {
        if case .abandoned? = attempts[number]?.stage { attempts[number] = nil }
    }

    /// - Parameter result: `nil` means that the person has not finished.
    mutating func signedIn(
        _ name: String,
        _ result: Result<ProviderSignIn?, IdentityError>,
        _ facts: Facts
    ) -> [Decision] {
        let number = number(of: name)
        guard let number, let attempt = attempts[number], case .provider(let request, let until) = attempt.stage else {
            // The request was given up, so the opened session is closed again.
            if let number { forgetAbandoned(number) }
            if case .success(let signIn?) = result { return [.discard(signIn)] }
            return []
        }
        switch result {
        case .success(nil) where until <= facts.now.uptime:
            attempts[number]?.stage = .person
            return [.respond(request.number, .pending)]
        case .success(nil):
            let next = min(until, facts.now.uptime + BegunPrompt.pollPause)
            attempts[number]?.stage = .pause(request, until: until, next: next)
            return []
        case .failure(let error):
            attempts[number] = nil
            return [.refuse(request, Self.refusal(error, attempt.prompt?.asksForMore ?? false))]
        case .success(let signIn?):
            attempts[number] = nil
            return [.begin(attempt.identified(request, signIn.account, nil, signIn))]
        }
    }

    /// If the provider refuses the scopes, a prompt that asked for additional ones may retry with fewer. Otherwise the
    /// configuration is wrong.
    private static func refusal(_ error: IdentityError, _ asksForMore: Bool) -> Refusal {
        guard error.code == .invalidScope else { return Refusal(error) }
        return Refusal(asksForMore ? .scopesDeclined : .providerMisconfigured, error.description)
    }

    /// Takes back an attempt that led to no session. Only a password may be tried again.
    mutating func reopen(_ attempt: Attempt) {
        guard attempt.prompt != nil, attempt.provided == nil else { return }
        attempts[attempt.number] = attempt
        attempts[attempt.number]?.stage = .person
    }

    // MARK: Ends

    /// When the next prompt expires or the next poll is due. No prompt expires while its input is checked.
    var next: Duration? {
        attempts.values.lazy.compactMap { attempt -> Duration? in
            switch attempt.stage {
            case .person: attempt.prompt?.expires
            case .pause(_, _, let next): next
            default: nil
            }
        }.min()
    }

    mutating func passTime(_ facts: Facts) -> [Decision] {
        var decisions: [Decision] = []
        for (number, attempt) in attempts.sorted(by: { $0.key < $1.key }) {
            guard let prompt = attempt.prompt else { continue }
            switch attempt.stage {
            case .person where prompt.expires <= facts.now.uptime: decisions += end(number, because: .noSuchPrompt)
            case .pause(let request, let until, let next) where next <= facts.now.uptime:
                guard let handle = prompt.handle else { continue }
                attempts[number]?.stage = .provider(request, until: until)
                decisions.append(.perform(.pollSignIn(prompt.name, handle)))
            default: break
            }
        }
        return decisions
    }

    private mutating func end(_ number: UInt64, because refusal: Refusal) -> [Decision] {
        guard let attempt = attempts[number], let prompt = attempt.prompt else { return [] }
        switch attempt.stage {
        case .abandoned, .forgotten: return []
        case .password:
            attempts[number]?.prompt = nil
            return []
        case .page, .provider: attempts[number]?.stage = .abandoned
        case .person, .pause, .token, .session: attempts[number] = nil
        }
        return (prompt.handle.map { [.perform(.cancelSignIn($0))] } ?? [])
            + (attempt.request.map { [.refuse($0, refusal)] } ?? [])
    }

    mutating func endPrompts(of connection: String? = nil, because refusal: Refusal) -> [Decision] {
        let meant = attempts.filter { connection == nil || $0.value.connection == connection }
        return meant.keys.sorted().flatMap { end($0, because: refusal) }
    }

    /// Ends the sign-in that this connection began under this label or name.
    mutating func cancel(_ label: String, of connection: String) -> [Decision] {
        abandonChecks { $0.connection == connection && $0.call.signInLabel == label }
            + attempts.filter { $0.value.prompt?.name == label && $0.value.connection == connection }.keys.sorted()
            .flatMap { end($0, because: .requestAbandoned) }
    }

    mutating func abandonChecks(where isMeant: (Request) -> Bool) -> [Decision] {
        var decisions: [Decision] = []
        for (number, attempt) in attempts.sorted(by: { $0.key < $1.key }) {
            switch attempt.stage {
            case .password(let request) where isMeant(request):
                attempts[number]?.stage = .forgotten(request.number)
                attempts[number]?.prompt = nil
                decisions.append(.refuse(request, .requestAbandoned))
            case .token(let request, _) where isMeant(request):
                attempts[number] = nil
                decisions.append(.refuse(request, .requestAbandoned))
            default: break
            }
        }
        return decisions
    }
}

extension Facts {
    /// Checks that the person may sign in, and that the person's apps may have the account.
    fileprivate func checkPerson(_ attempt: Attempt, _ identity: AuthenticatedIdentity) throws(Refusal) {
        try rules.check(identity.account, identity.groups)
        let next = device.next(mode: device.mode, account: identity.account, groups: identity.groups.names)
        guard mayUse(attempt, in: next) else { throw .appNotForUser }
    }
}

extension SignInRequest {
    /// The key of these credentials in the throttle. It tells nothing about a badge's number.
    var throttleName: String {
        switch self {
        case .password(let username, _), .pin(let username, _):
            // All names that are too long for any user share one key, so that they do not fill the memory.
            return username.utf8.count > 4 * longestUsername ? "" : usernameKey(username)
        case .badge(let number, _):
            // A keyed hash, whose key is new in each run. A name has no NUL.
            var hasher = Hasher()
            number.withBytes { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
            return "\0\(hasher.finalize())"
        }
    }
}

extension Request.Call {
    var promptName: String? {
        switch self {
        case .completeSignIn(let name, _), .awaitSignIn(let name, _): name
        default: nil
        }
    }

    /// How long after its request a sign-in may still succeed. It is less than libraries (25 s) and prompts (60 s)
    /// wait, so that no person is signed in after being told that it failed.
    var signInPatience: Duration? {
        switch self {
        case .signIn(_, _, let patience, _): patience + .seconds(20)
        case .completeSignIn: .seconds(55)
        case .awaitSignIn(_, let patience): patience + .seconds(55)
        default: nil
        }
    }

    /// The label by which ``cancelSignIn(label:)`` identifies the sign-in.
    var signInLabel: String? { if case .signIn(_, _, _, let label) = self { label } else { promptName } }
}
