import DBus
import DeviceConfiguration
import FoundationEssentials
import Identity
@_spi(Extensions) import SharedDevice

/// Sign-in at a prompt: a program that asks the person for authentication, and receives neither account nor token.
///
/// Only the connection that began a sign-in may continue it. The sign-in ends with the connection.
extension BrokerState {
    /// A sign-in that a prompt has begun and that is not complete.
    struct PromptedSignIn: Sendable {
        /// The step that the sign-in waits for.
        enum Stage: Sendable {
            /// For the provider's page, for the request that began the sign-in.
            case beginning(Request)
            case person
            /// For the provider's result, or for the check of the password and the steps after it. `until` is the
            /// deadline for a person who signs in at another device.
            case answer(Request, until: Duration)
            /// For the session to be committed. The provider has identified the person, and ``PendingSignIn`` owns the
            /// request.
            case entry
            /// For the next request to the provider whether the person at another device has finished.
            case pause(Request, until: Duration, next: Duration)
            /// For the provider's response, although the sign-in was given up. It still counts against the limits until
            /// then, so that a user who begins sign-ins and leaves them cannot burden a slow provider more than a user
            /// who waits.
            case abandoned

            /// The request that gets the response.
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
        /// The session to continue, if the provider has asked for its person again.
        let session: UInt64?
        let beganAt: Duration
        var expires: Duration
        var stage = Stage.person
        var handle: String?
        /// Whether the prompt asks for additional scopes.
        var asksForMore = false
    }

    /// The limit for a lifetime that the provider chooses.
    static let longestLifetime = Duration.seconds(900)
    /// How many prompted sign-ins may be in progress: on the device, and by one user's programs.
    static let (prompts, promptsOfUser) = (8, 2)
    /// The interval of polling for a person at another device. The provider sends requests to its server only as often
    /// as the server permits.
    static let pollPause = Duration.seconds(2)

    /// The sign-in methods of this device, the usual one first.
    var signInMethods: [BrokerProtocol.SignInMethod] {
        switch policy.identity {
        case .embedded: [.password]
        case .oidc: policy.organisation?.signInMethods.map { $0 == .browser ? .browser : .deviceCode } ?? []
        case .loginSession: []
        }
    }

    /// The information for people and prompts on sign-in methods and the organisation's provider.
    var providerInformation: BrokerProtocol.Fields {
        var fields: BrokerProtocol.Fields = [
            "signInMethods": .array(signInMethods.map { .string($0.rawValue) }, of: "s"),
            "passwordSignIn": .boolean(policy.passwordSignIn),
        ]
        guard let settings = policy.organisation else { return fields }
        fields["issuer"] = .string(settings.issuer.text)
        fields["loopbackPorts"] = .array(settings.loopbackPorts.ports.map { .uint16($0) }, of: "q")
        fields["needsSignIn"] = .boolean(provider.needsPerson && device.account != nil)
        fields["providerProblem"] = (provider.complianceProblem(facts) ?? provider.problem).map {
            .string($0.description)
        }
        fields["providerCheckedAt"] = provider.session.map { .double($0.checkedAt.timeIntervalSince1970) }
        return fields
    }

    // MARK: Requests

    /// Restricts the bundled prompt to calls that give it neither account nor token. For that reason its manifest needs
    /// no cleanup.
    func checkPrompt(_ participant: Participant, _ call: Request.Call) throws(Refusal) {
        guard eligibility.manifest(of: participant.app)?.isPrompt == true else { return }
        switch call {
        case .beginSignIn, .completeSignIn, .awaitSignIn, .cancelSignIn: return
        default: throw .onlyPrompts
        }
    }

    /// Begins a sign-in, once the cleanup rounds allow it.
    mutating func beginSignIn(
        _ request: Request,
        _ participant: Participant
    ) throws(Refusal) -> BrokerProtocol.Fields? {
        guard case .beginSignIn(let wish) = request.call else { return nil }
        let session = provider.needsPerson && device.account != nil ? device.epoch : nil
        if session == nil {
            guard try admitSignIn(request, participant, until: request.askedAt + wish.patience) else { return nil }
        } else {
            // The page's address and the response contain the name of the signed-in person.
            try facts.checkOwesNothing(participant, request.connection)
        }
        let possible = signInMethods.filter { method in
            switch method {
            case .browser: wish.redirect != nil
            // An app that asks for the password itself is not a prompt, whatever method it calls.
            case .password: policy.passwordSignIn || request.claimed == BrokerProtocol.promptIdentifier
            case .deviceCode: true
            }
        }
        let wanted = wish.methods.isEmpty ? possible : wish.methods.filter(possible.contains)
        guard let method = wanted.first else { throw .otherMethod(signInMethods) }
        guard prompts.count < Self.prompts,
            prompts.values.count(where: { $0.participant.user == participant.user }) < Self.promptsOfUser
        else { throw .tooManyPrompts }
        // The name is unique within a run. It need not be secret, because only this connection may use it.
        let name = "\(device.epoch)-\(request.number)"
        var prompt = PromptedSignIn(
            participant: participant,
            connection: request.connection,
            method: method,
            session: session,
            beganAt: now.uptime,
            expires: now.uptime + Facts.promptLifetime
        )
        defer { prompts[name] = prompt }
        guard let start = start(method, wish) else { return fields(of: prompt, name: name) }
        prompt.stage = .beginning(request)
        prompt.asksForMore = !start.scopes.isEmpty
        effects.append(.beginSignIn(name, start))
        return nil
    }

