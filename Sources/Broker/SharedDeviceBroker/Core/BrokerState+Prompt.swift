import DBusTransport
import DeviceConfiguration
import FoundationEssentials
import Identity
import SharedDevice

/// Signing in at a prompt: a program that asks the person, and gets neither account nor token. Its own connection alone may go on with a
/// sign-in that it has begun, and the sign-in ends with that connection.
extension BrokerState {
    /// A sign-in that a prompt has begun, and nobody has completed.
    struct PromptedSignIn: Sendable {
        /// What the broker waits for.
        enum Stage: Sendable {
            /// The provider's page, for this request.
            case beginning(Request)
            case person
            /// The provider's word, or the check of the password and what follows from it, for this request. `until`: how long it waits for a person at
            /// another device.
            case answer(Request, until: Duration)
            /// The disk, where the provider has said who it is. The request ends with the session that is being written.
            case entry
            /// The next time to ask the provider what the person at another device has done.
            case pause(Request, until: Duration, next: Duration)
            /// The provider's answer, which nobody waits for any more. The sign-in keeps its place until then: a user who begins sign-ins and leaves
            /// them costs a provider that hangs no more than one who waits.
            case abandoned

            /// Whom the answer is for.
            var request: Request? {
                switch self {
                case .beginning(let request), .answer(let request, _), .pause(let request, _, _): request
                case .person, .entry, .abandoned: nil
                }
            }
        }

        let participant: Participant
        let connection: String
        let method: BrokerProtocol.SignInMethod
        /// The session that goes on afterwards, where the provider has asked for its person again.
        let session: UInt64?
        let beganAt: Duration
        /// When it ends by itself.
        var expires: Duration
        var stage = Stage.person
        /// The provider's name for it.
        var handle: String?
        /// Whether it asks for more than each sign-in does.
        var asksForMore = false
    }

    /// How long a person may take.
    static let promptLifetime = Duration.seconds(600)
    /// The same, where the provider says so.
    static let longestLifetime = Duration.seconds(900)
    /// How many sign-ins may be begun at a time: on the device, and by one user's programs.
    static let (prompts, promptsOfUser) = (8, 2)
    /// How long until the provider is asked again what a person at another device has done. It asks its server only as often as that allows.
    static let pollPause = Duration.seconds(2)

    /// How people sign in on this device, the usual one first.
    var signInMethods: [BrokerProtocol.SignInMethod] {
        switch policy.identity {
        case .embedded: [.password]
        case .oidc: policy.organisation?.signInMethods.map { $0 == .browser ? .browser : .deviceCode } ?? []
        case .loginSession: []
        }
    }

