import Identity
@_spi(Extensions) import SharedDevice

/// One sign-in, from its request until the session can begin. It is also the check of an administrator who joins or
/// leaves.
struct Attempt: Sendable {
    enum Kind: Sendable {
        /// An app has sent the person's password, and gets a token with these scopes.
        case app(scopes: Set<String>)
        /// A program asks the person for authentication, and receives neither account nor token.
        case prompt
        case membership
    }

    struct Prompt: Sendable {
        let name: String
        let method: BrokerProtocol.SignInMethod
        /// The session to continue, if its person is asked again.
        let session: UInt64?
        /// Whether the prompt asks for additional scopes.
        let asksForMore: Bool
        var expires: Duration
        var handle: String?
    }

    /// The step that the sign-in waits for.
    enum Stage: Sendable {
        /// For the provider's page.
        case page(Request)
        /// For the person at the prompt.
        case person
        /// For the check of the password.
        case password(Request)
        /// For the first token of the app.
        case token(Request, Account)
        /// For the provider's result. `until` is the deadline for a person who signs in at another device.
        case provider(Request, until: Duration)
        /// For the next request to the provider whether the person at another device has finished.
        case pause(Request, until: Duration, next: Duration)
        /// For the session to be committed. The token is the first one of the app that asks; a prompt gets none.
        case session(Request, Account, AccessToken?, ProviderSignIn?)
        /// For the provider's response, although the sign-in was given up. It still counts against the limits, so that
        /// a user who leaves sign-ins cannot burden a slow provider more than one who waits.
        case abandoned
        /// For the check of the password for this request, which was given up. The throttle counts a failure until the
        /// result. So a caller that disconnects gains no free attempts, and an app that is killed locks out no user.
        case forgotten(UInt64)
    }

    /// The number of the request that began it.
    let number: UInt64
    let kind: Kind
    let participant: Participant
    /// The app that has started the prompt; `nil` if it is unknown.
    var app: Participant?
    let connection: String
    let beganAt: Duration
    /// The prompt; `nil` if there is none, or if it ended during the check of the password, whose result the request
    /// still gets.
    var prompt: Prompt?
    /// The locked session during which the credentials are checked. They continue it or, if they are another person's,
    /// end it; they begin no session.
    var lockedSession: UInt64?
    /// The key in the password throttle.
    var throttleName = ""
    /// The groups of the person, who is identified.
    var groups = PersonGroups.none
    var stage = Stage.person

    init(_ kind: Kind, _ request: Request, _ participant: Participant, at now: Moment) {
        (self.kind, self.participant) = (kind, participant)
        (number, connection, beganAt) = (request.number, request.connection, now.uptime)
    }

    /// The request that gets the response.
    var request: Request? {
        switch stage {
        case .page(let request), .password(let request), .token(let request, _), .provider(let request, _),
            .pause(let request, _, _), .session(let request, _, _, _):
            request
        case .person, .abandoned, .forgotten: nil
        }
    }

    /// The sign-in of the organisation's provider.
    var provided: ProviderSignIn? { if case .session(_, _, _, let signIn) = stage { signIn } else { nil } }
    /// The first token of the app that asks.
    var token: AccessToken? { if case .session(_, _, let token, _) = stage { token } else { nil } }
    var usesProvider: Bool { prompt.map { $0.method != .password } ?? false }

    /// The attempt whose person is identified.
    func identified(_ request: Request, _ person: Account, _ token: AccessToken?, _ signIn: ProviderSignIn?) -> Self {
        var attempt = self
        attempt.stage = .session(request, person, token, signIn)
        if let signIn { attempt.groups = signIn.groups }
        return attempt
    }
}
