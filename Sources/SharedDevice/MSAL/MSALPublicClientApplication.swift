// MSAL's module exports Foundation, too: a file that imports only MSAL finds `DispatchQueue`, `NSError` and `URL`.
import Basics
import DBus
import Dispatch
@_exported public import Foundation
public import NotifyCenter
@_spi(Extensions) import SharedDevice
import Synchronization

@_exported public import enum NotifyCenter.Bus

/// An app on a shared device, with MSAL's names: current account, tokens, and sign-in and sign-out for the whole
/// device.
///
/// Create one per app and keep it. All functions may be called from any thread and task. Parameters are read during the
/// call; later changes to them have no effect. Each completion block is called once, on the queue that its parameters
/// name.
///
/// Every error is an `NSError` of the domain ``MSALErrorDomain``. If the failure came from the module SharedDevice,
/// `NSUnderlyingErrorKey` contains its `SharedDeviceError`.
///
/// ```swift
/// let application = try MSALPublicClientApplication(configuration: MSALPublicClientApplicationConfig(clientId: "org.example.orders"))
/// application.getCurrentAccount(with: nil) { account, previousAccount, error in
///     if let previousAccount, previousAccount != account { deleteData(of: previousAccount) }
/// }
/// ```
public final class MSALPublicClientApplication: Sendable {
    // Unchecked: a copy that nothing changes or hands out.
    nonisolated(unsafe) private let setup: MSALPublicClientApplicationConfig
    let shared: SharedDeviceApplication
    let state = Locked(State())

    struct State {
        /// The account of the last request. `nil` after the app has signed it out or removed it.
        var known: Account?
        var wasShared = false
        var isPrompting = false
        /// Changes that the app was told of. Its next request settles them.
        var toSettle: [(debt: AccountChange, task: Int?)] = []
    }

    /// Creates an app from `configuration`; the broker is on the bus that the environment names.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorInvalidParameter`` if the configuration has no client
    ///   id, or has an identifier that cannot be the name of a directory.
    public convenience init(configuration: MSALPublicClientApplicationConfig) throws {
        try self.init(configuration: configuration, bus: .fromEnvironment)
    }

    /// Creates an app with only this client id; otherwise like ``init(configuration:)``.
    public convenience init(clientId: String) throws {
        try self.init(configuration: MSALPublicClientApplicationConfig(clientId: clientId))
    }

    /// Creates an app with this client id and authority; otherwise like ``init(configuration:)``.
    public convenience init(clientId: String, authority: MSALAuthority?) throws {
        try self.init(clientId: clientId, authority: authority, redirectUri: nil)
    }

    /// Creates an app with this client id, authority and redirect URI; otherwise like ``init(configuration:)``.
    public convenience init(clientId: String, authority: MSALAuthority?, redirectUri: String?) throws {
        let configuration = MSALPublicClientApplicationConfig(
            clientId: clientId,
            redirectUri: redirectUri,
            authority: authority
        )
        try self.init(configuration: configuration)
    }

    /// Creates an app whose broker is on `bus`. Beyond MSAL; for tests, and for apps whose bus is not the environment's
    /// choice.
    ///
    /// - Parameters:
    ///   - configuration: the app's configuration, which is copied.
    ///   - bus: the bus of the broker.
    ///   - stateDirectory: the directory of the app's record of whose data it holds, which must outlast the user data
    ///     of the app; `nil` means the app's identifier in `$XDG_STATE_HOME` (`~/.local/state`).
    /// - Throws: like ``init(configuration:)``.
    public init(configuration: MSALPublicClientApplicationConfig, bus: Bus, stateDirectory: String? = nil) throws {
        setup = configuration.copy()
        let identifier = try setup.identifier()
        shared = SharedDeviceApplication(identifier: identifier, bus: bus, stateDirectory: stateDirectory)
    }

    /// A copy of the configuration that this object was created with.
    public var configuration: MSALPublicClientApplicationConfig { setup.copy() }

    // MARK: Functions without effect

    /// Always returns false, which leaves the URL to the app. On iOS the browser and Microsoft Authenticator respond by
    /// opening a URL in the app; here the broker responds to each request directly.
    @discardableResult
    public static func handleMSALResponse(_ response: URL, sourceApplication: String?) -> Bool { false }

