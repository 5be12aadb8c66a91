import DBus
import Dispatch
import Foundation
@_spi(Extensions) import SharedDevice
import Synchronization

/// The completion block of the token requests.
public typealias MSALCompletionBlock = (MSALResult?, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Signs a person in for the whole device. ``MSALWebviewParameters`` say how the person is asked.
    ///
    /// If an account is signed in already and the parameters name no other account, the result is a token of that
    /// account, without a prompt (``MSALPromptType/promptIfNecessary``). By default the block runs on the main queue.
    ///
    /// The error's code is ``MSALError/userCanceled`` or ``MSALError/workplaceJoinRequired``, or its internal code is
    /// one of these:
    /// - ``MSALInternalError/internalErrorInvalidParameter``: no scopes, or claims.
    /// - ``MSALInternalError/internalErrorMismatchedUser``: another account is signed in.
    /// - ``MSALInternalError/internalErrorAmbiguousAccount``: a cleanup is due.
    /// - ``MSALInternalError/internalErrorAuthorizationFailed``
    /// - ``MSALInternalError/internalErrorInteractiveSessionAlreadyRunning``
    /// - ``MSALInternalError/internalErrorNoViewController``
    /// - ``MSALInternalError/internalErrorUnauthorizedClient``
    /// - ``MSALInternalError/internalBrokerNotAvailable``
    ///
    /// An error that the prompt throws is passed on unchanged.
    public func acquireToken(
        with parameters: MSALInteractiveTokenParameters,
        completionBlock: @escaping MSALCompletionBlock
    ) {
        let completion = Completion<Result<MSALResult, any Error>>(parameters.completionBlockQueue, default: .main) {
            result in
            switch result {
            case .success(let token): completionBlock(token, nil)
            case .failure(let error): completionBlock(nil, error)
            }
        }
        let request = SignInRequest(parameters)
        Task {
            do {
                completion(.success(try await token(request)))
            } catch {
                completion(.failure(error))
            }
        }
    }

    /// The async form of ``acquireToken(with:completionBlock:)``.
    public func acquireToken(with parameters: MSALInteractiveTokenParameters) async throws -> MSALResult {
        try await token(SignInRequest(parameters))
    }

    /// Gets a token for the current account without a prompt. By default the block runs on a queue of the system's
    /// choice.
    ///
    /// The error's code is ``MSALError/interactionRequired`` if no account is signed in or the broker wants the
    /// password again. Otherwise its internal code is one of these:
    /// - ``MSALInternalError/internalErrorInvalidParameter``: no scopes, or claims.
    /// - ``MSALInternalError/internalErrorMismatchedUser``: the account is not, or is no longer, the current one.
    /// - ``MSALInternalError/internalErrorAmbiguousAccount``: a cleanup is due.
    /// - ``MSALInternalError/internalErrorUnauthorizedClient``
    /// - ``MSALInternalError/internalBrokerNotAvailable``
    public func acquireTokenSilent(
        with parameters: MSALSilentTokenParameters,
        completionBlock: @escaping MSALCompletionBlock
    ) {
        let completion = Completion<Result<MSALResult, RequestFailure>>(
            parameters.completionBlockQueue,
            default: .global()
        ) {
            completionBlock($0.value, $0.nsError)
        }
        let request = SilentRequest(parameters)
        Task { completion(await outcome { () throws(RequestFailure) in try await token(request) }) }
    }

    /// The async form of ``acquireTokenSilent(with:completionBlock:)``.
    public func acquireTokenSilent(with parameters: MSALSilentTokenParameters) async throws -> MSALResult {
        let request = SilentRequest(parameters)
        do throws(RequestFailure) {
            return try await token(request)
        } catch {
            throw error.nsError
        }
    }

    // MARK: Requests

    /// - Throws: an `NSError`, or the prompt's own error.
    private func token(_ request: SignInRequest) async throws -> MSALResult {
        do {
            try requireBroker("sign in")
            try requireScopes(request.scopes, "sign in")
            try requireNoClaims(request.demandsClaims, "sign in")
            try await settle()
            guard let silent = try await silentRequest(instead: request) else { return try await signIn(request) }
            return try await token(silent)
        } catch let failure as RequestFailure {
            throw failure.nsError
        }
    }

    private func token(_ request: SilentRequest) async throws(RequestFailure) -> MSALResult {
        let attempted = "get a token"
        try requireBroker(attempted)
        try requireScopes(request.scopes, attempted)
        try requireNoClaims(request.demandsClaims, attempted)
        guard let account = request.account else {
            throw RequestFailure(
                .internal(.internalErrorAccountRequired),
                "could not \(attempted): no account is given"
            )
        }
        try await settle()
        let context = RequestFailure.Context(correlationId: request.correlationId, account: account)
        let parameters = SilentTokenParameters(
            scopes: request.scopes,
            account: account,
            forceRefresh: request.forceRefresh
        )
        let token = try await mapping(in: .silentToken, context: context) { () throws(SharedDeviceError) in
            try await shared.acquireTokenSilent(with: parameters)
        }
        know(token.account)
        return MSALResult(token, authority: request.authority ?? setup.authority, correlationId: request.correlationId)
    }

    /// Single sign-on: returns the silent request that replaces `request`, or `nil` if no account is signed in. The
    /// check comes before the prompt, so that a person does not type a password in vain.
    ///
    /// - Throws: ``RequestFailure``, −42101, if an account is signed in that does not fit the request.
    private func silentRequest(instead request: SignInRequest) async throws(RequestFailure) -> SilentRequest? {
        let context = request.context
        let current = try await mapping(context: context) { () throws(SharedDeviceError) in
            try await shared.currentAccount()
        }
        guard let current else { return nil }
        if request.promptType == .promptIfNecessary, request.admits(current) {
            return SilentRequest(request, account: current)
        }
        let error = SharedDeviceError(
            .accountAlreadySignedIn,
            attempted: "sign in",
            message: "an account is already signed in on this device; sign it out first"
        )
        throw RequestFailure(error, context: context)
    }

    private func signIn(_ request: SignInRequest) async throws -> MSALResult {
        try beginPrompting()
        defer { state.withLock { $0.isPrompting = false } }
        let hint = request.loginHint ?? request.account?.username
        var parameters = InteractiveTokenParameters(scopes: request.scopes, loginHint: hint)
        parameters.showsPage = request.showsPage
        if let prompt = request.prompt {
            let credentials = try await prompt(hint)
            try request.check(credentials?.username)
            parameters.prompt = { _ in
                credentials.map { Credentials(username: $0.username, password: $0.password) }
            }
        }
        let (asked, context) = (parameters, request.context)
        let token = try await mapping(in: .prompt, context: context) { () throws(SharedDeviceError) in
            try await shared.acquireToken(with: asked)
        }
        know(token.account)
        // The device's own prompt accepts any user.
        try request.check(token.account.username)
        return MSALResult(token, authority: request.authority ?? setup.authority, correlationId: request.correlationId)
    }

    private func beginPrompting() throws(RequestFailure) {
        let isFirst = state.withLock { state in
            defer { state.isPrompting = true }
            return !state.isPrompting
        }
        guard isFirst else {
            throw RequestFailure(
                .internal(.internalErrorInteractiveSessionAlreadyRunning),
                "could not sign in: this app is asking a person already; wait for that sign-in to end"
            )
        }
    }
}

