import Foundation
import SharedDevice

/// Why a request failed. It becomes the `NSError` that MSAL's callers expect.
struct RequestFailure: Error {
    let codes: ErrorCodes
    let description: String
    var underlying: SharedDeviceError?
    var context = Context()

    struct Context: Sendable {
        var correlationId: UUID?
        var account: Account?
    }

    init(_ codes: ErrorCodes, _ description: String) {
        self.codes = codes
        self.description = description
    }

    init(_ error: SharedDeviceError, in request: ErrorCodes.Request = .other, context: Context = Context()) {
        codes = ErrorCodes(error.code, in: request)
        description = error.description
        underlying = error
        self.context = context
    }

    static func invalidParameter(_ description: String) -> RequestFailure {
        RequestFailure(.internal(.internalErrorInvalidParameter), description)
    }

    var nsError: NSError {
        var information: [String: Any] = [
            NSLocalizedDescriptionKey: description,
            MSALErrorDescriptionKey: description,
        ]
        if let code = codes.internalCode { information[MSALInternalErrorCodeKey] = code.rawValue }
        if let underlying { information[NSUnderlyingErrorKey] = underlying }
        if let underlying, !underlying.declinedScopes.isEmpty {
            information[MSALDeclinedScopesKey] = underlying.declinedScopes
            information[MSALGrantedScopesKey] = underlying.grantedScopes
        }
        if let id = context.correlationId { information[MSALCorrelationIDKey] = id.uuidString }
        if let account = context.account {
            information[MSALDisplayableUserIdKey] = account.username
            information[MSALHomeAccountIdKey] = account.identifier
        }
        return NSError(domain: MSALErrorDomain, code: codes.code.rawValue, userInfo: information)
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
