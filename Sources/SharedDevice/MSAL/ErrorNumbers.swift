import Foundation
import SharedDevice

/// The domain of every error of this module.
public let MSALErrorDomain = "MSALErrorDomain"

// MARK: Keys of an error's `userInfo`

/// The ``MSALInternalError`` code, an `Int`; present when the error's code is ``MSALError/internal``.
public let MSALInternalErrorCodeKey = "MSALInternalErrorCodeKey"
/// A `String` that says which operation failed, why, and how to fix it. It is for people; programs must not parse it.
public let MSALErrorDescriptionKey = "MSALErrorDescriptionKey"
/// The request's correlation id, a `String` in the form of a UUID; present when the request has one.
public let MSALCorrelationIDKey = "MSALCorrelationIDKey"
/// The user name of the account in the request, a `String`; present when the request names an account.
public let MSALDisplayableUserIdKey = "MSALDisplayableUserIdKey"
/// The identifier of the account in the request, a `String`; present when the request names an account.
public let MSALHomeAccountIdKey = "MSALHomeAccountIdKey"
/// The OAuth error. Never set here: the broker speaks no OAuth with the app.
public let MSALOAuthErrorKey = "MSALOAuthErrorKey"
/// The OAuth suberror. Never set here.
public let MSALOAuthSubErrorKey = "MSALOAuthSubErrorKey"
/// The meaning of the OAuth suberror. Never set here.
public let MSALOAuthSubErrorDescriptionKey = "MSALOAuthSubErrorDescriptionKey"
/// The error codes of the token service. Never set here.
public let MSALSTSErrorCodesKey = "MSALSTSErrorCodesKey"
/// The headers of an HTTP response. Never set here.
public let MSALHTTPHeadersKey = "MSALHTTPHeadersKey"
/// The status of an HTTP response. Never set here.
public let MSALHTTPResponseCodeKey = "MSALHTTPResponseCodeKey"
/// The requested scopes that were declined, a `[String]`; present with ``MSALError/serverDeclinedScopes`` if the
/// provider has named them.
public let MSALDeclinedScopesKey = "MSALDeclinedScopesKey"
/// The scopes that the provider grants although it declined others, a `[String]`; present with
/// ``MSALDeclinedScopesKey``. A request for only these scopes is granted.
public let MSALGrantedScopesKey = "MSALGrantedScopesKey"
/// The broker's version. Never set here: see ``MSALDeviceInformation/extraDeviceInformation``.
public let MSALBrokerVersionKey = "MSALBrokerVersionKey"
/// A result that did not pass validation. Never set here.
public let MSALInvalidResultKey = "MSALInvalidResultKey"
/// Whether the response came from a cache. Never set here.
public let MSALThrottlingCacheHitKey = "MSALThrottlingCacheHitKey"

// MARK: Codes

/// The codes of errors in ``MSALErrorDomain`` that an app handles.
public enum MSALError: Int, Sendable, CaseIterable {
    /// An error that the app cannot resolve by itself; the ``MSALInternalError`` under ``MSALInternalErrorCodeKey``
    /// says more.
    case `internal` = -50000
    /// The device has to be joined to its organisation first.
    case workplaceJoinRequired = -50001
    /// A person has to sign in: call ``MSALPublicClientApplication/acquireToken(with:completionBlock:)``.
    case interactionRequired = -50002
    /// The organisation's provider does not grant all requested scopes; the description names those it grants.
    case serverDeclinedScopes = -50003
    /// The app has to meet a protection policy first. The broker never returns this.
    case serverProtectionPoliciesRequired = -50004
    /// The person cancelled the prompt.
    case userCanceled = -50005
    /// The organisation's provider is unreachable, or does not match the device's configuration.
    case serverError = -50006
    /// The device's key is not strong enough. The broker never returns this.
    case insufficientDeviceStrength = -50007
    /// The device was enrolled during the request; retry it. The broker never returns this.
    case mdmEnrollmentCompletedNeedsRetry = -50008
    /// The password has to be reset. The broker never returns this.
    case serverInvalidRequestResetPasswordRequired = -50142
}

