import HTTPListening
import Identity
@_spi(Extensions) import SharedDevice
import Testing

@testable import SignInPrompt

@Suite("The state machine of the prompt")
struct SignInPromptTests {
    private typealias Prompt = SignInPrompt

    private let place = Prompt.Place(port: 4711, path: "/0123", problem: nil)
    private let ada = SignedIn(username: "ada", epoch: 7)
    private let visitor = Prompt.Visitor(1)
    private let login = "https://login.example/authorize?client_id=device&state=s1"

    /// A prompt for which the broker has begun a sign-in by this method.
    private func begun(
        _ way: OpenRequest.Way,
        _ surface: Prompt.Surface,
        hint: String? = nil,
        takesBadge: Bool = false
    ) -> (prompt: Prompt, effects: [Prompt.Effect]) {
        var prompt = Prompt(Prompt.Wishes(loginHint: hint, surface: surface))
        _ = prompt.handle(.started)
        _ = prompt.handle(.listening(place))
        let effects = prompt.handle(.opened(OpenRequest(name: "r", way: way, takesBadge: takesBadge)))
        return (prompt, effects)
    }

    private func refusal(_ code: SharedDeviceError.Code, _ message: String = "no") -> Prompt.Event {
        .failed(SharedDeviceError(code, attempted: "sign in", message: message))
    }

    private func form(_ name: String, _ password: String) -> Prompt.Event {
        posted("username=\(name)&password=\(password)")
    }

    private func posted(_ form: String) -> Prompt.Event {
        .visited(visitor, LoopbackRequest(path: place.path, method: .post, form: form))
    }

    private func visited(_ path: String, query: String? = nil) -> Prompt.Event {
        .visited(visitor, LoopbackRequest(path: path, query: query))
    }