    /// What people and prompts are told of how to sign in, and of the organisation's provider.
    var providerInformation: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "signInMethods": .array(signInMethods.map { .string($0.rawValue) }, of: "s"),
            "passwordSignIn": .boolean(policy.passwordSignIn),
        ]
        guard let settings = policy.organisation else { return fields }
        fields["issuer"] = .string(settings.issuer.text)
        fields["loopbackPorts"] = .array(settings.loopbackPorts.ports.map { .uint16($0) }, of: "q")
        fields["needsSignIn"] = .boolean(provider.needsPerson && device.account != nil)
        fields["providerProblem"] = (complianceProblem ?? provider.problem).map { .string($0.description) }
        fields["providerCheckedAt"] = provider.session.map { .double($0.checkedAt.timeIntervalSince1970) }
        return fields
    }

    // MARK: Requests

    /// The prompt that comes with the broker needs no cleanup in its manifest, because it gets neither account nor token: it may ask for nothing
    /// that would give it one.
    func checkPrompt(_ participant: Participant, _ call: Request.Call) throws(Refusal) {
        guard eligibility.manifest(of: participant.app)?.isPrompt == true else { return }
        switch call {
        case .beginSignIn, .completeSignIn, .awaitSignIn, .cancelSignIn: return
        default: throw .onlyPrompts
        }
    }

    /// Begins a sign-in, when the rounds of those before allow it.
    mutating func beginSignIn(
        _ request: Request,
        _ participant: Participant
    ) throws(Refusal) -> BrokerProtocol.Fields? {
        guard case .beginSignIn(let wish) = request.call else { return nil }
        let session = provider.needsPerson && device.account != nil ? device.epoch : nil
        if session == nil {
            guard try admitSignIn(request, participant, until: request.askedAt + wish.patience) else { return nil }
        } else {
            // The page's address and the answer have the name of who is signed in.
            try checkOwesNothing(participant, request.connection)
        }
        let possible = signInMethods.filter { method in
            switch method {
            case .browser: wish.redirect != nil
            // An app that asks for the password itself is no prompt, whatever it calls.
            case .password: policy.passwordSignIn || request.claimed == BrokerProtocol.promptIdentifier
            case .deviceCode: true
            }
        }
        let wanted = wish.methods.isEmpty ? possible : wish.methods.filter(possible.contains)
        guard let method = wanted.first else { throw .otherMethod(signInMethods) }
        guard prompts.count < Self.prompts,
            prompts.values.count(where: { $0.participant.user == participant.user }) < Self.promptsOfUser
        else { throw .tooManyPrompts }
        // The name need not be secret, because only this connection may use it. No two of a run are the same.
        let name = "\(device.epoch)-\(request.number)"
        var prompt = PromptedSignIn(
            participant: participant,
            connection: request.connection,
            method: method,
            session: session,
            beganAt: now.uptime,
            expires: now.uptime + Self.promptLifetime
        )
        defer { prompts[name] = prompt }
        guard let start = start(method, wish) else { return fields(of: prompt, name: name) }
        prompt.stage = .beginning(request)
        prompt.asksForMore = !start.scopes.isEmpty
        effects.append(.beginSignIn(name, start))
        return nil
    }

    /// What the provider is asked; `nil` where none is. For scopes that no app may have, nobody is asked.
    private func start(_ method: BrokerProtocol.SignInMethod, _ wish: Request.PromptWish) -> SignInStart? {
        let way: SignInStart.Method
        switch method {
        case .password: return nil
        case .browser: way = .browser
        case .deviceCode: way = .deviceCode
        }
        let isAgain = provider.needsPerson && device.account != nil
        return SignInStart(
            way,
            redirect: way == .browser ? wish.redirect : nil,
            loginHint: isAgain ? device.account?.username : wish.loginHint,
            scopes: wish.scopes.intersection(manifests.flatMap(\.tokens.scopes)),
            only: isAgain ? provider.session?.record?.person : nil
        )
    }

    private func fields(of prompt: PromptedSignIn, name: String) -> BrokerProtocol.Fields {
        let left = (prompt.expires - now.uptime) / .seconds(1)
        return [
            "request": .string(name),
            "method": .string(prompt.method.rawValue),
            "expiresAt": .double(now.wall.timeIntervalSince1970 + left),
        ]
    }

    /// Signs the person in, by what they have given to the prompt. One that is refused before anybody has looked at it may be sent again, and so
    /// may a password.
    mutating func completeSignIn(
        _ request: Request,
        _ participant: Participant,
        _ name: String,
        _ answer: Request.PromptAnswer
    ) throws(Refusal) -> BrokerProtocol.Fields? {
        let prompt = try openPrompt(name, request, participant)
        switch (prompt.method, answer) {
        case (.password, .password(let credentials)):
            try authenticate(credentials, request, participant, .prompt)
        case (.browser, .query(let query)):
            if let handle = prompt.handle { effects.append(.completeSignIn(name, handle, query: query)) }
        default: throw .otherMethod([prompt.method])
        }
        prompts[name]?.stage = .answer(request, until: now.uptime)
        return nil
    }

    mutating func awaitSignIn(
        _ request: Request,
        _ participant: Participant,
        _ name: String,
        _ patience: Duration
    ) throws(Refusal) -> BrokerProtocol.Fields? {
        let prompt = try openPrompt(name, request, participant)
        guard prompt.method == .deviceCode, let handle = prompt.handle else { throw .otherMethod([.deviceCode]) }
        effects.append(.pollSignIn(name, handle))
        prompts[name]?.stage = .answer(request, until: now.uptime + patience)
        return nil
    }

    /// The sign-in that a request goes on with, when all that has to hold still does.
    private mutating func openPrompt(
        _ name: String,
        _ request: Request,
        _ participant: Participant
    ) throws(Refusal) -> PromptedSignIn {
        guard let prompt = prompts[name], prompt.connection == request.connection else { throw .noSuchPrompt }
        switch prompt.stage {
        case .person: break
        case .abandoned: throw .noSuchPrompt
        case .beginning, .answer, .entry, .pause: throw .promptIsAnswered
        }
        if let session = prompt.session {
            guard session == device.epoch, device.account != nil else { throw .noSuchPrompt }
            try checkOwesNothing(participant, request.connection)
        } else {
            // With this deadline it never waits.
            _ = try admitSignIn(request, participant, until: now.uptime)
        }
        return prompt
    }

    // MARK: What the provider says

    /// The provider has a page for the person, or not.
    mutating func signInBegan(_ name: String, _ result: Result<BegunSignIn, IdentityError>) {
        guard case .beginning(let request)? = prompts[name]?.stage else {
            if case .abandoned? = prompts[name]?.stage { prompts[name] = nil }
            if case .success(let begun) = result { effects.append(.cancelSignIn(begun.handle)) }
            return
        }
        switch result {
        case .failure(let error):
            let asksForMore = prompts.removeValue(forKey: name)?.asksForMore ?? false
            refuse(request, Self.refusal(error, asksForMore))
        case .success(let begun):
            prompts[name]?.stage = .person
            prompts[name]?.handle = begun.handle
            prompts[name]?.expires = now.uptime + min(begun.lifetime, Self.longestLifetime)
            guard let prompt = prompts[name] else { return }
            reply(request.number, fields(of: prompt, name: name).merging(begun.prompt.fields) { $1 })
        }
    }

    /// The provider has said what the person's answer is worth; `nil`: the person has not finished.
    mutating func signedIn(_ name: String, _ result: Result<ProviderSignIn?, IdentityError>) {
        guard let prompt = prompts[name], case .answer(let request, let until) = prompt.stage else {
            // Nobody waits any more: what was opened is closed again.
            if case .abandoned? = prompts[name]?.stage { prompts[name] = nil }
            if case .success(let signIn?) = result { tellLater(signIn.record) }
            return
        }
        switch result {
        case .success(nil) where until <= now.uptime:
            prompts[name]?.stage = .person
            reply(request.number, ["pending": .boolean(true), "interval": .double(Self.pollPause / .seconds(1))])
        case .success(nil):
            prompts[name]?.stage = .pause(request, until: until, next: min(until, now.uptime + Self.pollPause))
        case .failure(let error):
            prompts[name] = nil
            refuse(request, Self.refusal(error, prompt.asksForMore))
        case .success(let signIn?):
            prompts[name]?.stage = .entry
            do throws(Refusal) {
                try complete(prompt, request, signIn)
            } catch {
                prompts[name] = nil
                tellLater(signIn.record)
                refuse(request, error)
            }
        }
    }

    /// Whoever asked for more may ask for less; where the sign-in asked for no more than each one does, the configuration is wrong.
    private static func refusal(_ error: IdentityError, _ asksForMore: Bool) -> Refusal {
        guard error.code == .invalidScope else { return Refusal(error) }
        return Refusal(asksForMore ? .scopesDeclined : .providerMisconfigured, error.description)
    }

    private mutating func complete(
        _ prompt: PromptedSignIn,
        _ request: Request,
        _ signIn: ProviderSignIn
    ) throws(Refusal) {
        guard policy.organisation != nil else { throw .noSuchPrompt }
        try checkLasts(signIn.record, since: prompt.beganAt)
        guard let session = prompt.session else {
            var attempt = Asked(request: request, participant: prompt.participant, purpose: .prompt)
            (attempt.provided, attempt.beganAt) = (signIn, prompt.beganAt)
            return try begin(attempt, signIn.account, nil)
        }
        guard session == device.epoch, let account = device.account else { throw .noSuchPrompt }
        // The policy may have become strict while the provider was asked.
        try checkOwesNothing(prompt.participant, request.connection)
        let isSame = provider.session?.record.map { $0.person == signIn.record.person } ?? true
        guard isSame, account.hasIdentifier(signIn.account.identifier) else { throw .otherPerson }
        replaceProviderSession(signIn, since: prompt.beganAt)
        request.call.promptName.map { prompts[$0] = nil }
        let fields: BrokerProtocol.Fields = ["username": .string(account.username), "epoch": .uint64(session)]
        wait(request, for: .stored(fields, nil))
        heedHeard(since: prompt.beganAt)
        touch()
    }

    // MARK: Time and end

    /// When the next one ends by itself, or asks the provider. One whose answer is being looked at ends when that is done.
    var nextLookAtPrompts: Duration? {
        prompts.values.compactMap { prompt -> Duration? in
            switch prompt.stage {
            case .person: prompt.expires
            case .pause(_, _, let next): next
            case .beginning, .answer, .entry, .abandoned: nil
            }
        }.min()
    }

    mutating func lookAtPrompts() {
        for (name, prompt) in prompts.sorted(by: { $0.key < $1.key }) {
            switch prompt.stage {
            case .person where prompt.expires <= now.uptime: endPrompt(name)
            case .pause(let request, let until, let next) where next <= now.uptime:
                guard let handle = prompt.handle else { continue }
                prompts[name]?.stage = .answer(request, until: until)
                effects.append(.pollSignIn(name, handle))
            default: break
            }
        }
    }

    /// Ends a sign-in that was not completed.
    mutating func endPrompt(_ name: String, because refusal: Refusal = .noSuchPrompt) {
        guard let prompt = prompts[name] else { return }
        switch prompt.stage {
        case .abandoned: return
        case .beginning: prompts[name]?.stage = .abandoned
        case .answer where prompt.method != .password: prompts[name]?.stage = .abandoned
        default: prompts[name] = nil
        }
        if let handle = prompt.handle { effects.append(.cancelSignIn(handle)) }
        // A password's check has its own end.
        if prompt.method != .password, let request = prompt.stage.request { refuse(request, refusal) }
    }

    mutating func endPrompts(of connection: String? = nil, because refusal: Refusal) {
        for (name, prompt) in prompts.sorted(by: { $0.key < $1.key })
        where connection == nil || prompt.connection == connection {
            endPrompt(name, because: refusal)
        }
    }

    /// The answer was looked at, and signs nobody in. A password may be tried again; what the browser has brought counts once.
    mutating func reopenPrompt(of attempt: Asked) {
        guard let name = attempt.request.call.promptName else { return }
        if attempt.provided == nil { prompts[name]?.stage = .person } else { prompts[name] = nil }
    }
}