    /// The old spelling of ``handleMSALResponse(_:sourceApplication:)``.
    @discardableResult
    public static func handleMSALResponse(_ response: URL) -> Bool { false }

    /// Always returns false: there is no web view to close. A sign-in ends when its prompt returns or throws.
    @discardableResult
    public static func cancelCurrentWebAuthSession() -> Bool { false }

    // MARK: Checks of requests

    /// - Throws: an error with −42714, unless this app uses the broker.
    func requireBroker(_ attempted: String) throws {
        let remedy: String
        if MSALGlobalConfig.brokerAvailability == .none {
            remedy = "Leave MSALGlobalConfig.brokerAvailability at auto"
        } else if !setup.isBrokerEnabled {
            remedy =
                "Leave bypassRedirectURIValidation false, and have a redirectUri of the form msauth.<the app's identifier>://auth, "
                + "or none"
        } else {
            return
        }
        let description = "could not \(attempted): the broker is not enabled for this app. \(remedy)"
        throw NSError(.internal(.internalBrokerNotAvailable), description)
    }

    func requireScopes(_ scopes: [String], _ attempted: String) throws {
        guard scopes.isEmpty || scopes.contains(where: \.isEmpty) else { return }
        throw NSError.invalidParameter("could not \(attempted): scopes are required, and none of them may be empty")
    }

    func know(_ account: Account?) { state.withLock { $0.known = account } }

    func described(_ account: Account, debt: AccountChange? = nil) -> MSALAccount {
        MSALAccount(account, environment: setup.authority.environment, debt: debt)
    }
}

// MARK: The current account

/// The completion block of ``MSALPublicClientApplication/getCurrentAccount(with:completionBlock:)``.
public typealias MSALCurrentAccountCompletionBlock = (
    _ account: MSALAccount?, _ previousAccount: MSALAccount?, (any Error)?
) -> Void

extension MSALPublicClientApplication {
    /// Gets the account that is signed in on the device, and the account that this app was last told of. By default the
    /// block runs on a queue of the system's choice.
    ///
    /// Call it when the app starts, on each broadcast, when the app returns to the foreground, and before work in the
    /// background. If there is a previous account that differs from the current one, delete its data from disk and
    /// screen in the block, whichever account is current. The change counts as settled when the same process asks for
    /// an account or a token after the block has returned; with ``MSALPublicClientApplicationConfig/reportsCleanup``,
    /// and on a device with a strict policy, when the app calls ``cleanupDone(of:)``. Until then the app is told of it
    /// again, also after a crash. A request that fails settles nothing.
    ///
    /// The error's internal code is one of these:
    /// - ``MSALInternalError/internalBrokerNotAvailable``: the broker does not respond.
    /// - ``MSALInternalError/internalErrorUnauthorizedClient``: the device does not admit the app.
    /// - ``MSALInternalError/internalErrorUnexpected``: the app's record of whose data it holds cannot be read or
    ///   written.
    public func getCurrentAccount(
        with parameters: MSALParameters?,
        completionBlock: @escaping MSALCurrentAccountCompletionBlock
    ) {
        Completion<ReportedAccounts>(parameters?.completionBlockQueue, default: .global()) {
            completionBlock($0?.current, $0?.previous, $1)
        }
        .run(reportedAccounts) { [self] in handedOver($0, to: nil) }
    }

    /// The async form, under the name that Swift gives MSAL's function.
    ///
    /// It cannot see when its caller has deleted the data. The change therefore counts as settled by the next request
    /// of the same task, or by the next request for the current account from any task. An app that calls it from
    /// several tasks at once has to call ``cleanupDone(of:)``.
    public func currentAccount(with parameters: MSALParameters?) async throws -> (MSALAccount?, MSALAccount?) {
        let accounts = try await reportedAccounts()
        handedOver(accounts, to: withUnsafeCurrentTask { $0?.hashValue })
        return accounts
    }

    /// The same as ``currentAccount(with:)``.
    public func getCurrentAccount(with parameters: MSALParameters?) async throws -> (MSALAccount?, MSALAccount?) {
        try await currentAccount(with: parameters)
    }

    private typealias ReportedAccounts = (current: MSALAccount?, previous: MSALAccount?)