    @Test("a page is served only if it is needed, and a browser needs the provider's ports")
    func listener() {
        let problem = SharedDeviceError(.providerMisconfigured, attempted: "serve", message: "no port is free")
        let elsewhere = Prompt.Place(port: 4712, path: "/0123", problem: problem)
        let cases: [(wishes: Prompt.Wishes, place: Prompt.Place?, steps: [String])] = [
            (.init(methods: [.password], surface: .terminal), nil, ["begin -"]),
            (.init(methods: [.password], surface: .page), place, ["listen", "begin -"]),
            (.init(surface: .terminal), place, ["listen", "begin http://127.0.0.1:4711/callback"]),
            // With the provider's ports in use the prompt uses another method.
            (.init(surface: .page), elsewhere, ["listen", "begin -"]),
        ]
        for (wishes, place, steps) in cases {
            var prompt = Prompt(wishes)
            var effects = words(prompt.handle(.started))
            if let place { effects += words(prompt.handle(.listening(place))) }
            #expect(effects == steps)
        }
        var browser = Prompt(Prompt.Wishes(methods: [.browser], surface: .page))
        _ = browser.handle(.started)
        #expect(words(browser.handle(.listening(elsewhere))).last == "finish provider_misconfigured")
        let error = #expect(throws: SharedDeviceError.self) {
            try BrowserChoice(nil, arguments: [], exists: { _ in false })
        }
        #expect(error?.message.hasPrefix("no browser is installed; install one of ") == true)
    }

    @Test("the terminal asks until the password is right, or cannot fix the error")
    func terminal() {
        let (wrong, right) = (credentials("wrong"), credentials("right"))
        var (prompt, effects) = begun(.password, .terminal, hint: "ada")
        #expect(words(effects) == ["timer", "ask ada -"])
        #expect(words(prompt.handle(.typed(wrong))) == ["complete ada wrong"])
        #expect(words(prompt.handle(refusal(.authenticationFailed, "is wrong"))) == ["ask ada is wrong"])
        #expect(words(prompt.handle(.typed(wrong))) == ["complete ada wrong"])
        #expect(words(prompt.handle(refusal(.tooManyAttempts, "in 5 s"))) == ["ask ada in 5 s"])
        #expect(words(prompt.handle(.typed(right))) == ["complete ada right"])
        #expect(words(prompt.handle(.signedIn(ada))) == ["finish ada 7"])
        #expect(words(prompt.handle(.browserClosed)) == [])
        for code in [SharedDeviceError.Code.brokerUnavailable, .accountAlreadySignedIn, .loginExpired] {
            var (hopeless, _) = begun(.password, .terminal)
            _ = hopeless.handle(.typed(right))
            #expect(words(hopeless.handle(refusal(code))) == ["cancel", "finish \(code)"])
        }
    }

    private func credentials(_ password: String) -> Prompt.Credentials {
        Prompt.Credentials(username: "ada", password: Secret(password))
    }

    @Test("the page shows the form again, with the reason, after a wrong password")
    func page() {
        var (prompt, effects) = begun(.password, .page, hint: "ada")
        #expect(words(effects) == ["timer", "open http://127.0.0.1:4711/0123"])
        let shown = words(prompt.handle(visited(place.path)))
        #expect(shown.first?.contains(#"value="ada""#) == true)
        #expect(words(prompt.handle(form("gr%C3%A4ce", "a+b%26c"))) == ["complete gräce a b&c"])
        let again = words(prompt.handle(refusal(.authenticationFailed, "wrong & <b>")))
        #expect(again.count == 1 && again.first?.contains("wrong &amp; &lt;b&gt;") == true)
        #expect(again.first?.contains("a b&amp;c") == false, "the page has the password")
        _ = prompt.handle(form("grace", "wrong"))
        #expect(words(prompt.handle(refusal(.tooManyAttempts, "try again in 5 s"))).first?.contains("in 5 s") == true)
        #expect(words(prompt.handle(form("grace", "right"))) == ["complete grace right"])
        let end = words(prompt.handle(.signedIn(ada)))
        #expect(end.count == 2 && end.first?.contains("ada is signed in") == true && end.last == "finish ada 7")
    }

    @Test("the page asks for the PIN of a badge, whose number no page shows")
    func badge() throws {
        var (prompt, _) = begun(.password, .page, hint: "ada", takesBadge: true)
        let first = try #require(words(prompt.handle(visited(place.path))).first)
        let field = try #require(first.firstRange(of: /<input id="badge"[^>]* autofocus>/))
        #expect(try field.lowerBound < #require(first.firstRange(of: #"<input id="username""#)).lowerBound)
        func read() {
            let pages = words(prompt.handle(posted("badge=0041-ada")))
            #expect(pages.count == 1 && pages[0].contains(#"<input id="pin""#) && !pages[0].contains(#"id="password""#))
            #expect(!pages[0].contains("0041-ada"))
        }
        read()
        let empty = words(prompt.handle(posted("pin=")))
        #expect(empty.first?.contains(#"<input id="badge""#) == true)
        #expect(words(prompt.handle(posted("pin=1234"))).first?.hasPrefix("200 ") == true, "there is no badge any more")
        read()
        #expect(words(prompt.handle(visited(place.path))).first?.contains(#"<input id="pin""#) == true)
        #expect(words(prompt.handle(posted("otherWay=1"))).first?.contains(#"id="notice""#) == false)
        #expect(words(prompt.handle(form("ada", "right"))) == ["complete ada right"])
        let named = words(prompt.handle(refusal(.authenticationFailed, "is wrong")))
        #expect(named.first?.contains(/<input id="password"[^>]* autofocus>/) == true)
        read()
        #expect(words(prompt.handle(posted("pin=12+34"))) == ["complete badge 0041-ada 12 34"])
        let again = words(prompt.handle(refusal(.authenticationFailed, "is wrong")))
        #expect(again.first?.contains("is wrong") == true)
        #expect(again.first?.contains(/<input id="badge"[^>]* autofocus>/) == true, "the reader types there")
    }

    @Test("page and terminal take a badge only if the broker takes badges")
    func noBadge() {
        var (page, _) = begun(.password, .page)
        #expect(words(page.handle(visited(place.path))).first?.contains("badge") == false)
        let answer = words(page.handle(posted("badge=0041")))
        #expect(answer.count == 1 && answer[0].contains(#"<input id="password""#))
        var (terminal, effects) = begun(.password, .terminal, takesBadge: true)
        #expect(words(effects) == ["timer", "ask badge - -"])
        let badge = Prompt.Credentials.badge(number: Secret("0041"), pin: Secret("1234"))
        #expect(words(terminal.handle(.typed(badge))) == ["complete badge 0041 1234"])
        #expect(words(terminal.handle(refusal(.authenticationFailed, "no"))) == ["ask badge - no"])
    }

    @Test("an empty, malformed or second form is not sent to the broker")
    func unusableForms() {
        var (prompt, _) = begun(.password, .page)
        for text in [
            "", "username=ada", "username=ada&password=", "username=ada&username=grace&password=p", "=&&=", "%",
        ] {
            let effects = words(prompt.handle(posted(text)))
            #expect(effects.count == 1 && effects[0].hasPrefix("200 "), "\(text): \(effects)")
        }
        // A second form has to wait while the first is checked.
        _ = prompt.handle(form("ada", "right"))
        #expect(words(prompt.handle(form("grace", "right"))).first?.hasPrefix("409 ") == true)
    }

    @Test("the page is at its own path, and only the first redirect is sent to the broker")
    func callback() {
        var (prompt, effects) = begun(.browser(address: login), .terminal)
        #expect(words(effects) == ["timer", "open \(login)"])
        let notOurs = [
            LoopbackRequest(path: "/callback"), LoopbackRequest(path: "/callback", query: "code=c"),
            LoopbackRequest(path: "/callback", query: "error=access_denied&state=other"),
            LoopbackRequest(path: "/callback", query: "state=s1&state=s1&code=c"),
            LoopbackRequest(path: "/favicon.ico", query: "state=s1"), LoopbackRequest(path: place.path),
            LoopbackRequest(path: "/callback", method: .post, query: "state=s1&code=c"),
        ]
        for request in notOurs {
            #expect(words(prompt.handle(.visited(visitor, request))).first?.hasPrefix("404 ") == true, "\(request)")
        }
        let answer = LoopbackRequest(path: "/callback", query: "code=c&state=s1")
        #expect(words(prompt.handle(.visited(visitor, answer))) == ["complete code=c&state=s1"])
        #expect(words(prompt.handle(.visited(visitor, answer))).first?.hasPrefix("404 ") == true)
        let end = words(prompt.handle(refusal(.authenticationFailed, "belongs to another sign-in")))
        #expect(end.first?.contains("belongs to another sign-in") == true)
        #expect(Array(end.dropFirst()) == ["cancel", "finish authentication_failed"])
        #expect(prompt.hasShownFailure)
        // A sign-in at the terminal has no page.
        for path in ["/", "/favicon.ico", "/callback", "/0123/", "/012"] {
            var (page, _) = begun(.password, .page)
            #expect(words(page.handle(visited(path))).first?.hasPrefix("404 ") == true)
        }
        var (terminal, _) = begun(.password, .terminal)
        #expect(words(terminal.handle(form("ada", "right"))).first?.hasPrefix("404 ") == true)
    }

    @Test("a code is shown, and the broker is polled until the user has finished")
    func deviceCode() {
        let code = DeviceCode(code: "ABCD", address: "https://login.example/device")
        var (prompt, effects) = begun(.deviceCode(code), .terminal)
        #expect(words(effects) == ["timer", "show ABCD", "await"])
        #expect(words(prompt.handle(.pending)) == ["await"])
        #expect(words(prompt.handle(.signedIn(ada))) == ["finish ada 7"])
        var (onPage, opening) = begun(.deviceCode(code), .page)
        #expect(words(opening) == ["timer", "open http://127.0.0.1:4711/0123", "await"])
        let page = words(onPage.handle(visited(place.path))).first ?? ""
        for text in ["ABCD", "<svg", "login.example", "Never enter a code that another person reads out to you"] {
            #expect(page.contains(text), "\(text)")
        }
    }

    @Test("closing the window, the end of input and Ctrl-C cancel the sign-in")
    func cancelled() {
        for event in [Prompt.Event.browserClosed, .typed(nil), .interrupted] {
            var (prompt, _) = begun(.password, .page)
            #expect(words(prompt.handle(event)) == ["cancel", "finish user_canceled"])
            #expect(words(prompt.handle(.signedIn(ada))) == [])
            #expect(words(prompt.handle(form("ada", "right"))).first?.hasPrefix("404 ") == true)
        }
        var early = Prompt(Prompt.Wishes(surface: .terminal))
        _ = early.handle(.started)
        #expect(words(early.handle(.interrupted)) == ["finish user_canceled"])
        var (late, _) = begun(.password, .page)
        #expect(words(late.handle(.timeOver)) == ["cancel", "finish login_expired"])
    }

    @Test("an open page shows the end of the time when it reloads")
    func lastPage() {
        for way in [
            OpenRequest.Way.password, .browser(address: login), .deviceCode(DeviceCode(code: "c", address: login)),
        ] {
            for end in [Prompt.Event.timeOver, refusal(.loginExpired, "the time is over; begin again")] {
                var (prompt, _) = begun(way, .page)
                #expect(words(prompt.handle(end)).last == "finish login_expired")
                #expect(prompt.lastPage != nil && !prompt.hasShownFailure)
                for path in [place.path, "/callback"] {
                    let answer = words(prompt.handle(visited(path, query: "state=s1&code=c")))
                    #expect(answer.count == 1 && answer[0].hasPrefix("200 ") && answer[0].contains("begin again"))
                }
                let other = words(prompt.handle(visited("/other")))
                #expect(other.first?.hasPrefix("404 ") == true)
            }
        }
        // A terminal sign-in has no page, and a user who cancelled needs no message.
        var (terminal, _) = begun(.password, .terminal)
        _ = terminal.handle(.timeOver)
        var (cancelled, _) = begun(.password, .page)
        _ = cancelled.handle(.browserClosed)
        #expect(terminal.lastPage == nil && cancelled.lastPage == nil)
    }

    @Test("the form reloads at the time limit, however often it was sent before")
    func reload() {
        var (prompt, _) = begun(.password, .page)
        prompt.timeLeft = .milliseconds(540_300)
        let first = words(prompt.handle(visited(place.path)))
        #expect(first.first?.contains(#"http-equiv="refresh" content="541; url=/0123""#) == true)
        _ = prompt.handle(form("ada", "wrong"))
        prompt.timeLeft = .seconds(-3)
        let second = words(prompt.handle(refusal(.authenticationFailed, "is wrong")))
        #expect(second.first?.contains(#"http-equiv="refresh" content="1; url=/0123""#) == true)
    }

    // MARK: Helpers

    /// Effects as texts, for comparison.
    private func words(_ effects: [Prompt.Effect]) -> [String] {
        effects.map { effect in
            switch effect {
            case .listen: "listen"
            case .begin(let redirect): "begin \(redirect ?? "-")"
            case .startTimer: "timer"
            case .askAtTerminal(let name, let takesBadge, let notice):
                "ask \(takesBadge ? "badge " : "")\(name ?? "-") \(notice ?? "-")"
            case .showAtTerminal(let code): "show \(code.code)"
            case .openBrowser(let address): "open \(address)"
            case .complete(_, .query(let query)): "complete \(query)"
            case .complete(_, .credentials(.password(let name, let password))):
                "complete \(name) \(password?.text ?? "-")"
            case .complete(_, .credentials(.badge(let number, let pin))): "complete badge \(number.text) \(pin.text)"
            case .complete(_, .credentials(.pin(let name, let pin))): "complete PIN \(name) \(pin.text)"
            case .awaitPerson: "await"
            case .respond(_, let response): "\(response.status) \(response.body)"
            case .cancel: "cancel"
            case .finish(.signedIn(let person)): "finish \(person.username) \(person.epoch)"
            case .finish(.failed(let error)): "finish \(error.code)"
            }
        }
    }
}
