import Foundation

/// The domain of every error of this module.
public let MSALErrorDomain = "MSALErrorDomain"

// MARK: Keys of an error's `userInfo`

/// The ``MSALInternalError`` code, an `Int`; there where the error's code is ``MSALError/internal``.
public let MSALInternalErrorCodeKey = "MSALInternalErrorCodeKey"
/// What was attempted, what happened and what helps, a `String`. For people: no program should rely on its words.
public let MSALErrorDescriptionKey = "MSALErrorDescriptionKey"
/// The request's correlation id, a `String` in the form of a UUID; there where the request had one.
public let MSALCorrelationIDKey = "MSALCorrelationIDKey"
/// The name that the request was made for, a `String`; there where it named one.
public let MSALDisplayableUserIdKey = "MSALDisplayableUserIdKey"
/// The account that the request was made for, a `String`; there where it named one.
public let MSALHomeAccountIdKey = "MSALHomeAccountIdKey"
/// The error of OAuth. Never set here: the broker speaks no OAuth with the app.
public let MSALOAuthErrorKey = "MSALOAuthErrorKey"
/// The suberror of OAuth. Never set here.
public let MSALOAuthSubErrorKey = "MSALOAuthSubErrorKey"
/// The error codes of the token service. Never set here.
public let MSALSTSErrorCodesKey = "MSALSTSErrorCodesKey"
/// The headers of an HTTP answer. Never set here.
public let MSALHTTPHeadersKey = "MSALHTTPHeadersKey"
/// The status of an HTTP answer. Never set here.
public let MSALHTTPResponseCodeKey = "MSALHTTPResponseCodeKey"
/// Scopes that were asked for and not granted. Never set here: the broker grants all of them or none.
public let MSALDeclinedScopesKey = "MSALDeclinedScopesKey"
/// Scopes that were granted where others were not. Never set here.
public let MSALGrantedScopesKey = "MSALGrantedScopesKey"
/// The broker's version. Never set here; ``MSALDeviceInformation/extraDeviceInformation`` has it.
public let MSALBrokerVersionKey = "MSALBrokerVersionKey"
/// A result that did not pass validation. Never set here.
public let MSALInvalidResultKey = "MSALInvalidResultKey"
/// Whether an earlier answer was given again. Never set here.
public let MSALThrottlingCacheHitKey = "MSALThrottlingCacheHitKey"