    private func reportedAccounts() async throws -> ReportedAccounts {
        try requireBroker("get the current account")
        try await settle(byQuestion: true)
        let report = try await mapping { try await shared.reportCurrentAccount() }
        let change = report.change
        know(change.current)
        // One account at a time: MSAL's callers see a single previous account and cannot delete the data of others.
        let previous = change.previous.map { described($0, debt: change.part(of: $0)) }
        return (change.current.map { described($0) }, previous ?? report.previous.map { described($0) })
    }

    /// Has the app's next request settle the change, now that its block has returned or its async function is about to.
    /// Not if the same person is back: MSAL's callers see no difference between the accounts and have deleted nothing.
    ///
    /// - Parameter task: the task that continues with the result and deletes the data; `nil` if a block has done that.
    private func handedOver(_ accounts: ReportedAccounts, to task: Int?) {
        guard !setup.reportsCleanup, let previous = accounts.previous, let debt = previous.debt,
            previous != accounts.current
        else { return }
        state.withLock { $0.toSettle.append((debt, task)) }
    }

    /// Reports the changes that the app has been told of: by asking again, the app says that it has handled them. A
    /// request says nothing about the progress of another task, unless it is for the current account (`byQuestion`).
    private func settle(byQuestion: Bool = false) async throws {
        let task = withUnsafeCurrentTask { $0?.hashValue }
        while true {
            let next = state.withLock { state in
                state.toSettle.firstIndex { byQuestion || $0.task == nil || $0.task == task }
                    .map { state.toSettle.remove(at: $0) }
            }
            guard let next else { return }
            do throws(SharedDeviceError) {
                try await shared.cleanupImplied(next.debt)
            } catch {
                state.withLock { $0.toSettle.append(next) }
                throw NSError(error)
            }
        }
    }
}

// MARK: Lists

/// The completion block of ``MSALPublicClientApplication/accountsFromDevice(for:completionBlock:)``.
public typealias MSALAccountsCompletionBlock = (_ accounts: [MSALAccount]?, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Lists the accounts on the device that match the parameters: the current one, or none. Reports no change. By
    /// default the block runs on a queue of the system's choice. The errors are those of
    /// ``getCurrentAccount(with:completionBlock:)``.
    public func accountsFromDevice(
        for parameters: MSALAccountEnumerationParameters,
        completionBlock: @escaping MSALAccountsCompletionBlock
    ) {
        let filter = AccountFilter(parameters)
        Completion(parameters.completionBlockQueue, default: .global(), completionBlock)
            .run { [self] in try await currentAccounts(filter) }
    }

    /// The async form of ``accountsFromDevice(for:completionBlock:)``.
    public func accountsFromDevice(for parameters: MSALAccountEnumerationParameters) async throws -> [MSALAccount] {
        try await currentAccounts(AccountFilter(parameters))
    }

    private func currentAccounts(_ filter: AccountFilter) async throws -> [MSALAccount] {
        try requireBroker("list the accounts")
        try await settle()
        let account = try await mapping { try await shared.currentAccount() }
        know(account)
        return accounts(account, filter)
    }

    // MARK: Without a request

    /// The account that this object learned of last, by any request. Empty before the first request, and after
    /// ``signout(with:signoutParameters:)`` or ``remove(_:)``. It does not ask the broker, so it misses sign-outs by
    /// other apps. It never throws; MSAL's function may.
    public func allAccounts() throws -> [MSALAccount] { knownAccounts(AccountFilter()) }

    /// Returns the accounts of ``allAccounts()`` that match the parameters. It never throws.
    public func accounts(for parameters: MSALAccountEnumerationParameters) throws -> [MSALAccount] {
        knownAccounts(AccountFilter(parameters))
    }

    /// Returns the account of ``allAccounts()`` with this identifier.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorAccountRequired`` if there is none.
    public func account(forIdentifier identifier: String) throws -> MSALAccount {
        try onlyAccount(AccountFilter(identifier: identifier))
    }

    /// Returns the account of ``allAccounts()`` with this name, ignoring case. Throws like ``account(forIdentifier:)``.
    public func account(forUsername username: String) throws -> MSALAccount {
        try onlyAccount(AccountFilter(username: username))
    }

    /// Removes the account from ``allAccounts()`` until a request names it again. It never throws; MSAL's function may.
    ///
    /// This signs no account out, as in MSAL on a shared device. For that call ``signout(with:signoutParameters:)``.
    public func remove(_ account: MSALAccount) throws {
        state.withLock { if $0.known == account.account { $0.known = nil } }
    }

    private func knownAccounts(_ filter: AccountFilter) -> [MSALAccount] {
        accounts(state.withLock { $0.known }, filter)
    }

    private func accounts(_ account: Account?, _ filter: AccountFilter) -> [MSALAccount] {
        account.flatMap { filter.matches($0) ? [described($0)] : nil } ?? []
    }

    private func onlyAccount(_ filter: AccountFilter) throws -> MSALAccount {
        guard let account = knownAccounts(filter).first else {
            let description =
                "could not find the account: this app does not know the account. Ask for the current account"
            throw NSError(.internal(.internalErrorAccountRequired), description)
        }
        return account
    }
}

