import Basics
package import DBus
import DBusService
package import DeviceConfiguration
import FoundationEssentials
@_spi(Extensions) package import SharedDevice
import Synchronization

/// Serves Microsoft's clients with the device's account. To the device's broker it is an app: it holds data, owes
/// cleanups and sends receipts.
package final class MicrosoftBroker: Sendable {
    private let connection: DBusConnection
    private let application: SharedDeviceApplication
    private let prompter: Prompter?
    private let removeSecrets: @Sendable () async throws -> String
    private let rights = Locked(TokenRights())
    private let shown = Locked(AccountState.hidden(.starting))
    private let underWay = Locked(0)
    private let served = Locked<Observation?>(nil)
    private let name: KeptName

    /// - Parameters:
    ///   - connection: The session bus, on which clients call.
    ///   - prompter: Asks users to sign in; `nil` without a display.
    ///   - removeSecrets: Deletes the clients' secrets from the keyring and returns a summary. An error fails the
    ///     cleanup.
    ///   - nameLost: Called when another program took the name while a cleanup released it. The creator of this object
    ///     must then retry ``regainName()`` until it succeeds.
    package init(
        connection: DBusConnection,
        application: SharedDeviceApplication,
        prompter: Prompter?,
        removeSecrets: @escaping @Sendable () async throws -> String,
        nameLost: @escaping @Sendable () -> Void = {}
    ) {
        self.connection = connection
        self.application = application
        self.prompter = prompter
        self.removeSecrets = removeSecrets
        name = KeptName(
            take: { () throws(DBusError) in try await connection.requestName(BrokerContract.busName) },
            give: { () throws(DBusError) in try await connection.releaseName(BrokerContract.busName) },
            lost: nameLost
        )
    }

    package func use(_ rights: TokenRights) { self.rights.withLock { $0 = rights } }

    /// Exports the interface and requests the name.
    ///
    /// - Throws: `DBusError`; `nameTaken` if another program has the name. No client is served then.
    package func start() async throws(DBusError) {
        var limits = CallLimits()
        // Allows more than the text's own limit, so that an oversized text gets a response instead of a D-Bus error.
        limits.bodyBytes = 2 * BrokerContract.limits.size
        limits.calls = 4 * BrokerContract.requests
        let observation = try connection.export([interface], at: BrokerContract.path, limits: limits)
        served.withLock { $0 = observation }
        do throws(DBusError) {
            try await name.want(true)
        } catch {
            await stop()
            throw error
        }
    }

    /// Stops serving clients. They take the loss of the name for the end of the broker, and waiting ones get no token.
    /// Cleanups continue while ``follow()`` runs.
    package func stop() async {
        let observation = served.withLock { served in
            defer { served = nil }
            return served
        }
        withExtendedLifetime(observation) {}
        try? await name.want(false)
    }

    /// Requests the name again after another program took it, if clients are to be served.
    ///
    /// - Throws: `DBusError`; `nameTaken` while another program has it.
    package func regainName() async throws(DBusError) { try await name.regain() }

    package var serves: Bool { name.isWanted }

    /// Takes part in shared device mode until the task is cancelled.
    package func follow() async throws(SharedDeviceError) {
        let cleanup = CleanupCoordinator()
        try cleanup.register("secrets") { [removeSecrets] _ in try await removeSecrets() }
        try cleanup.register("bus name") { [name] _ in try await name.renew() }
        await application.follow(cleanup) { [self] state in shown.withLock { $0 = state } }
    }

    // MARK: Calls

    private var interface: DBusInterface {
        DBusInterface(
            BrokerContract.interface,
            methods: BrokerContract.Method.allCases.map { method in
                DBusInterface.Method(
                    method.rawValue,
                    in: [.init("version", "s"), .init("correlationId", "s"), .init("request", "s")],
                    out: [.init("response", "s")]
                ) { [weak self] call in
                    let texts = call.arguments.map { $0.stringValue ?? "" }
                    guard let self, texts.count == 3 else { return [.string("{}")] }
                    return [.string(await self.answer(method, from: call.sender, correlation: texts[1], texts[2]).text)]
                }
            }
        )
    }

    /// Returns the response to a call, including failures.
    ///
    /// - Parameter client: the caller's connection; `nil` if its presence is not watched.
    func answer(
        _ method: BrokerContract.Method,
        from client: String? = nil,
        correlation: String,
        _ text: String
    ) async -> JSONValue {
        let isAdmitted = underWay.withLock { count in
            guard count < BrokerContract.requests else { return false }
            count += 1
            return true
        }
        do throws(BrokerFailure) {
            guard isAdmitted else { throw BrokerFailure(.transientError, "too many requests at once; try again later") }
            defer { underWay.withLock { $0 -= 1 } }
            let request = try ClientRequest(text)
            switch method {
            case .getLinuxBrokerVersion: return .object(["linuxBrokerVersion": .string(BrokerContract.version)])
            case .getAccounts: return ClientAnswers.accounts(try await visibleAccount())
            case .acquireTokenSilently: return try await token(request)
            case .acquireTokenInteractively: return try await interactiveToken(request, correlation, client)
            case .removeAccount: return try await remove(request)
            case .cancelInteractiveFlow:
                prompter?.cancel(correlation)
                return .object([:])
            case .acquirePrtSsoCookie:
                throw BrokerFailure(
                    .incorrectConfiguration,
                    "this device has no primary refresh token to make the cookie from; sign in in the browser"
                )
            case .generateSignedHttpRequest: throw Self.unbound
            }
        } catch {
            return error.answer(to: method)
        }
    }

    private static let unbound = BrokerFailure(
        .incorrectConfiguration,
        "this device signs no requests (proof of possession); ask for a bearer token"
    )

    private static let unclaimed = BrokerFailure(
        .interactionRequired,
        "claims are met when the user is asked; request the token interactively"
    )

    private var owesCleanup: Bool {
        switch shown.withLock({ $0 }) {
        case .hidden(.changing), .hidden(.cleanupFailed): true
        default: false
        }
    }

    /// The account that clients may see; `nil` while this app owes a cleanup.
    private func visibleAccount() async throws(BrokerFailure) -> Account? {
        if owesCleanup { return nil }
        do throws(SharedDeviceError) {
            // After this call the broker counts this app as holding data.
            return try await application.currentAccount()
        } catch {
            throw BrokerFailure(error)
        }
    }

    private func account(of request: ClientRequest) async throws(BrokerFailure) -> Account {
        guard !owesCleanup else {
            let reason = "the data that the last person's clients have stored is not deleted yet"
            throw BrokerFailure(.userDataRemovalRequired, reason)
        }
        guard let account = try await visibleAccount() else {
            throw BrokerFailure(.interactionRequired, "no person is signed in on this device")
        }
        guard request.account == nil || request.account?.lowercased() == account.identifier.lowercased() else {
            throw BrokerFailure(.accountSwitch, "another person is signed in on this device")
        }
        return account
    }

    private func checkServes() throws(BrokerFailure) {
        guard name.isWanted else {
            throw BrokerFailure(.incorrectConfiguration, "this device does not serve Microsoft's clients any more")
        }
    }

    /// - Parameter claimsAreMet: whether the user has authenticated for the request's claims.
    private func token(_ request: ClientRequest, claimsAreMet: Bool = false) async throws(BrokerFailure) -> JSONValue {
        try checkServes()
        let rights = rights.withLock { $0 }
        try rights.check(request.client)
        guard !request.isBound else { throw Self.unbound }
        let scopes = try rights.providerScopes(for: request.scopes)
        let account = try await account(of: request)
        guard request.claims == nil || claimsAreMet else { throw Self.unclaimed }
        let token: TokenResult
        do throws(SharedDeviceError) {
            token = try await application.acquireTokenSilent(
                with: SilentTokenParameters(scopes: scopes, account: account, forceRefresh: request.renewsToken)
            )
        } catch {
            throw BrokerFailure(error)
        }
        // The call to the device's broker may take a minute, and the configuration may have changed since.
        try checkServes()
        let answer = try ClientAnswers.token(token, requested: request.scopes, now: Date())
        try rights.check(granted: token.scopes, for: request.scopes)
        return answer
    }

    /// Returns a token without a prompt if there is one; otherwise asks the user first. Clients make this call even
    /// when no prompt is needed.
    private func interactiveToken(
        _ request: ClientRequest,
        _ correlation: String,
        _ client: String?
    ) async throws(BrokerFailure) -> JSONValue {
        do throws(BrokerFailure) {
            return try await token(request)
        } catch {
            guard error.status == .interactionRequired || error.status == .accountUnusable else { throw error }
        }
        guard let prompter else {
            throw BrokerFailure(
                .incorrectConfiguration,
                "there is no display for the sign-in (DISPLAY, WAYLAND_DISPLAY)"
            )
        }
        let scopes = try rights.withLock { $0 }.providerScopes(for: request.scopes)
        switch try await ask(prompter, correlation, for: Prompter.Wish(scopes: scopes, claims: request.claims), client)
        {
        case .signedIn: return try await token(request, claimsAreMet: true)
        // Another app was faster, and its user is signed in for this app, too.
        case .failed(let error) where error.code == .accountAlreadySignedIn: return try await token(request)
        // No prompt was possible. Clients must not read this status as a request to ask the user.
        case .failed(let error) where error.code == .interactionRequired:
            throw BrokerFailure(.incorrectConfiguration, error.message)
        case .failed(let error): throw BrokerFailure(error)
        case .cancelled: throw BrokerFailure(.applicationCanceled, "the request was cancelled")
        case .expired:
            throw BrokerFailure(.applicationCanceled, "no person has signed in within ten minutes; try again")
        }
    }

    /// Asks the user while the client is connected. Otherwise the request of a dead client would keep its place, and
    /// its response would be lost.
    private func ask(
        _ prompter: Prompter,
        _ correlation: String,
        for wish: Prompter.Wish,
        _ client: String?
    ) async throws(BrokerFailure) -> Prompter.Outcome {
        guard let client else { return try await prompter.ask(correlation, for: wish) }
        let owner = NameOwner(of: client, on: connection) { if $0 == nil { prompter.leave(client) } }
        do throws(DBusError) {
            try await owner.start()
        } catch {
            throw BrokerFailure(.transientError, "the bus does not say whether the client is there; try again later")
        }
        // Keeps the watch on the client until the response.
        defer { withExtendedLifetime(owner) {} }
        return try await prompter.ask(correlation, for: wish, of: client) { owner.current == nil }
    }

    /// Signs out the device, because clients know no other sign-out.
    private func remove(_ request: ClientRequest) async throws(BrokerFailure) -> JSONValue {
        let account: Account
        do throws(BrokerFailure) {
            account = try await self.account(of: request)
        } catch {
            guard error.status == .interactionRequired else { throw error }
            throw BrokerFailure(.accountNotFound, "no person is signed in on this device")
        }
        do throws(SharedDeviceError) {
            _ = try await application.signout(with: account)
        } catch {
            throw BrokerFailure(error)
        }
        return .object([:])
    }
}