/// The reason for a ``MSALError/internal`` error, under ``MSALInternalErrorCodeKey``.
///
/// The cases are spelled as Swift imports MSAL's. Some are raised by this module and say when; the others exist for
/// code that compares with them. The codes of just-in-time registration and platform SSO, −42715 to −42744, are left
/// out.
public enum MSALInternalError: Int, Sendable, CaseIterable {
    /// A parameter is missing or has no meaning. Nothing was changed.
    case internalErrorInvalidParameter = -42000
    /// Not raised here.
    case internalErrorRedirectSchemeNotRegistered = -42001
    /// Not raised here.
    case internalErrorInvalidRequest = -42002
    /// Not raised here.
    case internalErrorInvalidClient = -42003
    /// Not raised here.
    case internalErrorInvalidGrant = -42004
    /// Not raised here.
    case internalErrorInvalidScope = -42005
    /// The app is not allowed to take part, or not allowed to make this request.
    case internalErrorUnauthorizedClient = -42006
    /// Not raised here.
    case internalErrorUnhandledResponse = -42007
    /// Any failure without a more specific code, for instance an app record that cannot be read.
    case internalErrorUnexpected = -42008
    /// Not raised here.
    case internalErrorUnexpectedHttpResponse = -42009
    /// Not raised here.
    case internalErrorFailedAuthorityValidation = -42010
    /// Not raised here.
    case internalErrorInvalidRedirectURI = -42011
    /// The request names an account other than the current one, or asks for a sign-in while an account is signed in.
    case internalErrorMismatchedUser = -42101
    /// The app holds data of an earlier account. It must first delete that data and report the cleanup.
    case internalErrorAmbiguousAccount = -42102
    /// Name and password do not match, there were too many wrong passwords, or the sign-in is refused for another
    /// reason.
    case internalErrorAuthorizationFailed = -42104
    /// No account is signed in, or no account matches.
    case internalErrorAccountRequired = -42106
    /// Not raised here.
    case internalErrorSessionCanceled = -42401
    /// This application object is already prompting.
    case internalErrorInteractiveSessionAlreadyRunning = -42402
    /// No prompt can be shown: there is neither a terminal nor a display, `shared-device-sign-in` is not installed, or
    /// the view controller no longer exists.
    case internalErrorNoViewController = -42403
    /// Not raised here.
    case internalErrorAttemptToOpenURLFromExtension = -42404
    /// Not raised here.
    case internalErrorUINotSupportedInExtension = -42405
    /// Not raised here.
    case internalErrorInvalidState = -42501
    /// Not raised here.
    case internalErrorInvalidResponse = -42600
    /// Not raised here.
    case internalErrorNonHttpsRedirect = -42602
    /// Not raised here.
    case internalErrorBrokerResponseNotReceived = -42700
    /// Not raised here.
    case internalErrorBrokerNoResumeStateFound = -42701
    /// Not raised here.
    case internalErrorBrokerBadResumeStateFound = -42702
    /// Not raised here.
    case internalErrorBrokerMismatchedResumeState = -42703
    /// Not raised here.
    case internalErrorBrokerResponseHashMissing = -42704
    /// Not raised here.
    case internalErrorBrokerCorruptedResponse = -42705
    /// Not raised here.
    case internalErrorBrokerResponseDecryptionFailed = -42706
    /// Not raised here.
    case internalErrorBrokerResponseHashMismatch = -42707
    /// Not raised here.
    case internalErrorBrokerKeyFailedToCreate = -42708
    /// Not raised here.
    case internalErrorBrokerKeyNotFound = -42709
    /// The broker returned an internal failure, or a response that this version does not understand.
    case internalErrorBrokerUnknown = -42711
    /// Not raised here.
    case internalErrorBrokerApplicationTokenWriteFailed = -42712
    /// Not raised here.
    case internalErrorBrokerApplicationTokenReadFailed = -42713
    /// No broker serves the request: the broker does not respond, or the device is not shared. Or the app has turned
    /// the broker off, or has a redirect URI that the broker does not serve.
    case internalBrokerNotAvailable = -42714
    /// Not raised here.
    case internalErrorInvalidASWebAuthenticationURL = -42745
}

// MARK: Errors of requests

extension NSError {
    /// Creates an error of ``MSALErrorDomain``, with the correlation id and the account that the request names, if any.
    convenience init(
        _ codes: ErrorCodes,
        _ description: String,
        underlying: SharedDeviceError? = nil,
        correlationId: UUID? = nil,
        account: Account? = nil
    ) {
        var information: [String: Any] = [
            NSLocalizedDescriptionKey: description, MSALErrorDescriptionKey: description,
        ]
        if let code = codes.internalCode { information[MSALInternalErrorCodeKey] = code.rawValue }
        if let underlying { information[NSUnderlyingErrorKey] = underlying }
        if let underlying, !underlying.declinedScopes.isEmpty {
            information[MSALDeclinedScopesKey] = underlying.declinedScopes
            information[MSALGrantedScopesKey] = underlying.grantedScopes
        }
        if let correlationId { information[MSALCorrelationIDKey] = correlationId.uuidString }
        if let account {
            information[MSALDisplayableUserIdKey] = account.username
            information[MSALHomeAccountIdKey] = account.identifier
        }
        self.init(domain: MSALErrorDomain, code: codes.code.rawValue, userInfo: information)
    }

