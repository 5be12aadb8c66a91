package import DBusTransport
import FoundationEssentials
import NotifyCenter

/// `shared-device-sign-in`, the program that asks a person to sign in in the place of the app. It hands back who has signed in, and nothing secret.
package struct SignInProgram: Sendable {
    /// Who has signed in.
    package struct Person: Sendable, Hashable {
        package let username: String
        package let epoch: UInt64
    }

    /// Names another program, for tests and for development. It counts for nothing in a program that has more rights than its user.
    static let variable = "SHARED_DEVICE_SIGN_IN"
    /// The name to offer, for the program. All users of the machine can read a command line.
    package static let loginHintVariable = "SHARED_DEVICE_LOGIN_HINT"
    /// Where it is installed. It is not looked up in `PATH`: whatever it finds there would ask people for passwords.
    private static let places = ["/usr/bin/shared-device-sign-in", "/usr/local/bin/shared-device-sign-in"]
    /// Longer than any sign-in lasts. The program itself ends before.
    private static let lifetime = Duration.seconds(1200)

    private let bus: Bus
    /// The program, which is looked up in `PATH`; `nil`: as it is installed.
    private let program: String?
    package var loginHint: String?
    /// What the app wants to get tokens for: a provider may grant later only what the sign-in has asked for (RFC 6749, section 6).
    package var scopes: [String] = []
    package var patience = Duration.seconds(15)
    package var showsPage = false
    /// How long it may take to close its browser.
    package var grace = Duration.seconds(20)

    package init(_ program: String? = nil, bus: Bus) {
        self.program = program
        self.bus = bus
    }

    /// Runs it to its end. A task that is cancelled ends it, and with it the sign-in.
    ///
    /// - Throws: ``SharedDeviceError``: what the program says of a sign-in that came to nothing; `interactionRequired` if there is no such program.
    func run(attempted: String) async throws(SharedDeviceError) -> Person {
        let end: (status: Int32?, text: String)
        do throws(HelperProcess.Failure) {
            var settings = HelperProcess.Settings()
            // What cannot be deleted, for instance, is for whoever reads the app's own errors.
            settings.errors = .inherited
            settings.environment[Self.loginHintVariable] = loginHint
            end = try await HelperProcess.output(
                of: try path(),
                arguments,
                settings,
                withErrors: false,
                within: HelperProcess.Patience(Self.lifetime, grace: grace)
            )
        } catch {
            throw SharedDeviceError(.interactionRequired, attempted: attempted, message: error.description)
        }
        return try Self.result(status: end.status, text: end.text, attempted: attempted)
    }

    /// The same, also where the provider refuses the scopes: who may have no such token may be signed in all the same. The request for the token says then
    /// what is refused.
    package func runInAnyCase(attempted: String) async throws(SharedDeviceError) -> Person {
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
        return arguments
    }

    private func path() throws(HelperProcess.Failure) -> String {
        if let program { return program }
        if let path = ProcessEnvironment.value(Self.variable), path.hasPrefix("/") { return path }
        if let path = Self.places.first(where: FileManager.default.isExecutableFile(atPath:)) { return path }
        throw HelperProcess.Failure(
            "there is no \(Self.places.joined(separator: " and no ")); install the package shared-device"
        )
    }

    private struct Result: Decodable {
        var username: String?
        var epoch: UInt64?
        var code: String?
        var message: String?
    }

    /// What the program's end means.
    static func result(status: Int32?, text: String, attempted: String) throws(SharedDeviceError) -> Person {
        let result = try? JSONDecoder().decode(Result.self, from: Data(text.utf8))
        if status == 0, let username = result?.username, let epoch = result?.epoch {
            return Person(username: username, epoch: epoch)
        }
        guard let message = result?.message, let code = result?.code else {
            let end = status.map { "with status \($0)" } ?? "in an unknown way"
            throw SharedDeviceError(
                .brokerFailed,
                attempted: attempted,
                message: "shared-device-sign-in ended \(end) and without a result"
            )
        }
        throw SharedDeviceError(SharedDeviceError.Code(code) ?? .brokerFailed, attempted: attempted, message: message)
    }
}

extension SharedDeviceApplication {
    /// Has ``SignInProgram`` ask the person, and gets a token of whoever has signed in.
    func acquireTokenAtPrompt(
        _ parameters: InteractiveTokenParameters,
        patience: Duration,
        attempted: String
    ) async throws(SharedDeviceError) -> TokenResult {
        var program = SignInProgram(bus: broker.bus)
        program.loginHint = parameters.loginHint
        program.scopes = parameters.scopes
        program.patience = patience
        program.showsPage = parameters.showsPage
        let person = try await program.runInAnyCase(attempted: attempted)
        let account = try await keeper.current()
        guard let account, try await keeper.session(of: account) == person.epoch else {
            throw SharedDeviceError(
                .currentAccountMismatch,
                attempted: attempted,
                message: "\(person.username) was signed out meanwhile"
            )
        }
        guard !Task.isCancelled else {
            // The person has given up, and may have left the device: undo the sign-in.
            _ = try? await broker.call(
                .signOut,
                [
                    "application": .string(identifier), "accountIdentifier": .string(account.identifier),
                    "session": .uint64(person.epoch),
                ],
                attempted: "cancel a sign-in",
                isCancellable: false
            )
            throw SharedDeviceError(.userCanceled, attempted: attempted, message: "the task was cancelled")
        }
        return try await acquireTokenSilent(
            with: SilentTokenParameters(scopes: parameters.scopes, account: account)
        )
    }
}