    /// The provider's part in a sign-in; `nil` if the method needs none. Scopes that no manifest permits are left out.
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

    /// Continues a sign-in with the person's input. Input that is refused before it is checked may be sent again, and
    /// so may a wrong password.
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
        prompts[name]?.stage = .answer(request, until: facts.now.uptime)
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
        prompts[name]?.stage = .answer(request, until: facts.now.uptime + patience)
        return nil
    }

    /// Returns the sign-in that the request continues, after checking all its conditions again.
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
            try facts.checkOwesNothing(participant, request.connection)
        } else {
            // With this deadline the request never waits.
            _ = try admitSignIn(request, participant, until: now.uptime)
        }
        return prompt
    }

    // MARK: The provider's results

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
            prompts[name]?.expires = facts.now.uptime + min(begun.lifetime, Self.longestLifetime)
            guard let prompt = prompts[name] else { return }
            reply(request.number, fields(of: prompt, name: name).merging(begun.prompt.fields) { $1 })
        }
    }

    /// Handles the provider's result for the person's input; `nil` means that the person has not finished.
    mutating func signedIn(_ name: String, _ result: Result<ProviderSignIn?, IdentityError>) {
        guard let prompt = prompts[name], case .answer(let request, let until) = prompt.stage else {
            // The request was given up, so the opened session is closed again.
            if case .abandoned? = prompts[name]?.stage { prompts[name] = nil }
            if case .success(let signIn?) = result { apply(provider.tellLater(signIn.record, facts)) }
            return
        }
        switch result {
        case .success(nil) where until <= now.uptime:
            prompts[name]?.stage = .person
            reply(request.number, ["pending": .boolean(true), "interval": .double(Self.pollPause / .seconds(1))])
        case .success(nil):
            prompts[name]?.stage = .pause(request, until: until, next: min(until, facts.now.uptime + Self.pollPause))
        case .failure(let error):
            prompts[name] = nil
            refuse(request, Self.refusal(error, prompt.asksForMore))
        case .success(let signIn?):
            prompts[name]?.stage = .entry
            do throws(Refusal) {
                try complete(prompt, request, signIn)
            } catch {
                prompts[name] = nil
                apply(provider.tellLater(signIn.record, facts))
                refuse(request, error)
            }
        }
    }

    /// The refusal for an error of the provider. If it refuses the scopes, a prompt that asked for additional ones may
    /// retry with fewer. Otherwise the configuration is wrong.
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
        try provider.checkLasts(signIn.record, since: prompt.beganAt, facts)
        guard let session = prompt.session else {
            var attempt = Asked(request: request, participant: prompt.participant, purpose: .prompt)
            (attempt.provided, attempt.beganAt) = (signIn, prompt.beganAt)
            return try begin(attempt, signIn.account, nil)
        }
        guard session == device.epoch, let account = device.account else { throw .noSuchPrompt }
        // The policy may have become strict while the provider was asked.
        try facts.checkOwesNothing(prompt.participant, request.connection)
        let isSame = provider.session?.record.map { $0.person == signIn.record.person } ?? true
        guard isSame, account.hasIdentifier(signIn.account.identifier) else { throw .otherPerson }
        apply(provider.replace(with: signIn, since: prompt.beganAt, facts))
        request.call.promptName.map { prompts[$0] = nil }
        let fields: BrokerProtocol.Fields = ["username": .string(account.username), "epoch": .uint64(session)]
        wait(request, for: .stored(fields, nil))
        heedHeard(since: prompt.beganAt)
        touch()
    }

    /// When the oldest sign-in in progress with the provider began; `nil` if there is none.
    var firstSignIn: Duration? {
        let prompts = prompts.values.filter { $0.method != .password }.map(\.beganAt)
        let written = pending?.asked.flatMap { $0.provided == nil ? nil : $0.beganAt }
        return (prompts + [written].compactMap { $0 }).min()
    }

    /// Acts on the provider's events about a sign-in whose session is now open.
    mutating func heedHeard(since began: Duration) {
        for event in provider.heardEvents(since: began) { apply(provider.heedHeard(event, facts)) }
    }

    // MARK: Deadlines

    /// When the next sign-in expires or the next poll is due. A sign-in whose input is being checked does not expire
    /// before the result.
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

    mutating func endPrompt(_ name: String, because refusal: Refusal = .noSuchPrompt) {
        guard let prompt = prompts[name] else { return }
        switch prompt.stage {
        case .abandoned: return
        case .beginning: prompts[name]?.stage = .abandoned
        case .answer where prompt.method != .password: prompts[name]?.stage = .abandoned
        default: prompts[name] = nil
        }
        if let handle = prompt.handle { effects.append(.cancelSignIn(handle)) }
        // A request that waits for the password check gets the result of the check as its response.
        if prompt.method != .password, let request = prompt.stage.request { refuse(request, refusal) }
    }

    mutating func endPrompts(of connection: String? = nil, because refusal: Refusal) {
        for (name, prompt) in prompts.sorted(by: { $0.key < $1.key })
        where connection == nil || prompt.connection == connection {
            endPrompt(name, because: refusal)
        }
    }

    /// Handles input that led to no sign-in. A password may be tried again; the browser's result can be used only once.
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
    /// The name of the prompted sign-in that the request continues.
    var promptName: String? {
        switch self {
        case .completeSignIn(let name, _), .awaitSignIn(let name, _): name
        default: nil
        }
    }

    /// How long after its request a sign-in may still succeed. This is a little less than libraries (25 s) and prompts
    /// (60 s) wait for the response, so that no person is signed in after being told that it failed.
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
