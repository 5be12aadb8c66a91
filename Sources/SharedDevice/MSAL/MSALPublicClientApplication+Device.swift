import DBusTransport
import Dispatch
import SharedDevice
import Synchronization

// MARK: The device's mode

/// What ``MSALPublicClientApplication/getDeviceInformation(with:completionBlock:)`` calls.
public typealias MSALDeviceInformationCompletionBlock = (_ deviceInformation: MSALDeviceInformation?, (any Error)?) ->
    Void

extension MSALPublicClientApplication {
    /// Whether the device is shared. By default the block runs on a queue of the system's choice.
    ///
    /// If the broker does not answer, or answers with an error, there is an error and no information; the device never counts as
    /// ``MSALDeviceMode/default`` then. An object that was told ``MSALDeviceMode/shared`` before says so again, with the error beside it. Each
    /// of several overlapping requests is answered.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` if this app does not use the broker or the broker does
    /// not answer, ``MSALInternalError/internalErrorBrokerUnknown`` if the broker's answer is a failure or not understood.
    public func getDeviceInformation(
        with parameters: MSALParameters?,
        completionBlock: @escaping MSALDeviceInformationCompletionBlock
    ) {
        let completion = Completion<DeviceState>(parameters?.completionBlockQueue, default: .global()) {
            completionBlock($0.information, $0.failure?.nsError)
        }
        Task { completion(await deviceState()) }
    }

    /// The same as an async function, under the name that Swift gives MSAL's. It throws if there is an error.
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

/// What ``MSALPublicClientApplication/signout(with:signoutParameters:completionBlock:)`` calls.
public typealias MSALSignoutCompletionBlock = (_ success: Bool, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Signs the account out for the whole device: its tokens end, and all apps are told. Each app deletes its own data, this one too: its
    /// next ``getCurrentAccount(with:completionBlock:)`` names the account as the previous one. By default the block runs on the main queue.
    ///
    /// Everything is checked before anything is changed. The error's internal code is ``MSALInternalError/internalErrorInvalidParameter``
    /// (a sign-out of the browser without ``MSALWebviewParameters``), ``MSALInternalError/internalErrorAccountRequired`` (nobody is signed
    /// in), ``MSALInternalError/internalErrorMismatchedUser`` (the account is not the current one),
    /// ``MSALInternalError/internalErrorUnauthorizedClient`` or ``MSALInternalError/internalBrokerNotAvailable``.
    ///
    /// With ``MSALSignoutParameters/signoutFromBrowser`` the request also fails if the browser's end-session page does
    /// not open, with ``MSALInternalError/internalErrorUnexpected``. The account is signed out of the device even so,
    /// as the error says.
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
    /// Why the browser may still have the person signed in; `nil` if nothing is known to be wrong.
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

/// A sign-out as the app asked for it. The app may change its parameters object meanwhile.
struct SignoutRequest: Sendable {
    let account: Account
    let fromBrowser: Bool
    let hasWebviewParameters: Bool

    init(_ account: MSALAccount, _ parameters: MSALSignoutParameters) {
        self.account = account.account
        fromBrowser = parameters.signoutFromBrowser
        hasWebviewParameters = parameters.webviewParameters != nil
    }

    /// The request to the shared device.
    var sharedParameters: SignoutParameters { SignoutParameters(signoutFromBrowser: fromBrowser) }
}