private struct AccountFilter: Sendable {
    var identifier: String?
    var username: String?
    var tenantProfileIdentifier: String?

    init(identifier: String? = nil, username: String? = nil) {
        self.identifier = identifier
        self.username = username
    }

    init(_ parameters: MSALAccountEnumerationParameters) {
        identifier = parameters.identifier
        username = parameters.username
        tenantProfileIdentifier = parameters.tenantProfileIdentifier
    }

    func matches(_ account: Account) -> Bool {
        if let identifier, identifier != account.identifier { return false }
        if let tenantProfileIdentifier, tenantProfileIdentifier != MSALAccountId(account.identifier).objectId {
            return false
        }
        guard let username else { return true }
        return username.lowercased() == account.username.lowercased()
    }
}

// MARK: Receipts, beyond MSAL

extension MSALPublicClientApplication {
    /// Reports that the data of a previous account, as ``getCurrentAccount(with:completionBlock:)`` returned it, is
    /// deleted from disk and screen. The app is then not told of this data again. Does nothing for an account without
    /// ``MSALAccount/needsCleanup``.
    ///
    /// It is for apps with ``MSALPublicClientApplicationConfig/reportsCleanup``; in others the next request reports the
    /// same.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorUnexpected`` if the app's record cannot be written; the
    ///   app is then told of the account again. An error with ``MSALInternalError/internalErrorUnauthorizedClient`` or
    ///   ``MSALInternalError/internalErrorBrokerUnknown`` if the broker refuses the report; the next request sends it
    ///   again.
    public func cleanupDone(of previousAccount: MSALAccount) async throws {
        guard let debt = previousAccount.debt else { return }
        try await mapping { try await shared.cleanupDone(debt) }
    }

    /// The form with a completion block, which runs on a queue of the system's choice.
    public func cleanupDone(
        of previousAccount: MSALAccount,
        completionBlock: @escaping (_ success: Bool, (any Error)?) -> Void
    ) {
        Completion<Void>(nil, default: .global()) { completionBlock($1 == nil, $1) }
            .run { [self] in try await cleanupDone(of: previousAccount) }
    }
}