extension BegunSignIn.Prompt {
    fileprivate var fields: BrokerProtocol.Fields {
        switch self {
        case .browser(let address): return ["authorizationURL": .string(address)]
        case .deviceCode(let code, let address, let completeAddress):
            var fields: BrokerProtocol.Fields = [
                "userCode": .string(code), "verificationURI": .string(address),
                "interval": .double(BrokerState.pollPause / .seconds(1)),
            ]
            fields["verificationURIComplete"] = completeAddress.map { .string($0) }
            return fields
        }
    }
}

extension Request.Call {
    /// The name of the prompt's sign-in that it goes on with.
    var promptName: String? {
        switch self {
        case .completeSignIn(let name, _), .awaitSignIn(let name, _): name
        default: nil
        }
    }

    /// How long the caller of a sign-in waits for its answer: a little less than libraries (25 s) and prompts (60 s) do, so that nobody is signed in who
    /// has been told that it failed.
    var signInPatience: Duration? {
        switch self {
        case .signIn(_, _, let patience, _): patience + .seconds(20)
        case .completeSignIn: .seconds(55)
        case .awaitSignIn(_, let patience): patience + .seconds(55)
        default: nil
        }
    }

    /// What ``cancelSignIn(label:)`` names the sign-in by.
    var signInLabel: String? { if case .signIn(_, _, _, let label) = self { label } else { promptName } }
}
