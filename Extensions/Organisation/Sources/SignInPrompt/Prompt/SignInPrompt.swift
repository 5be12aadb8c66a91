import Basics
package import CommandParts
package import HTTPListening
package import Identity
@_spi(Extensions) package import SharedDevice

/// The state machine of a sign-in at the prompt: takes events and returns effects. It uses no socket, process, terminal
/// or clock.
package struct SignInPrompt: Sendable {
    package enum Surface: Sendable, Hashable {
        case terminal
        /// A page of this program, in a browser.
        case page
    }

    package struct Wishes: Sendable, Hashable {
        /// The methods that this prompt supports; the broker chooses.
        package var methods = BrokerProtocol.SignInMethod.allCases
        package var loginHint: String?
        /// The scopes that the calling app wants tokens for. The broker drops scopes that no manifest has.
        package var scopes: [String] = []
        package var surface: Surface
        /// Whether a person who is signed in has to authenticate again.
        package var asksAgain = false
        /// The app that asks, if it is known.
        package var app: String?
        /// The claims that the provider has to meet, as JSON.
        package var claims: String?
        /// The language of the session; `nil` leaves the choice for pages to the browser.
        package var language: Language?

        /// Whether a page may be needed.
        var needsListener: Bool { surface == .page || methods.contains(.browser) }
    }

    /// The address at which this program serves pages.
    package struct Place: Sendable, Hashable {
        package let port: UInt16
        /// The unguessable path of the page, so that only a user who sees the window can sign in.
        package let path: String
        /// The reason why the provider's page cannot redirect here: each port that the provider accepts is in use.
        package let problem: SharedDeviceError?

        package var host: String { "127.0.0.1:\(port)" }
        package var address: String { "http://\(host)\(path)" }
        package static let callback = "/callback"
        var redirect: String? { problem == nil ? "http://\(host)\(Self.callback)" : nil }
    }

    /// A browser's request in flight.
    package struct Visitor: Sendable, Hashable {
        package let number: UInt64
        package init(_ number: UInt64) { self.number = number }
    }

    package enum Event: Sendable {
        case started
        case listening(Place)
        case visited(Visitor, LoopbackRequest)
        /// The broker has begun the sign-in.
        case opened(OpenRequest)
        /// The user's input at the terminal; `nil` at its end.
        case typed(Credentials?)
        case signedIn(SignedIn)
        /// The user has not finished on the other device.
        case pending
        /// The broker or this program failed to perform the last effect.
        case failed(SharedDeviceError)
        case browserClosed
        case timeOver
        /// The broker or its bus has ended, and the sign-in is lost.
        case brokerGone
        /// The program was interrupted, for instance by Ctrl-C.
        case interrupted
    }

    package typealias Credentials = SignInRequest

    /// The data that the broker needs to complete a sign-in.
    package enum Answer: Sendable {
        case credentials(Credentials)
        /// The query with which the provider redirected the browser.
        case query(String)
    }

    package enum Effect: Sendable {
        case listen
        case begin(redirect: String?)
        case startTimer(Duration)
        case askAtTerminal(username: String?, takesBadge: Bool, notice: String?)
        case showAtTerminal(DeviceCode)
        case openBrowser(address: String)
        case complete(OpenRequest, Answer)
        case awaitPerson(OpenRequest)
        case respond(Visitor, ListenerResponse)
        case cancel(OpenRequest)
        case finish(Outcome)
    }

    package enum Outcome: Sendable, Hashable {
        case signedIn(SignedIn)
        case failed(SharedDeviceError)
    }

    private enum Phase {
        case starting
        /// The broker was asked to begin.
        case opening
        /// The user is being asked.
        case asking(OpenRequest)
        /// The broker has the user's input.
        case completing(OpenRequest, Visitor?)
        case ended
    }

    private let wishes: Wishes
    private var texts: PromptTexts
    private var phase = Phase.starting
    private var place: Place?
    /// The name that was typed last.
    private var username: String
    /// The badge that was read at the page, and whose PIN is asked for.
    private var badge: Secret?
    /// The text for input that the broker rejects.
    private var wrong = PromptTexts.Key.wrongPassword
    /// The reason why the user is asked again.
    private var notice: String?
    package private(set) var hasShownFailure = false
    /// The response for a page that reloads after the end: the time was over, or the broker has ended. `nil` if there
    /// is no page, or the sign-in ended otherwise.
    package private(set) var lastPage: ListenerResponse?
    /// The user's remaining time at the next event; `nil` before there is a request.
    package var timeLeft: Duration?

    package init(_ wishes: Wishes) {
        self.wishes = wishes
        texts = PromptTexts(wishes.language ?? .english)
        username = wishes.loginHint ?? ""
    }

    // MARK: Events

    /// Returns the effects of an event; none for a late event.
    package mutating func handle(_ event: Event) -> [Effect] {
        switch (phase, event) {
        case (.ended, .visited(let visitor, let request)):
            let isPage = request.path == place?.path || request.path == Place.callback
            return [.respond(visitor, isPage ? lastPage ?? refusal : refusal)]
        case (.ended, _): return []
        case (_, .visited(let visitor, let request)): return visit(visitor, request)
        case (.starting, .started): return wishes.needsListener ? [.listen] : begin()
        case (.starting, .listening(let place)):
            self.place = place
            if let problem = place.problem, wishes.methods == [.browser] { return failed(problem) }
            return begin()
        case (.opening, .opened(let request)): return ask(request)
        case (.asking(let request), .typed(let credentials?)): return complete(request, .credentials(credentials), nil)
        case (.asking(let request), .pending): return [.awaitPerson(request)]
        case (_, .signedIn(let person)): return signedIn(person)
        case (_, .failed(let error)): return failed(error)
        case (_, .typed(nil)), (_, .browserClosed), (_, .interrupted):
            return cancel(.userCanceled, "the sign-in was cancelled")
        case (_, .timeOver): return cancel(.loginExpired, "the time for this sign-in is over; begin again")
        case (.opening, .brokerGone), (.asking, .brokerGone):
            return cancel(
                .brokerUnavailable,
                "the broker of this device has ended, and this sign-in with it; begin again"
            )
        // While the broker has the user's input, the response to that call tells the result.
        case (_, .started), (_, .listening), (_, .opened), (_, .typed), (_, .pending), (_, .brokerGone): return []
        }
    }

    private mutating func begin() -> [Effect] {
        phase = .opening
        let redirect = wishes.methods.contains(.browser) ? place?.redirect : nil
        return [.begin(redirect: redirect)]
    }

    private mutating func ask(_ request: OpenRequest) -> [Effect] {
        phase = .asking(request)
        let isFirst = notice == nil
        let timer = isFirst ? [Effect.startTimer(request.lifetime)] : []
        switch request.way {
        case .password where wishes.surface == .terminal:
            let name = username.isEmpty ? nil : username
            return timer + [.askAtTerminal(username: name, takesBadge: request.takesBadge, notice: notice)]
        case .password: return timer + (isFirst ? openPage() : [])
        case .browser(let address): return timer + [.openBrowser(address: address)]
        case .deviceCode(let code):
            let show = wishes.surface == .terminal ? [Effect.showAtTerminal(code)] : openPage()
            return timer + show + [.awaitPerson(request)]
        }
    }

    private func openPage() -> [Effect] { place.map { [.openBrowser(address: $0.address)] } ?? [] }

    private mutating func complete(_ request: OpenRequest, _ answer: Answer, _ visitor: Visitor?) -> [Effect] {
        badge = nil
        if case .credentials(let credentials) = answer {
            username = credentials.username ?? username
            wrong = if case .badge = credentials { .wrongBadge } else { .wrongPassword }
        }
        phase = .completing(request, visitor)
        return [.complete(request, answer)]
    }

    // MARK: Ends

    private mutating func signedIn(_ person: SignedIn) -> [Effect] {
        let text = texts[.signedIn, ["username": person.username]]
        let page = ListenerResponse(page: .message(texts[.signedInTitle], text, texts))
        defer { phase = .ended }
        return respond(page) + [.finish(.signedIn(person))]
    }

    private mutating func failed(_ error: SharedDeviceError) -> [Effect] {
        guard case .completing(let request, let visitor) = phase, request.way == .password, Self.isForPerson(error.code)
        else {
            let page = notSignedIn(error)
            let answers = respond(page)
            hasShownFailure = !answers.isEmpty
            if error.code == .loginExpired, !hasShownFailure, isOnPage { lastPage = page }
            defer { phase = .ended }
            return answers + cancelOpen() + [.finish(.failed(error))]
        }
        notice = texts.text(of: error, wrong: wrong)
        // The broker keeps the same request until the user is authenticated.
        guard let visitor else { return ask(request) }
        phase = .asking(request)
        return [.respond(visitor, form())]
    }

    /// Whether the user can try again.
    private static func isForPerson(_ code: SharedDeviceError.Code) -> Bool {
        switch code {
        case .authenticationFailed, .currentAccountMismatch, .tooManyAttempts, .tenantMismatch, .userNotAllowed,
            .cleanupPending:
            true
        default: false
        }
    }

    private mutating func cancel(_ code: SharedDeviceError.Code, _ message: String) -> [Effect] {
        let error = SharedDeviceError(code, attempted: "sign in", message: message)
        let page = notSignedIn(error)
        if code != .userCanceled, isOnPage { lastPage = page }
        defer { phase = .ended }
        return respond(page) + (code == .brokerUnavailable ? [] : cancelOpen()) + [.finish(.failed(error))]
    }

    private func notSignedIn(_ error: SharedDeviceError) -> ListenerResponse {
        ListenerResponse(page: .message(texts[.notSignedIn], texts.text(of: error), texts))
    }

    private var refusal: ListenerResponse { .refusal(404, texts) }

    private func cancelOpen() -> [Effect] { openRequest.map { [.cancel($0)] } ?? [] }

    /// Whether the user is at a page that this program serves or that redirects to it.
    private var isOnPage: Bool {
        switch openRequest?.way {
        case .browser: true
        case .password, .deviceCode: wishes.surface == .page
        case nil: false
        }
    }

    /// Responds to the request that waits for the result.
    private func respond(_ response: ListenerResponse) -> [Effect] {
        guard case .completing(_, let visitor?) = phase else { return [] }
        return [.respond(visitor, response)]
    }

    // MARK: Visitors

    private mutating func visit(_ visitor: Visitor, _ request: LoopbackRequest) -> [Effect] {
        // Other local programs can reach the port, but do not know the path.
        if request.path == place?.path { adoptLanguage(of: request) }
        guard let place, let open = openRequest else { return [.respond(visitor, refusal)] }
        switch (open.way, request.method) {
        case (.password, _) where wishes.surface == .terminal || request.path != place.path: break
        case (.password, .get): return [.respond(visitor, form())]
        case (.password, .post): return take(request.form, visitor, open)
        case (.deviceCode(let code), .get) where request.path == place.path:
            let picture = QRCode(code)?.svg(texts)
            return [.respond(visitor, ListenerResponse(page: .deviceCode(code, picture: picture, texts)))]
        case (.browser(let address), .get) where request.path == Place.callback:
            guard case .asking = phase, let query = request.query, Self.answers(query, address) else { break }
            adoptLanguage(of: request)
            return complete(open, .query(query), visitor)
        case (.browser, _), (.deviceCode, _): break
        }
        return [.respond(visitor, refusal)]
    }

    /// Uses the browser's language, unless the session has one.
    private mutating func adoptLanguage(of request: LoopbackRequest) {
        guard wishes.language == nil else { return }
        texts = PromptTexts(Language(accepted: request.languages) ?? .english)
    }

    private var openRequest: OpenRequest? {
        switch phase {
        case .asking(let request), .completing(let request, _): request
        case .starting, .opening, .ended: nil
        }
    }

    /// Whether the query has the address's `state`. Otherwise any page in the browser could end the sign-in. The broker
    /// checks it again.
    private static func answers(_ query: String, _ address: String) -> Bool {
        let asked = address.split(separator: "?", maxSplits: 1).dropFirst().first.map(String.init) ?? ""
        guard let state = FormFields.decode(asked)?["state"] else { return false }
        return FormFields.decode(query)?["state"] == state
    }

    private mutating func take(_ form: String, _ visitor: Visitor, _ open: OpenRequest) -> [Effect] {
        guard case .asking = phase else {
            let page = Page.message(texts[.busyTitle], texts[.busy], texts)
            return [.respond(visitor, ListenerResponse(409, page: page))]
        }
        let fields = (FormFields.decode(form) ?? [:]).filter { !$0.value.isEmpty }
        if let number = badge, let pin = fields["pin"] {
            return complete(open, .credentials(.badge(number: number, pin: Secret(pin))), visitor)
        }
        if let name = fields["username"], let password = fields["password"] {
            return complete(open, .credentials(Credentials(username: name, password: Secret(password))), visitor)
        }
        // The number of the badge is on no page, so that the next visitor cannot read it.
        badge = open.takesBadge ? fields["badge"].map { Secret($0) } : nil
        username = fields["username"] ?? username
        notice = badge == nil && fields["otherWay"] == nil ? texts[.incomplete] : nil
        return [.respond(visitor, self.form())]
    }

    private func form() -> ListenerResponse {
        let takesBadge = openRequest?.takesBadge ?? false
        // A person whom an app has named may still show a badge.
        let isKnown = !username.isEmpty && (!takesBadge || notice != nil && wrong == .wrongPassword)
        let content: Page.Form = badge == nil ? .name(username, isKnown: isKnown, takesBadge: takesBadge) : .pin
        let action = place?.path ?? ""
        return ListenerResponse(page: .form(content, action: action, notice: notice, timeLeft: timeLeft, texts))
    }
}

extension SignInPrompt.Wishes { package init(surface: SignInPrompt.Surface) { self.surface = surface } }
