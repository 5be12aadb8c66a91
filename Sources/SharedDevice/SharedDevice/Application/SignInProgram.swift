import Basics
public import DBus
import FoundationEssentials
import NotifyCenter

/// Runs `shared-device-sign-in`, the program that asks a person to sign in on the app's behalf. It returns the account,
/// and no secret.
@_spi(Extensions) public struct SignInProgram: Sendable {
    /// The environment variable that names another program, for tests and development. It is ignored in a program with
    /// more rights than its user.
    static let variable = "SHARED_DEVICE_SIGN_IN"
    /// The environment variable with the user name to offer. A command line would be readable by all users of the
    /// machine.
    @_spi(Extensions) public static let loginHintVariable = "SHARED_DEVICE_LOGIN_HINT"
    /// The environment variable with the claims, which may name a person, too.
    @_spi(Extensions) public static let claimsVariable = "SHARED_DEVICE_CLAIMS"
    /// The installation paths. `PATH` is not searched, because any program found there could ask people for their
    /// passwords.
    private static let places = ["/usr/bin/shared-device-sign-in", "/usr/local/bin/shared-device-sign-in"]
    /// Longer than the longest sign-in. The program itself ends earlier.
    private static let lifetime = Duration.seconds(1200)

    private let bus: Bus
    /// The program, which may be looked up in `PATH`; `nil` means the installed one.
    private let program: String?
    @_spi(Extensions) public var loginHint: String?
    /// The scopes that the app needs later: a provider may restrict later tokens to the scopes of the sign-in (RFC
    /// 6749, section 6).
    @_spi(Extensions) public var scopes: [String] = []
    /// Whether a person who is signed in has to authenticate again.
    @_spi(Extensions) public var asksAgain = false
    /// The app that asks.
    @_spi(Extensions) public var app: String?
    /// The claims that the provider has to meet, as JSON.
    @_spi(Extensions) public var claims: String?
    @_spi(Extensions) public var patience = Duration.seconds(15)
    @_spi(Extensions) public var showsPage = false
    @_spi(Extensions) public var grace = Duration.seconds(20)

    @_spi(Extensions) public init(_ program: String? = nil, bus: Bus) {
        self.program = program
        self.bus = bus
    }

    /// Runs the program to its end. Cancelling the task ends the program, and with it the sign-in. Throws the program's
    /// own error, or `interactionRequired` if there is no such program.
    func run(attempted: String) async throws(SharedDeviceError) -> SignedIn {
        let end: (status: Int32?, text: String)
        do throws(HelperProcess.Failure) {
            var settings = HelperProcess.Settings()
            // Its standard error, for instance about files that it cannot delete, goes to the app's standard error.
            settings.errors = .inherited
            settings.environment[Self.loginHintVariable] = loginHint
            settings.environment[Self.claimsVariable] = claims
            end = try await HelperProcess.output(
                of: try path(),
                arguments,
                settings,
                withErrors: false,
                patience: Self.lifetime,
                grace: grace
            )
        } catch {
            throw SharedDeviceError(.interactionRequired, attempted: attempted, message: error.description)
        }
        return try Self.result(status: end.status, text: end.text, attempted: attempted)
    }

    /// Like ``run(attempted:)``, but signs in without scopes if the provider refuses them: the person may be allowed to
    /// sign in without such a token. The later token request then reports the refused scopes.
    @_spi(Extensions) public func runInAnyCase(attempted: String) async throws(SharedDeviceError) -> SignedIn {
        do throws(SharedDeviceError) {
            return try await run(attempted: attempted)
        } catch {
            guard error.code == .scopesDeclined, !scopes.isEmpty, !Task.isCancelled else { throw error }
        }
        var program = self
        program.scopes = []
        return try await program.run(attempted: attempted)
    }

