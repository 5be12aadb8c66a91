import DBus
import Dispatch
import SharedDevice
import Synchronization

// MARK: The device's mode

/// The completion block of ``MSALPublicClientApplication/getDeviceInformation(with:completionBlock:)``.
public typealias MSALDeviceInformationCompletionBlock = (_ deviceInformation: MSALDeviceInformation?, (any Error)?) ->
    Void

extension MSALPublicClientApplication {
    /// Reports whether the device is shared. By default the block runs on a queue of the system's choice.
    ///
    /// If the broker does not respond, or responds with an error, the block gets an error and no information. The
    /// device never counts as ``MSALDeviceMode/default`` then. If this object was told ``MSALDeviceMode/shared``
    /// earlier, the block gets that information together with the error. Overlapping requests each get a response.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` if this app does not use the
    /// broker or the broker does not respond. It is ``MSALInternalError/internalErrorBrokerUnknown`` if the response is
    /// a failure or not understood.
    public func getDeviceInformation(
        with parameters: MSALParameters?,
        completionBlock: @escaping MSALDeviceInformationCompletionBlock
    ) {
        let completion = Completion<DeviceState>(parameters?.completionBlockQueue, default: .global()) {
            completionBlock($0.information, $0.failure?.nsError)
        }
        Task { completion(await deviceState()) }
    }

    /// The async form, under the name that Swift gives MSAL's function. It throws if there is an error.
    public func deviceInformation(with parameters: MSALParameters?) async throws -> MSALDeviceInformation {
        let (information, failure) = await deviceState()
        if let failure { throw failure.nsError }
        guard let information else { throw unexplained.nsError }
        return information
    }

    /// The same as ``deviceInformation(with:)``.
    public func getDeviceInformation(with parameters: MSALParameters?) async throws -> MSALDeviceInformation {
        try await deviceInformation(with: parameters)
    }

    private typealias DeviceState = (information: MSALDeviceInformation?, failure: RequestFailure?)

    private func deviceState() async -> DeviceState {
        do throws(RequestFailure) {
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
            let remembered = state.withLock { $0.wasShared }
            return (
                remembered ? MSALDeviceInformation(.shared, answer: nil) : nil,
                answer.problem.map { RequestFailure($0) } ?? unexplained
            )
        }
    }

    private var unexplained: RequestFailure {
        RequestFailure(
            .internal(.internalErrorBrokerUnknown),
            "could not get the device's information: the broker names a device mode that this version does not know"
        )
    }
}

// MARK: Sign-out

/// The completion block of ``MSALPublicClientApplication/signout(with:signoutParameters:completionBlock:)``.
public typealias MSALSignoutCompletionBlock = (_ success: Bool, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Signs the account out for the whole device: its tokens are revoked, and all apps are notified. Each app deletes
    /// its own data, including this app: its next ``getCurrentAccount(with:completionBlock:)`` returns the account as
    /// the previous one. By default the block runs on the main queue.
    ///
    /// All checks come before any change. The error's internal code is one of these:
    /// - ``MSALInternalError/internalErrorInvalidParameter``: browser sign-out without ``MSALWebviewParameters``.
    /// - ``MSALInternalError/internalErrorAccountRequired``: no account is signed in.
    /// - ``MSALInternalError/internalErrorMismatchedUser``: the account is not the current one.
    /// - ``MSALInternalError/internalErrorUnauthorizedClient``
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
        let completion = Completion<Result<Void, RequestFailure>>(
            signoutParameters.completionBlockQueue,
            default: .main
        ) {
            completionBlock($0.value != nil, $0.nsError)
        }
        let request = SignoutRequest(account, signoutParameters)
        Task { completion(await outcome { () throws(RequestFailure) in try await signOut(request) }) }
    }

    /// The async form. It returns `true` or throws.
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
                "could not sign out: signoutFromBrowser needs valid MSALWebviewParameters"
            )
        }
        let context = RequestFailure.Context(account: request.account)
        let result = try await mapping(context: context) { () throws(SharedDeviceError) in
            try await shared.signout(with: request.account, signoutParameters: request.sharedParameters)
        }
        know(nil)
        if let problem = result.browser.problem {
            var failure = RequestFailure(
                .internal(.internalErrorUnexpected),
                "could not sign the browser out: \(problem). The account is signed out of the device; the person may still be signed in in "
                    + "the browser"
            )
            failure.context = context
            throw failure
        }
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

/// A sign-out as the app asked for it. A copy, because the app may change its parameters object during the request.
struct SignoutRequest: Sendable {
    let account: Account
    let fromBrowser: Bool
    let hasWebviewParameters: Bool

    init(_ account: MSALAccount, _ parameters: MSALSignoutParameters) {
        self.account = account.account
        fromBrowser = parameters.signoutFromBrowser
        hasWebviewParameters = parameters.webviewParameters != nil
    }

    var sharedParameters: SignoutParameters { SignoutParameters(signoutFromBrowser: fromBrowser) }
}
