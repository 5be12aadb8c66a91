import ArgumentParser
import Basics
import CLinux
import CommandParts
import DBus
import FoundationEssentials
import Glibc
import NotifyCenter
@_spi(Extensions) import SharedDevice
import SignInPrompt

@main
struct SharedDeviceSignInCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared-device-sign-in",
        abstract: "Asks a person to sign in on a shared device, on behalf of its apps.",
        discussion: """
            Where the device has its own directory of users, it asks for name and password: at the terminal, or on a page in a browser. Where the \
            organisation's provider signs people in, it opens the provider's page in a browser, or shows a code for another device. The browser \
            has a separate profile, which is deleted afterwards. Apps start this program, and never see the password. \
            $\(SignInProgram.loginHintVariable) is the name to offer, and $\(SignInProgram.claimsVariable) the claims that the provider has \
            to meet (JSON; OpenID Connect Core 1.0, section 5.5): all users of the machine can read a command line.
            Exit status: 0 signed in; 1 cancelled; 64 wrong usage; 65 another person is signed in already, or this device does not accept \
            this method; 69 the broker or the provider does not respond, or there is neither a terminal nor a display; 70 the broker failed; \
            75 not now, try again later; 77 refused; 78 provider and configuration do not match.
            """,
        version: ProjectVersion.line(of: "shared-device-sign-in")
    )

    enum Method: String, ExpressibleByArgument, CaseIterable {
        case browser
        case deviceCode = "device-code"
        case password

        var isAsked: BrokerProtocol.SignInMethod {
            switch self {
            case .browser: .browser
            case .deviceCode: .deviceCode
            case .password: .password
            }
        }
    }

    @Option(help: "How to sign in; otherwise as the device is set up: browser, device-code or password.")
    var method: Method?

    @Option(
        parsing: .unconditionalSingleValue,
        help: ArgumentHelp(
            "A scope to request from the organisation's provider in addition to oidcScopes; may be repeated.",
            discussion: "Scopes that no app's manifest has are left out.",
            valueName: "scope"
        )
    )
    var scope: [String] = []

    @Flag(help: "Ask on a page in a browser, even if there is a terminal.")
    var page = false

    @Flag(help: "Ask the person who is signed in to authenticate again; the session stays open.")
    var again = false

    @Option(help: ArgumentHelp("The app that asks: a user whom it is not for is refused.", valueName: "identifier"))
    var app: String?

    @Flag(help: "Write the result as JSON.")
    var json = false

    @Option(
        help: ArgumentHelp(
            "The browser: chromium, google-chrome, microsoft-edge or firefox; none: see below.",
            discussion: """
                The default is the first of them in $PATH. With none, this program prints the address of its page; a provider's page is opened \
                on another device, with a code.
                """,
            valueName: "program"
        )
    )
    var browser: String?

    @Option(
        parsing: .unconditionalSingleValue,
        help: ArgumentHelp("A further argument of the browser; may be repeated.", valueName: "argument")
    )
    var browserArgument: [String] = []

    @Option(
        help: ArgumentHelp("Seconds to wait for the cleanups of earlier sessions, 60 at most.", valueName: "seconds")
    )
    var wait: Double = 15

    @Option(
        help: ArgumentHelp(
            "The bus that the broker serves: session, system, or an address.",
            discussion: "Otherwise $\(Bus.environmentVariable); else the session bus.",
            valueName: "bus"
        )
    )
    var bus: String?

    @Flag(name: .customLong(BrowserGuard.option), help: .hidden)
    var isGuard = false

    func validate() throws {
        guard (0...60).contains(wait) else { throw ValidationError("--wait takes 0 to 60 seconds") }
        guard method != .browser || browser != Self.noBrowser else {
            throw ValidationError("--method browser needs a browser that may be started; leave out --browser none")
        }
    }

    func run() async throws {
        signal(SIGPIPE, SIG_IGN)
        // A core dump would contain the password, and the browser inherits the limit. Not 0: if a program collects
        // cores (a core_pattern with “|”), the kernel ignores every limit but 1.
        var none = rlimit(rlim_cur: 1, rlim_max: 1)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        if isGuard {
            let root = BrowserProfile.root(environment: ProcessInfo.processInfo.environment, user: geteuid())
            return await BrowserGuard.watch(root) { Self.warn($0) }
        }
        let outcome: SignInPrompt.Outcome
        do throws(SharedDeviceError) {
            outcome = try await signIn()
        } catch {
            outcome = .failed(error)
        }
        try report(outcome)
    }

    private func signIn() async throws(SharedDeviceError) -> SignInPrompt.Outcome {
        let end: EndSignals
        do {
            end = try EndSignals([SIGINT, SIGTERM, SIGHUP, SIGQUIT])
        } catch {
            throw SharedDeviceError(.brokerFailed, attempted: "sign in", message: "\(error)")
        }
        var variables = ProcessInfo.processInfo.environment
        let loginHint = variables.removeValue(forKey: SignInProgram.loginHintVariable).flatMap { $0.isEmpty ? nil : $0 }
        let claims = variables.removeValue(forKey: SignInProgram.claimsVariable)
        // The browser and its guard inherit the environment.
        for name in [SignInProgram.loginHintVariable, SignInProgram.claimsVariable] { unsetenv(name) }
        let terminal = TerminalForm(Self.texts).flatMap { $0.isInForeground ? $0 : nil }
        // A stop during the password prompt would leave the shell echoing the password.
        if terminal != nil { signal(SIGTSTP, SIG_IGN) }
        let profiles = BrowserProfile.root(environment: variables, user: geteuid())
        await BrowserProfile.removeLeftovers(of: profiles) { Self.warn($0) }
        let browser = try chosenBrowser(variables, needsPage: page || terminal == nil)
        var wishes = SignInPrompt.Wishes(surface: page || terminal == nil ? .page : .terminal)
        wishes.methods = methods(with: browser)
        wishes.loginHint = loginHint
        wishes.scopes = scope
        wishes.asksAgain = again
        wishes.app = app
        wishes.claims = claims
        wishes.language = Self.language
        let runner = PromptRunner(
            wishes,
            browser: browser,
            profiles: profiles,
            terminal: terminal,
            patience: .seconds(wait),
            say: { Self.warn($0) },
            // Not earlier: a broker of the same user, on a session bus, can identify the calling program only while
            // other processes may inspect it.
            hasBegun: { CLinux_keepMemoryPrivate() }
        )
        let broker = try BrokerConversation(bus: bus.map(Bus.init(name:)) ?? .fromEnvironment)
        let interruption = Task { await end.first() }
        return await runner.run(broker) { await interruption.value }
    }

    private static let language = Language(environment: ProcessInfo.processInfo.environment)
    private static let texts = PromptTexts(language ?? .english)

    private static let noBrowser = "none"

    /// The sign-in methods that this prompt can show, in order of preference.
    private func methods(with browser: BrowserChoice?) -> [BrokerProtocol.SignInMethod] {
        if let method { return [method.isAsked] }
        // In the user's own browser, the provider's cookie would remain and sign the next user in.
        return browser == nil ? [.password, .deviceCode] : [.password, .browser, .deviceCode]
    }

    /// The browser; `nil` if the user opens the page by hand.
    ///
    /// - Parameter needsPage: whether a page is the only way to ask.
    private func chosenBrowser(
        _ variables: [String: String],
        needsPage: Bool
    ) throws(SharedDeviceError) -> BrowserChoice? {
        if browser == Self.noBrowser { return nil }
        let isBrowserNeeded = needsPage || browser != nil || method == .browser
        let isHeadless = browserArgument.contains { $0.hasPrefix("--headless") }
        let hasDisplay = ["WAYLAND_DISPLAY", "DISPLAY"].contains { variables[$0]?.isEmpty == false }
        guard hasDisplay || isHeadless else {
            // A sign-in at the terminal or by device code needs no display.
            guard isBrowserNeeded else { return nil }
            let message =
                needsPage
                ? "there is neither a terminal nor a display; run shared-device-sign-in in a terminal or on a desktop"
                : "a browser needs a display, and there is none; leave --method and --browser out, or run "
                    + "shared-device-sign-in on a desktop"
            throw SharedDeviceError(.interactionRequired, attempted: "ask a person to sign in", message: message)
        }
        do throws(SharedDeviceError) {
            return try BrowserChoice(browser, arguments: browserArgument)
        } catch {
            guard isBrowserNeeded else { return nil }
            throw error
        }
    }

    // MARK: The result

    private struct Result: Encodable {
        var username: String?
        var epoch: UInt64?
        var code: String?
        var message: String?
    }

    private func report(_ outcome: SignInPrompt.Outcome) throws {
        let status: CInt
        let result: Result
        switch outcome {
        case .signedIn(let person):
            status = 0
            result = Result(username: person.username, epoch: person.epoch)
            if !json { print(Self.texts[.terminalSignedIn, ["username": person.username]]) }
        case .failed(let error):
            status = Self.status(error)
            result = Result(code: error.code.description, message: error.message)
            if !json { Self.warn(Self.texts.language == .english ? "\(error)" : Self.texts.text(of: error)) }
        }
        if json {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            print(String(decoding: try encoder.encode(result), as: UTF8.self))
        }
        throw ExitCode(status)
    }

    private static func status(_ error: SharedDeviceError) -> CInt {
        switch error.code {
        case .userCanceled: EXIT_FAILURE
        case .interactionRequired: EX_UNAVAILABLE
        case .accountAlreadySignedIn, .notSharedDevice, .cleanupRequired, .appNotEligible: EX_DATAERR
        case .scopesDeclined: EX_CONFIG
        default: error.exitStatus
        }
    }

    private static func warn(_ text: String) {
        let line = Array("shared-device-sign-in: \(text)\n".utf8)
        // The line is lost if standard error is closed.
        _ = write(STDERR_FILENO, line, line.count)
    }
}