    convenience init(
        _ error: SharedDeviceError,
        in request: ErrorCodes.Request = .other,
        correlationId: UUID? = nil,
        account: Account? = nil
    ) {
        let codes = ErrorCodes(error.code, in: request)
        self.init(codes, error.description, underlying: error, correlationId: correlationId, account: account)
    }

    static func invalidParameter(_ description: String) -> NSError {
        NSError(.internal(.internalErrorInvalidParameter), description)
    }
}

/// Runs `body`, which calls ``SharedDeviceApplication``, and translates its error to MSAL's codes.
func mapping<Success>(
    in request: ErrorCodes.Request = .other,
    correlationId: UUID? = nil,
    account: Account? = nil,
    _ body: () async throws -> Success
) async throws -> Success {
    do {
        return try await body()
    } catch let error as SharedDeviceError {
        throw NSError(error, in: request, correlationId: correlationId, account: account)
    }
}

/// An error's code and, for ``MSALError/internal``, the internal code that goes with it. As in MSAL, only a handful of
/// codes are surfaced; all others are internal.
struct ErrorCodes: Sendable, Equatable {
    let code: MSALError
    let internalCode: MSALInternalError?

    private init(_ code: MSALError, _ internalCode: MSALInternalError? = nil) {
        self.code = code
        self.internalCode = internalCode
    }

    static func surfaced(_ code: MSALError) -> ErrorCodes { ErrorCodes(code) }

    static func `internal`(_ code: MSALInternalError) -> ErrorCodes { ErrorCodes(.internal, code) }

    enum Request: Sendable {
        /// A token request without a prompt. If a person could help, the code is ``MSALError/interactionRequired``,
        /// which makes apps prompt.
        case silentToken
        /// A sign-in at the device's own prompt. The broker's “interaction required” then means that no prompt can be
        /// shown.
        case prompt
        case other
    }

    init(_ code: SharedDeviceError.Code, in request: Request = .other) {
        if request == .silentToken, Self.settledByPerson.contains(code) {
            self = .surfaced(.interactionRequired)
        } else if request == .prompt, code == .interactionRequired {
            self = .internal(.internalErrorNoViewController)
        } else {
            self = Self.table[code] ?? .internal(.internalErrorUnexpected)
        }
    }

    private static let settledByPerson: Set<SharedDeviceError.Code> = [.noCurrentAccount, .authenticationFailed]

    /// A code without a row becomes −42008, as in MSAL.
    static let table: [SharedDeviceError.Code: ErrorCodes] = [
        .brokerUnavailable: .internal(.internalBrokerNotAvailable),
        .notSharedDevice: .internal(.internalBrokerNotAvailable),
        .noCurrentAccount: .internal(.internalErrorAccountRequired),
        .currentAccountMismatch: .internal(.internalErrorMismatchedUser),
        .accountAlreadySignedIn: .internal(.internalErrorMismatchedUser),
        .authenticationFailed: .internal(.internalErrorAuthorizationFailed),
        .tooManyAttempts: .internal(.internalErrorAuthorizationFailed),
        .tenantMismatch: .internal(.internalErrorAuthorizationFailed),
        .userNotAllowed: .internal(.internalErrorAuthorizationFailed),
        .cleanupPending: .internal(.internalErrorAuthorizationFailed),
        // MSAL's “more than one account”: apps respond to it by deleting their account data, which is what is due here.
        .cleanupRequired: .internal(.internalErrorAmbiguousAccount),
        .userCanceled: .surfaced(.userCanceled),
        .deviceNotJoined: .surfaced(.workplaceJoinRequired),
        .invalidRequest: .internal(.internalErrorInvalidParameter),
        .appNotEligible: .internal(.internalErrorUnauthorizedClient),
        .notPermitted: .internal(.internalErrorUnauthorizedClient),
        .brokerFailed: .internal(.internalErrorBrokerUnknown),
        .recordUnusable: .internal(.internalErrorUnexpected),
        .interactionRequired: .surfaced(.interactionRequired),
        .providerUnavailable: .surfaced(.serverError),
        .providerMisconfigured: .surfaced(.serverError),
        .loginExpired: .internal(.internalErrorAuthorizationFailed),
        .scopesDeclined: .surfaced(.serverDeclinedScopes),
    ]
}
