/// The domain of every error of this module.
public let MSALErrorDomain = "MSALErrorDomain"

// MARK: Keys of an error's `userInfo`

/// The ``MSALInternalError`` code, an `Int`; present when the error's code is ``MSALError/internal``.
public let MSALInternalErrorCodeKey = "MSALInternalErrorCodeKey"
/// What was attempted, what happened and what helps, a `String`. It is written for people; no program should rely on its words.
public let MSALErrorDescriptionKey = "MSALErrorDescriptionKey"
/// The request's correlation id, a `String` in the form of a UUID; present when the request has one.
public let MSALCorrelationIDKey = "MSALCorrelationIDKey"
/// The name that the request was made for, a `String`; present when the request names one.
public let MSALDisplayableUserIdKey = "MSALDisplayableUserIdKey"
/// The account that the request was made for, a `String`; present when the request names one.
public let MSALHomeAccountIdKey = "MSALHomeAccountIdKey"
/// The error of OAuth. Never set here: the broker speaks no OAuth with the app.
public let MSALOAuthErrorKey = "MSALOAuthErrorKey"
/// The suberror of OAuth. Never set here.
public let MSALOAuthSubErrorKey = "MSALOAuthSubErrorKey"
/// What the suberror of OAuth means. Never set here.
public let MSALOAuthSubErrorDescriptionKey = "MSALOAuthSubErrorDescriptionKey"
/// The error codes of the token service. Never set here.
public let MSALSTSErrorCodesKey = "MSALSTSErrorCodesKey"
/// The headers of an HTTP answer. Never set here.
public let MSALHTTPHeadersKey = "MSALHTTPHeadersKey"
/// The status of an HTTP answer. Never set here.
public let MSALHTTPResponseCodeKey = "MSALHTTPResponseCodeKey"
/// Scopes that were asked for and not granted, a `[String]`; present with ``MSALError/serverDeclinedScopes`` where the provider has said which.
public let MSALDeclinedScopesKey = "MSALDeclinedScopesKey"
/// Scopes that were granted while others were declined, a `[String]`; present with ``MSALDeclinedScopesKey``. A request for these alone is granted.
public let MSALGrantedScopesKey = "MSALGrantedScopesKey"
/// The broker's version. Never set here; ``MSALDeviceInformation/extraDeviceInformation`` has it.
public let MSALBrokerVersionKey = "MSALBrokerVersionKey"
/// A result that did not pass validation. Never set here.
public let MSALInvalidResultKey = "MSALInvalidResultKey"
/// Whether this is an earlier answer, given again. Never set here.
public let MSALThrottlingCacheHitKey = "MSALThrottlingCacheHitKey"

// MARK: Codes

/// The codes of errors in ``MSALErrorDomain`` that an app handles.
public enum MSALError: Int, Sendable, CaseIterable {
    /// An error that the app cannot settle by itself; the ``MSALInternalError`` under ``MSALInternalErrorCodeKey`` says more.
    case `internal` = -50000
    /// The device has to be joined to its organisation first.
    case workplaceJoinRequired = -50001
    /// A person has to sign in: call ``MSALPublicClientApplication/acquireToken(with:completionBlock:)``.
    case interactionRequired = -50002
    /// The organisation's provider does not grant all scopes that were asked for; the description names those that it grants.
    case serverDeclinedScopes = -50003
    /// The app has to meet a protection policy first. The broker never answers so.
    case serverProtectionPoliciesRequired = -50004
    /// The person at the prompt gave up.
    case userCanceled = -50005
    /// The organisation's provider cannot be reached, or does not fit the device's configuration.
    case serverError = -50006
    /// The device's key is not strong enough. The broker never answers so.
    case insufficientDeviceStrength = -50007
    /// The device was enrolled meanwhile; repeat the request. The broker never answers so.
    case mdmEnrollmentCompletedNeedsRetry = -50008
    /// The password has to be set anew. The broker never answers so.
    case serverInvalidRequestResetPasswordRequired = -50142
}

/// What an error of the code ``MSALError/internal`` is about, under ``MSALInternalErrorCodeKey``.
///
/// The cases are spelled as Swift sees MSAL's. Those that this module raises say when; the others exist for code that compares with them.
/// The codes of just-in-time registration and platform SSO, −42715 to −42744, are left out.
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
    /// The app may not take part, or may not do this.
    case internalErrorUnauthorizedClient = -42006
    /// Not raised here.
    case internalErrorUnhandledResponse = -42007
    /// Anything without a code of its own, for instance that the app's record cannot be read.
    case internalErrorUnexpected = -42008
    /// Not raised here.
    case internalErrorUnexpectedHttpResponse = -42009
    /// Not raised here.
    case internalErrorFailedAuthorityValidation = -42010
    /// Not raised here.
    case internalErrorInvalidRedirectURI = -42011
    /// Another account is signed in than the request names, or somebody is signed in already.
    case internalErrorMismatchedUser = -42101
    /// The app holds data of an earlier account. It has to delete that data, and to report the cleanup, first.
    case internalErrorAmbiguousAccount = -42102
    /// Name and password do not fit, too many wrong ones were given, or the sign-in is refused for another reason.
    case internalErrorAuthorizationFailed = -42104
    /// Nobody is signed in, or no account matches.
    case internalErrorAccountRequired = -42106
    /// Not raised here.
    case internalErrorSessionCanceled = -42401
    /// This application object is prompting already.
    case internalErrorInteractiveSessionAlreadyRunning = -42402
    /// Nobody can be asked: there is neither a terminal nor a display, `shared-device-sign-in` is not installed, or the view controller that was to
    /// ask is gone.
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
    /// The broker answered with a failure of its own, or with something that this version does not understand.
    case internalErrorBrokerUnknown = -42711
    /// Not raised here.
    case internalErrorBrokerApplicationTokenWriteFailed = -42712
    /// Not raised here.
    case internalErrorBrokerApplicationTokenReadFailed = -42713
    /// No broker serves the request: it does not answer, the device is not shared, or this app has turned the broker off or has a redirect
    /// URI that the broker does not serve.
    case internalBrokerNotAvailable = -42714
    /// Not raised here.
    case internalErrorInvalidASWebAuthenticationURL = -42745
}