/// A sign-in as the app asked for it. A copy, because the app may change its parameters object during the request.
struct SignInRequest: Sendable {
    let scopes: [String]
    let account: Account?
    let loginHint: String?
    let promptType: MSALPromptType
    let prompt: MSALWebviewParameters.Prompt?
    let showsPage: Bool
    let demandsClaims: Bool
    let authority: MSALAuthority?
    let correlationId: UUID

    init(_ parameters: MSALInteractiveTokenParameters) {
        scopes = parameters.scopes
        account = parameters.account?.account
        loginHint = parameters.loginHint.flatMap { $0.isEmpty ? nil : $0 }
        promptType = parameters.promptType
        prompt = parameters.webviewParameters.prompt
        showsPage = parameters.webviewParameters.showsPage
        demandsClaims = parameters.claimsRequest?.isDemand ?? false
        authority = parameters.authority
        correlationId = parameters.correlationId ?? UUID()
    }

    var context: RequestFailure.Context { RequestFailure.Context(correlationId: correlationId, account: account) }

    /// - Throws: ``RequestFailure``, −42101, if `name` is not the user name of the request's account.
    func check(_ name: String?) throws(RequestFailure) {
        guard let name, let account, name.lowercased() != account.username.lowercased() else { return }
        throw RequestFailure(
            .internal(.internalErrorMismatchedUser),
            "could not sign in: the name that was given at the prompt is not that of the request's account"
        )
    }

    func admits(_ current: Account) -> Bool {
        if let account { return account == current }
        guard let loginHint else { return true }
        return loginHint.lowercased() == current.username.lowercased()
    }
}

struct SilentRequest: Sendable {
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