/// The completion block of the token requests.
public typealias MSALCompletionBlock = (MSALResult?, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Signs a person in for the whole device. ``MSALWebviewParameters`` say how the person is asked.
    ///
    /// If an account is signed in already and the parameters name no other account, the result is a token of that
    /// account, without a prompt (``MSALPromptType/promptIfNecessary``). With ``MSALPromptType/login`` and for claims
    /// the same person authenticates again. By default the block runs on the main queue.
    ///
    /// An error that the prompt throws is passed on unchanged. Other errors have the codes of
    /// ``acquireTokenSilent(with:completionBlock:)``, ``MSALError/userCanceled``, ``MSALError/workplaceJoinRequired``,
    /// or one of these internal codes:
    /// - ``MSALInternalError/internalErrorMismatchedUser``: another account is signed in.
    /// - ``MSALInternalError/internalErrorAuthorizationFailed``
    /// - ``MSALInternalError/internalErrorInteractiveSessionAlreadyRunning``
    /// - ``MSALInternalError/internalErrorNoViewController``
    public func acquireToken(
        with parameters: MSALInteractiveTokenParameters,
        completionBlock: @escaping MSALCompletionBlock
    ) {
        let request = SignInRequest(parameters)
        Completion(parameters.completionBlockQueue, default: .main, completionBlock)
            .run { [self] in try await token(request) }
    }

    /// The async form of ``acquireToken(with:completionBlock:)``. Cancelling the task cancels the sign-in.
    public func acquireToken(with parameters: MSALInteractiveTokenParameters) async throws -> MSALResult {
        try await token(SignInRequest(parameters))
    }

    /// Gets a token for the current account without a prompt. By default the block runs on a queue of the system's
    /// choice.
    ///
    /// The error's code is ``MSALError/interactionRequired`` if no account is signed in, the person has to sign in
    /// again, or the request demands claims. It is ``MSALError/serverError`` or ``MSALError/serverDeclinedScopes`` if
    /// the organisation's provider gives no such token. Otherwise its internal code is one of these:
    /// - ``MSALInternalError/internalErrorInvalidParameter``: no scopes.
    /// - ``MSALInternalError/internalErrorMismatchedUser``: the account is not, or is no longer, the current one.
    /// - ``MSALInternalError/internalErrorAmbiguousAccount``: a cleanup is due.
    /// - ``MSALInternalError/internalErrorAccountRequired``: the parameters name no account.
    /// - ``MSALInternalError/internalErrorAuthorizationFailed``: there were too many requests.
    /// - ``MSALInternalError/internalErrorUnauthorizedClient``
    /// - ``MSALInternalError/internalErrorUnexpected``: the app's record cannot be read or written.
    /// - ``MSALInternalError/internalErrorBrokerUnknown``
    /// - ``MSALInternalError/internalBrokerNotAvailable``
    public func acquireTokenSilent(
        with parameters: MSALSilentTokenParameters,
        completionBlock: @escaping MSALCompletionBlock
    ) {
        let request = SilentRequest(parameters)
        Completion(parameters.completionBlockQueue, default: .global(), completionBlock)
            .run { [self] in try await token(request) }
    }

    /// The async form of ``acquireTokenSilent(with:completionBlock:)``. If the task is cancelled, the error's code is
    /// ``MSALError/userCanceled``.
    public func acquireTokenSilent(with parameters: MSALSilentTokenParameters) async throws -> MSALResult {
        try await token(SilentRequest(parameters))
    }

    // MARK: Requests

    /// - Throws: an `NSError`, or the prompt's own error.
    private func token(_ request: SignInRequest) async throws -> MSALResult {
        try requireBroker("sign in")
        try requireScopes(request.scopes, "sign in")
        try await settle()
        let current = try await currentAccount(for: request)
        guard let current, !request.asksAgain else { return try await signIn(request, asking: current) }
        return try await token(SilentRequest(request, account: current))
    }

    private func token(_ request: SilentRequest) async throws -> MSALResult {
        let attempted = "get a token"
        try requireBroker(attempted)
        try requireScopes(request.scopes, attempted)
        guard !request.demandsClaims else {
            let description =
                "could not \(attempted): claims are met when the person is asked. Request the token interactively"
            throw NSError(.surfaced(.interactionRequired), description)
        }
        guard let account = request.account else {
            throw NSError(.internal(.internalErrorAccountRequired), "could not \(attempted): no account is given")
        }
        try await settle()
        let parameters = SilentTokenParameters(
            scopes: request.scopes,
            account: account,
            forceRefresh: request.forceRefresh
        )
        let token = try await mapping(in: .silentToken, correlationId: request.correlationId, account: account) {
            try await shared.acquireTokenSilent(with: parameters)
        }
        know(token.account)
        return MSALResult(token, authority: request.authority ?? setup.authority, correlationId: request.correlationId)
    }

    /// Returns the signed-in account, if any, for single sign-on or to ask its person again. Throws if it does not fit
    /// the request; before the prompt, so that a person does not type a password in vain.
    private func currentAccount(for request: SignInRequest) async throws -> Account? {
        try await mapping(correlationId: request.correlationId, account: request.account) {
            guard let current = try await shared.currentAccount() else { return nil }
            if request.asksAgain || request.promptType == .promptIfNecessary, request.admits(current) { return current }
            let message = "an account is already signed in on this device; sign it out first"
            throw SharedDeviceError(.accountAlreadySignedIn, attempted: "sign in", message: message)
        }
    }

    /// - Parameter current: The account whose person is asked again; `nil` for a sign-in.
    private func signIn(_ request: SignInRequest, asking current: Account?) async throws -> MSALResult {
        let isFirst = state.withLock { state in
            defer { state.isPrompting = true }
            return !state.isPrompting
        }
        guard isFirst else {
            let description = "could not sign in: this app is asking a person already; wait for that sign-in to end"
            throw NSError(.internal(.internalErrorInteractiveSessionAlreadyRunning), description)
        }
        defer { state.withLock { $0.isPrompting = false } }
        let hint = request.loginHint ?? request.account?.username
        var parameters = InteractiveTokenParameters(scopes: request.scopes, loginHint: hint)
        parameters.showsPage = request.showsPage
        parameters.asksAgain = current != nil
        parameters.claims = request.claims
        // Only the device's own prompt can ask a signed-in person again.
        if current == nil, let prompt = request.prompt {
            let credentials = try await prompt(hint)
            try request.check(credentials?.username)
            parameters.prompt = { _ in
                credentials.map { Credentials(username: $0.username, password: $0.password) }
            }
        }
        let token = try await mapping(in: .prompt, correlationId: request.correlationId, account: request.account) {
            try await shared.acquireToken(with: parameters)
        }
        know(token.account)
        // The device's own prompt accepts any user.
        try request.check(token.account.username)
        return MSALResult(token, authority: request.authority ?? setup.authority, correlationId: request.correlationId)
    }
}