    private var arguments: [String] {
        var arguments = ["--json", "--bus", "\(bus)", "--wait", "\(patience / .seconds(1))"]
        arguments += scopes.map { "--scope=\($0)" }
        if showsPage { arguments.append("--page") }
        if let app { arguments.append("--app=\(app)") }
        if asksAgain { arguments.append("--again") }
        return arguments
    }

    private func path() throws(HelperProcess.Failure) -> String {
        if let program { return program }
        if let path = ProcessEnvironment.value(Self.variable), path.hasPrefix("/") { return path }
        if let path = Self.places.first(where: FileManager.default.isExecutableFile(atPath:)) { return path }
        let problem = "there is no \(Self.places.joined(separator: " and no ")); install the package shared-device"
        throw HelperProcess.Failure(problem)
    }

    private struct Result: Decodable {
        var username: String?
        var epoch: UInt64?
        var code: String?
        var message: String?
    }

    static func result(status: Int32?, text: String, attempted: String) throws(SharedDeviceError) -> SignedIn {
        let result = try? JSONDecoder().decode(Result.self, from: Data(text.utf8))
        if status == 0, let username = result?.username, let epoch = result?.epoch {
            return SignedIn(username: username, epoch: epoch)
        }
        guard let message = result?.message, let code = result?.code else {
            let end = status.map { "with status \($0)" } ?? "in an unknown way"
            let message = "shared-device-sign-in ended \(end) and without a result"
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: message)
        }
        throw SharedDeviceError(SharedDeviceError.Code(code) ?? .brokerFailed, attempted: attempted, message: message)
    }
}

extension SharedDeviceApplication {
    /// Gets a token of the current account if the person has authenticated recently enough; otherwise returns `nil`.
    func acquireTokenWithoutPrompt(
        _ parameters: InteractiveTokenParameters,
        _ current: Account
    ) async throws(SharedDeviceError) -> TokenResult? {
        guard let maximumAge = parameters.maximumAge, !parameters.asksAgain, parameters.claims == nil else {
            return nil
        }
        do throws(SharedDeviceError) {
            return try await acquireTokenSilent(
                with: SilentTokenParameters(scopes: parameters.scopes, account: current, maximumAge: maximumAge)
            )
        } catch {
            guard error.code == .interactionRequired else { throw error }
            return nil
        }
    }

    /// - Parameter current: The signed-in account, which stays signed in if the task is cancelled.
    func acquireTokenAtPrompt(
        _ parameters: InteractiveTokenParameters,
        _ current: Account?,
        patience: Duration,
        attempted: String
    ) async throws(SharedDeviceError) -> TokenResult {
        var program = SignInProgram(bus: broker.bus)
        program.asksAgain = parameters.asksAgain || parameters.maximumAge != nil || parameters.claims != nil
        program.app = identifier
        program.claims = parameters.claims
        program.loginHint = program.asksAgain ? current?.username ?? parameters.loginHint : parameters.loginHint
        let before: UInt64? = if let current { try await keeper.session(of: current) } else { nil }
        program.scopes = parameters.scopes
        program.patience = patience
        program.showsPage = parameters.showsPage
        let person = try await program.runInAnyCase(attempted: attempted)
        let account = try await keeper.current()
        guard let account, try await keeper.session(of: account) == person.epoch else {
            let message = "the person was signed out before the request ended"
            throw SharedDeviceError(.currentAccountMismatch, attempted: attempted, message: message)
        }
        guard !Task.isCancelled else {
            let cancelled = SharedDeviceError(.userCanceled, attempted: attempted, message: "the task was cancelled")
            guard before != person.epoch else { throw cancelled }
            // The person has cancelled, and may have left the device: undo the sign-in.
            _ = try? await broker.call(
                .signOut,
                [
                    "application": .string(identifier), "accountIdentifier": .string(account.identifier),
                    "session": .uint64(person.epoch),
                ],
                attempted: "cancel a sign-in",
                isCancellable: false
            )
            throw cancelled
        }
        return try await acquireTokenSilent(with: SilentTokenParameters(scopes: parameters.scopes, account: account))
    }
}
