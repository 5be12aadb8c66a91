import CommandParts
import DBus
@_spi(Extensions) import SharedDevice

/// Performs the effects of ``SignInPrompt`` with sockets, a browser, the terminal and the broker.
package struct PromptRunner: Sendable {
    package var wishes: SignInPrompt.Wishes
    /// The browser for pages. With `nil` the user is told the address of this program's own pages. The wishes must then
    /// not contain ``BrokerProtocol/SignInMethod/browser``.
    package var browser: BrowserChoice?
    package var profiles: String
    package var terminal: TerminalForm?
    /// How long to wait for the cleanups of earlier sessions.
    package var patience: Duration
    package var say: @Sendable (String) -> Void
    /// Called after the broker has begun the sign-in and identified this program, and before a secret is in memory.
    package var hasBegun: @Sendable () -> Void

    /// How long the page of a failed sign-in stays open.
    private static let reading = Duration.seconds(30)

    package init(
        _ wishes: SignInPrompt.Wishes,
        browser: BrowserChoice?,
        profiles: String,
        terminal: TerminalForm?,
        patience: Duration = .seconds(15),
        say: @escaping @Sendable (String) -> Void,
        hasBegun: @escaping @Sendable () -> Void = {}
    ) {
        self.wishes = wishes
        self.browser = browser
        self.profiles = profiles
        self.terminal = terminal
        self.patience = patience
        self.say = say
        self.hasBegun = hasBegun
    }

    private var texts: PromptTexts { PromptTexts(wishes.language ?? .english) }

    /// The resources of a sign-in in progress.
    private struct Open {
        var listener: LoopbackListener?
        var window: BrowserWindow?
        var end: ContinuousClock.Instant?
        /// Calls whose results are not needed after the end.
        var questions: [Task<Void, Never>] = []
    }

    /// Runs one sign-in to its end. On return its browser, listener and directory are gone, or the user has been told
    /// what remains.
    ///
    /// - Parameter interrupted: returns when the program is interrupted.
    package func run(
        _ broker: BrokerConversation,
        interrupted: @escaping @Sendable () async -> Void
    ) async -> SignInPrompt.Outcome {
        // The stream needs no limit, because its sources have limits: at most 32 visitors with one request each, one
        // event per call, and the ends of brokers.
        let (events, continuation) = AsyncStream.makeStream(of: SignInPrompt.Event.self)
        let happens: @Sendable (SignInPrompt.Event) -> Void = { continuation.yield($0) }
        let signals = Task {
            await interrupted()
            happens(.interrupted)
        }
        defer { signals.cancel() }
        let owner = broker.watch { happens(.brokerGone) }
        defer { withExtendedLifetime(owner) {} }
        var prompt = SignInPrompt(wishes)
        var open = Open()
        var outcome: SignInPrompt.Outcome?
        happens(.started)
        for await event in events {
            prompt.timeLeft = open.end.map { $0 - .now }
            for effect in prompt.handle(event) {
                if let end = await perform(effect, broker, owner, &open, happens) { outcome = end }
            }
            if outcome != nil { break }
        }
        for question in open.questions { question.cancel() }
        terminal?.stop()
        if prompt.lastPage != nil {
            await showEnd(prompt, open, events, happens)
            await open.listener?.close()
        } else {
            await open.listener?.close()
            if open.window != nil, case .failed(let error) = outcome, prompt.hasShownFailure {
                say(texts.text(of: error))
                await showEnd(prompt, open, events, happens)
            }
        }
        await close(open.window)
        let never = SharedDeviceError(.userCanceled, attempted: "sign in", message: "the sign-in was cancelled")
        return outcome ?? .failed(never)
    }

    /// Waits until the user has closed the window or had time to read it. A page that reloads shows that the sign-in is
    /// over.
    private func showEnd(
        _ prompt: SignInPrompt,
        _ open: Open,
        _ events: AsyncStream<SignInPrompt.Event>,
        _ happens: @escaping @Sendable (SignInPrompt.Event) -> Void
    ) async {
        var prompt = prompt
        let alarm = Task {
            try await Task.sleep(for: Self.reading)
            happens(.timeOver)
        }
        defer { alarm.cancel() }
        for await event in events {
            switch event {
            case .browserClosed, .interrupted, .timeOver: return
            case .visited:
                for case .respond(let visitor, let response) in prompt.handle(event) {
                    open.listener?.respond(visitor, response)
                    // A page opened by hand has now shown the result. Its closing cannot be detected.
                    if open.window == nil, response == prompt.lastPage { return }
                }
            default: continue
            }
        }
    }

    private func close(_ window: BrowserWindow?) async {
        do throws(SharedDeviceError) {
            try await window?.close()
        } catch {
            say("\(error)")
        }
    }

    // MARK: Effects

    private func perform(
        _ effect: SignInPrompt.Effect,
        _ broker: BrokerConversation,
        _ owner: NameOwner,
        _ open: inout Open,
        _ happens: @escaping @Sendable (SignInPrompt.Event) -> Void
    ) async -> SignInPrompt.Outcome? {
        func ask(_ question: @escaping @Sendable () async throws(SharedDeviceError) -> SignInPrompt.Event) {
            open.questions.append(
                Task {
                    do throws(SharedDeviceError) {
                        happens(try await question())
                    } catch {
                        happens(.failed(error))
                    }
                }
            )
        }
        switch effect {
        case .listen:
            do throws(SharedDeviceError) {
                let listener = try LoopbackListener(ports: try await broker.loopbackPorts(), problem: say) {
                    happens(.visited($0, $1))
                }
                open.listener = listener
                if let problem = listener.place.problem { say(problem.message) }
                happens(.listening(listener.place))
            } catch {
                happens(.failed(error))
            }
        case .begin(let redirect):
            var wishes = wishes
            // The provider's page could not redirect to this program.
            if redirect == nil { wishes.methods.removeAll { $0 == .browser } }
            ask { [wishes, patience, hasBegun] () throws(SharedDeviceError) in
                do throws(DBusError) {
                    try await owner.start()
                } catch {
                    throw SharedDeviceError(error, attempted: "begin a sign-in")
                }
                let request = try await broker.begin(wishes, redirect: redirect, patience: patience)
                hasBegun()
                return .opened(request)
            }
        case .startTimer(let lifetime):
            open.end = .now + lifetime
            open.questions.append(Task { if (try? await Task.sleep(for: lifetime)) != nil { happens(.timeOver) } })
        case .askAtTerminal(let username, let takesBadge, let notice):
            terminal?.ask(username: username, takesBadge: takesBadge, notice: notice) { happens(.typed($0)) }
        case .showAtTerminal(let code):
            let withPicture = terminal?.showsPictures == true
            for line in code.lines(withPicture: withPicture, texts) { terminal?.say(line) }
        case .openBrowser(let address):
            do throws(SharedDeviceError) {
                open.window = try await window(at: address, happens)
            } catch {
                happens(.failed(error))
            }
        case .complete(let request, let answer):
            ask { () throws(SharedDeviceError) in .signedIn(try await broker.complete(request, answer)) }
        case .awaitPerson(let request):
            ask { () throws(SharedDeviceError) in
                try await broker.awaitPerson(request).map(SignInPrompt.Event.signedIn) ?? .pending
            }
        case .respond(let visitor, let response): open.listener?.respond(visitor, response)
        case .cancel(let request): await broker.cancel(request)
        case .finish(let outcome): return outcome
        }
        return nil
    }

    private func window(
        at address: String,
        _ happens: @escaping @Sendable (SignInPrompt.Event) -> Void
    ) async throws(SharedDeviceError) -> BrowserWindow? {
        guard let browser else {
            say("open \(address)")
            return nil
        }
        let profile = try await BrowserProfile.make(in: profiles, warn: say)
        do throws(SharedDeviceError) {
            return try await BrowserWindow(browser, at: address, in: profile, texts) { status in
                // A browser that a signal ended was closed on purpose. Its own error status means that it could not
                // show the page.
                guard (1...128).contains(status) else { return happens(.browserClosed) }
                let error = SharedDeviceError(
                    .brokerFailed,
                    attempted: "show \(browser.program)",
                    message: "it ended by itself with status \(status); see whether it runs in this session"
                )
                happens(.failed(error))
            }
        } catch {
            // No browser is using the profile.
            try? await profile.remove()
            throw error
        }
    }
}