/// A sign-in as the app asked for it. A copy, because the app may change its parameters object during the request.
private struct SignInRequest: Sendable {
    let scopes: [String]
    let account: Account?
    let loginHint: String?
    let promptType: MSALPromptType
    let prompt: MSALWebviewParameters.Prompt?
    let showsPage: Bool
    /// The claims that the token has to meet, as JSON.
    let claims: String?
    let authority: MSALAuthority?
    let correlationId: UUID

    init(_ parameters: MSALInteractiveTokenParameters) {
        scopes = parameters.scopes
        account = parameters.account?.account
        loginHint = parameters.loginHint.flatMap { $0.isEmpty ? nil : $0 }
        promptType = parameters.promptType
        prompt = parameters.webviewParameters.prompt
        showsPage = parameters.webviewParameters.showsPage
        // The broker refuses the empty text: claims that cannot be written as JSON must not be left out.
        claims = parameters.claimsRequest.flatMap { $0.isDemand ? $0.jsonString() ?? "" : nil }
        authority = parameters.authority
        correlationId = parameters.correlationId ?? UUID()
    }

    /// Whether a signed-in person has to authenticate again.
    var asksAgain: Bool { promptType == .login || claims != nil }

    /// - Throws: an error with −42101 if `name` is not the user name of the request's account.
    func check(_ name: String?) throws {
        guard let name, let account, name.lowercased() != account.username.lowercased() else { return }
        let description =
            "could not sign in: the name that was given at the prompt is not that of the request's account"
        throw NSError(.internal(.internalErrorMismatchedUser), description)
    }

    func admits(_ current: Account) -> Bool {
        if let account { return account == current }
        guard let loginHint else { return true }
        return loginHint.lowercased() == current.username.lowercased()
    }
}

private struct SilentRequest: Sendable {
    let scopes: [String]
    let account: Account?
    var forceRefresh = false
    var demandsClaims = false
    let authority: MSALAuthority?
    let correlationId: UUID

    init(_ parameters: MSALSilentTokenParameters) {
        scopes = parameters.scopes
        account = parameters.account?.account
        forceRefresh = parameters.forceRefresh
        demandsClaims = parameters.claimsRequest?.isDemand ?? false
        authority = parameters.authority
        correlationId = parameters.correlationId ?? UUID()
    }

    init(_ request: SignInRequest, account: Account) {
        scopes = request.scopes
        self.account = account
        authority = request.authority
        correlationId = request.correlationId
    }
}

// MARK: The device's mode

/// The completion block of ``MSALPublicClientApplication/getDeviceInformation(with:completionBlock:)``.
public typealias MSALDeviceInformationCompletionBlock = (_ deviceInformation: MSALDeviceInformation?, (any Error)?) ->
    Void

