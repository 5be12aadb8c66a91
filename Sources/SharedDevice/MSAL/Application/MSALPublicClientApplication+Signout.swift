import DBusTransport
import Dispatch
import SharedDevice

/// What ``MSALPublicClientApplication/signout(with:signoutParameters:completionBlock:)`` calls.
public typealias MSALSignoutCompletionBlock = (_ success: Bool, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Signs the account out for the whole device: its tokens end, and all apps are told. The data of the app is the app's to delete, this
    /// one's too: the next ``getCurrentAccount(with:completionBlock:)`` names the account as the previous one. By default the block runs
    /// on the main queue.
    ///
    /// Everything is checked before anything is changed. The error's internal code is ``MSALInternalError/internalErrorInvalidParameter``
    /// (a sign-out of the browser without ``MSALWebviewParameters``), ``MSALInternalError/internalErrorAccountRequired`` (nobody is signed
    /// in), ``MSALInternalError/internalErrorMismatchedUser`` (the account is not the current one),
    /// ``MSALInternalError/internalErrorUnauthorizedClient`` or ``MSALInternalError/internalBrokerNotAvailable``.
    public func signout(
        with account: MSALAccount,
        signoutParameters: MSALSignoutParameters,
        completionBlock: @escaping MSALSignoutCompletionBlock
    ) {
        let completion = Completion<Result<Void, RequestFailure>>(
            signoutParameters.completionBlockQueue,
            default: .main
        ) {
            completionBlock($0.value != nil, $0.nsError)
        }
        let request = SignoutRequest(account, signoutParameters)
        Task { completion(await outcome { () throws(RequestFailure) in try await signOut(request) }) }
    }

    /// The same as an async function; `true`, or an error is thrown.
    @discardableResult
    public func signout(with account: MSALAccount, signoutParameters: MSALSignoutParameters) async throws -> Bool {
        let request = SignoutRequest(account, signoutParameters)
        do throws(RequestFailure) {
            try await signOut(request)
        } catch {
            throw error.nsError
        }
        return true
    }

    private func signOut(_ request: SignoutRequest) async throws(RequestFailure) {
        try requireBroker("sign out")
        guard !request.fromBrowser || request.hasWebviewParameters else {
            throw .invalidParameter(
                "could not sign out: valid MSALWebviewParameters are required where signoutFromBrowser is requested"
            )
        }
        let context = RequestFailure.Context(account: request.account)
        _ = try await mapping(context: context) { () throws(SharedDeviceError) in
            try await shared.signout(with: request.account, signoutParameters: request.sharedParameters)
        }
        know(nil)
    }
}

/// A sign-out as it was asked for: the parameters are an object that the app may go on to change.
struct SignoutRequest: Sendable {
    let account: Account
    let fromBrowser: Bool
    let hasWebviewParameters: Bool

    init(_ account: MSALAccount, _ parameters: MSALSignoutParameters) {
        self.account = account.account
        fromBrowser = parameters.signoutFromBrowser
        hasWebviewParameters = parameters.webviewParameters != nil
    }

    /// What the shared device is asked for.
    var sharedParameters: SignoutParameters { SignoutParameters(signoutFromBrowser: fromBrowser) }
}
