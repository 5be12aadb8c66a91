/// What an error of the code ``MSALError/internal`` is about, under ``MSALInternalErrorCodeKey``.
///
/// The cases are spelled as Swift sees MSAL's. Those that this module raises say when; the others are here for code that
/// compares with them. Just-in-time registration and platform SSO, codes −42715 to −42745 but for these here, have none.
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
    /// Anything that has no code of its own, for instance a record of the app's that cannot be read.
    case internalErrorUnexpected = -42008
    /// Not raised here.
    case internalErrorUnexpectedHttpResponse = -42009
    /// Not raised here.
    case internalErrorFailedAuthorityValidation = -42010
    /// Not raised here.
    case internalErrorInvalidRedirectURI = -42011
    /// Another account is signed in than the request names, or somebody is signed in already.
    case internalErrorMismatchedUser = -42101
    /// The app holds data of an earlier account: it has to delete that, and to report it, first.
    case internalErrorAmbiguousAccount = -42102
    /// Name and password do not fit, too many wrong ones were given, or the sign-in is refused for another reason.
    case internalErrorAuthorizationFailed = -42104
    /// Nobody is signed in, or no account is as described.
    case internalErrorAccountRequired = -42106
    /// Not raised here.
    case internalErrorSessionCanceled = -42401
    /// This application object is prompting already.
    case internalErrorInteractiveSessionAlreadyRunning = -42402
    /// There is no way to ask the person: no terminal, and no prompt was given.
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
    /// The broker answered with a failure of its own, or with something that makes no sense.
    case internalErrorBrokerUnknown = -42711
    /// Not raised here.
    case internalErrorBrokerApplicationTokenWriteFailed = -42712
    /// Not raised here.
    case internalErrorBrokerApplicationTokenReadFailed = -42713
    /// There is no broker to ask: it does not answer, this app's redirect URI makes it none of the broker's apps, or the device
    /// is not shared.
    case internalBrokerNotAvailable = -42714
    /// Not raised here.
    case internalErrorInvalidASWebAuthenticationURL = -42745
}