extension MSALPublicClientApplication {
    /// Reports whether the device is shared. By default the block runs on a queue of the system's choice.
    ///
    /// If the broker does not respond, or responds with an error, the block gets an error and no information; the
    /// device never counts as ``MSALDeviceMode/default`` then. If this object was told ``MSALDeviceMode/shared``
    /// earlier, the block gets that information together with the error.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` if this app does not use the
    /// broker or the broker does not respond. It is ``MSALInternalError/internalErrorBrokerUnknown`` if the response is
    /// a failure or not understood.
    public func getDeviceInformation(
        with parameters: MSALParameters?,
        completionBlock: @escaping MSALDeviceInformationCompletionBlock
    ) {
        let completion = Completion<MSALDeviceInformation>(
            parameters?.completionBlockQueue,
            default: .global(),
            completionBlock
        )
        Task {
            let (information, error) = await deviceState()
            completion(information, error)
        }
    }

    /// The async form, under the name that Swift gives MSAL's function. It throws if there is an error.
    public func deviceInformation(with parameters: MSALParameters?) async throws -> MSALDeviceInformation {
        let (information, error) = await deviceState()
        guard let information, error == nil else { throw error ?? unexplained }
        return information
    }

    /// The same as ``deviceInformation(with:)``.
    public func getDeviceInformation(with parameters: MSALParameters?) async throws -> MSALDeviceInformation {
        try await deviceInformation(with: parameters)
    }

    private func deviceState() async -> (information: MSALDeviceInformation?, error: (any Error)?) {
        do {
            try requireBroker("get the device's information")
        } catch {
            return (nil, error)
        }
        let answer = await shared.getDeviceInformation()
        switch answer.deviceMode {
        case .shared:
            state.withLock { $0.wasShared = true }
            return (MSALDeviceInformation(.shared, answer: answer), nil)
        case .personal:
            state.withLock { $0.wasShared = false }
            return (MSALDeviceInformation(.default, answer: answer), nil)
        case .unknown:
            let remembered = state.withLock { $0.wasShared ? MSALDeviceInformation(.shared, answer: nil) : nil }
            return (remembered, answer.problem.map { NSError($0) } ?? unexplained)
        }
    }

    private var unexplained: NSError {
        NSError(
            .internal(.internalErrorBrokerUnknown),
            "could not get the device's information: the broker names a device mode that this version does not know"
        )
    }
}

// MARK: Sign-out

/// The completion block of ``MSALPublicClientApplication/signout(with:signoutParameters:completionBlock:)``.
public typealias MSALSignoutCompletionBlock = (_ success: Bool, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Signs the account out for the whole device: its tokens are revoked, and all apps are told. Each app deletes its
    /// own data; in this app the next ``getCurrentAccount(with:completionBlock:)`` returns the account as the previous
    /// one. By default the block runs on the main queue.
    ///
    /// All checks come before any change. The error's internal code is one of these:
    /// - ``MSALInternalError/internalErrorInvalidParameter``: browser sign-out without ``MSALWebviewParameters``.
    /// - ``MSALInternalError/internalErrorAccountRequired``: no account is signed in.
    /// - ``MSALInternalError/internalErrorMismatchedUser``: the account is not the current one.
    /// - ``MSALInternalError/internalErrorUnauthorizedClient``
    /// - ``MSALInternalError/internalErrorUnexpected``: the app's record cannot be read or written.
    /// - ``MSALInternalError/internalBrokerNotAvailable``
    ///
    /// With ``MSALSignoutParameters/signoutFromBrowser`` the request also fails, with
    /// ``MSALInternalError/internalErrorUnexpected``, if the browser's end-session page does not open. The account is
    /// signed out of the device even then, and the error says so.
    public func signout(
        with account: MSALAccount,
        signoutParameters: MSALSignoutParameters,
        completionBlock: @escaping MSALSignoutCompletionBlock
    ) {
        let (account, isUsable) = (account.account, signoutParameters.webviewParameters != nil)
        let fromBrowser = signoutParameters.signoutFromBrowser
        Completion<Void>(signoutParameters.completionBlockQueue, default: .main) { completionBlock($1 == nil, $1) }
            .run { [self] in try await signOut(account, fromBrowser: fromBrowser, hasWebviewParameters: isUsable) }
    }

    /// The async form. It returns `true` or throws. If the task is cancelled, the error's code is
    /// ``MSALError/userCanceled``, and the account may be signed out nevertheless.
    @discardableResult
    public func signout(with account: MSALAccount, signoutParameters: MSALSignoutParameters) async throws -> Bool {
        try await signOut(
            account.account,
            fromBrowser: signoutParameters.signoutFromBrowser,
            hasWebviewParameters: signoutParameters.webviewParameters != nil
        )
        return true
    }

    private func signOut(_ account: Account, fromBrowser: Bool, hasWebviewParameters: Bool) async throws {
        try requireBroker("sign out")
        guard !fromBrowser || hasWebviewParameters else {
            throw NSError.invalidParameter("could not sign out: signoutFromBrowser needs valid MSALWebviewParameters")
        }
        let result = try await mapping(account: account) {
            let parameters = SignoutParameters(signoutFromBrowser: fromBrowser)
            return try await shared.signout(with: account, signoutParameters: parameters)
        }
        know(nil)
        guard let problem = result.browser.problem else { return }
        let description =
            "could not sign the browser out: \(problem). The account is signed out of the device; the person may still be signed in in "
            + "the browser"
        throw NSError(.internal(.internalErrorUnexpected), description, account: account)
    }
}