/// The bus name, which this program owns exactly while clients are to be served, even if that changes during a request
/// or release.
final class KeptName: Sendable {
    typealias Change = @Sendable () async throws(DBusError) -> Void

    private let take: Change
    private let give: Change
    private let lost: @Sendable () -> Void
    private let wanted = Locked(true)

    /// - Parameter lost: called if another program takes the name during ``renew()``.
    init(take: @escaping Change, give: @escaping Change, lost: @escaping @Sendable () -> Void = {}) {
        self.take = take
        self.give = give
        self.lost = lost
    }

    var isWanted: Bool { wanted.withLock { $0 } }

    /// - Throws: the reason why the name cannot be owned. Releasing ignores errors.
    func want(_ isWanted: Bool) async throws(DBusError) {
        wanted.withLock { $0 = isWanted }
        try await settle()
    }

    /// Releases the name briefly, if it is wanted. If another program takes it in that moment, clients have still seen
    /// its loss. Failing the cleanup for that would let any program of the session block the receipt.
    func renew() async throws(DBusError) {
        guard isWanted else { return }
        try await give()
        do throws(DBusError) {
            try await settle()
        } catch {
            guard error.code == .nameTaken else { throw error }
            lost()
        }
    }

    /// Requests the name again if it is wanted and another program has it.
    func regain() async throws(DBusError) {
        guard isWanted else { return }
        try await settle()
    }

    /// Safe for concurrent calls: the last one to finish checks again.
    private func settle() async throws(DBusError) {
        while true {
            let wanted = isWanted
            if wanted {
                try await take()
            } else {
                // Counts as released even if the bus does not respond.
                try? await give()
            }
            if isWanted == wanted { return }
        }
    }
}