extension BrowserSignout {
    var problem: String? {
        switch self {
        case .notRequested, .opened: nil
        case .notConfigured:
            "the device's configuration names no page for it; set endSessionURL, or leave signoutFromBrowser false"
        case .failed(let reason): reason
        case .timedOut: "its page did not open in time"
        }
    }
}

// MARK: The device's token

/// The completion block of
/// ``MSALPublicClientApplication/getDeviceTokenForSharedDevice(withResource:scopes:completionBlock:)``.
public typealias MSALDeviceTokenResultCompletionBlock = (_ result: MSALDeviceTokenResult?, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Always fails: the device is not registered with a token service and so has no token. The error's code is
    /// ``MSALError/workplaceJoinRequired``. Two checks come first, with the internal codes
    /// ``MSALInternalError/internalBrokerNotAvailable`` if this app does not use the broker, and
    /// ``MSALInternalError/internalErrorInvalidParameter`` if the resource is empty. The block runs on a queue of the
    /// system's choice.
    public func getDeviceTokenForSharedDevice(
        withResource resource: String,
        scopes: [String]?,
        completionBlock: @escaping MSALDeviceTokenResultCompletionBlock
    ) {
        Completion(nil, default: .global(), completionBlock)
            .run { [self] in try await deviceTokenForSharedDevice(withResource: resource, scopes: scopes) }
    }

    /// The async form, under the name that Swift gives MSAL's function. It always throws.
    public func deviceTokenForSharedDevice(
        withResource resource: String,
        scopes: [String]?
    ) async throws -> MSALDeviceTokenResult {
        let attempted = "get a token of the device"
        try requireBroker(attempted)
        guard !resource.isEmpty else {
            throw NSError.invalidParameter("could not \(attempted): a resource is required")
        }
        let description =
            "could not \(attempted): the device has no registration with a token service. Ask for a token of the account instead"
        throw NSError(.surfaced(.workplaceJoinRequired), description)
    }
}

/// Passes the result of a request to the app's completion block.
private struct Completion<Value: Sendable>: @unchecked Sendable {
    // Unchecked: MSAL's block types are not `Sendable`, and blocks may capture anything. MSAL's contract makes this
    // safe: the block is called once, on the queue that the caller has chosen, and nothing else touches it.
    private let queue: DispatchQueue
    private let block: (Value?, (any Error)?) -> Void

    init(_ queue: DispatchQueue?, default standard: DispatchQueue, _ block: @escaping (Value?, (any Error)?) -> Void) {
        self.queue = queue ?? standard
        self.block = block
    }

    /// - Parameter returned: called after a success, once the block has returned.
    func run(
        _ request: @escaping @Sendable () async throws -> Value,
        returned: @escaping @Sendable (Value) -> Void = { _ in }
    ) {
        Task {
            do {
                let value = try await request()
                queue.async {
                    block(value, nil)
                    returned(value)
                }
            } catch {
                self(nil, error)
            }
        }
    }

    func callAsFunction(_ value: Value?, _ error: (any Error)?) { queue.async { block(value, error) } }
}
