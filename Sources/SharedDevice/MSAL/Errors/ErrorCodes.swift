import SharedDevice

/// An error's code and, where that is ``MSALError/internal``, the internal one: MSAL's rule is that a handful of codes is surfaced
/// as such, and everything else is internal.
struct ErrorCodes: Sendable, Equatable {
    let code: MSALError
    let internalCode: MSALInternalError?

    private init(_ code: MSALError, _ internalCode: MSALInternalError? = nil) {
        self.code = code
        self.internalCode = internalCode
    }

    /// The code of its own.
    static func surfaced(_ code: MSALError) -> ErrorCodes { ErrorCodes(code) }

    /// The code ``MSALError/internal`` with this one beside it.
    static func `internal`(_ code: MSALInternalError) -> ErrorCodes { ErrorCodes(.internal, code) }

    /// What kind of request failed.
    enum Request: Sendable {
        /// A token without asking anybody. Where a person could help, the answer is ``MSALError/interactionRequired``: that is what
        /// apps wait for before they prompt.
        case silentToken
        /// Anything else.
        case other
    }

    /// MSAL's codes for what ``SharedDevice`` says.
    init(_ code: SharedDeviceError.Code, in request: Request = .other) {
        if request == .silentToken, Self.settledByPerson.contains(code) {
            self = .surfaced(.interactionRequired)
        } else {
            self = Self.table[code] ?? .internal(.internalErrorUnexpected)
        }
    }

    private static let settledByPerson: Set<SharedDeviceError.Code> = [.noCurrentAccount, .authenticationFailed]

    /// One row for each code; anything that is not here is −42008, as in MSAL.
    static let table: [SharedDeviceError.Code: ErrorCodes] = [
        .brokerUnavailable: .internal(.internalBrokerNotAvailable),
        .notSharedDevice: .internal(.internalBrokerNotAvailable),
        .noCurrentAccount: .internal(.internalErrorAccountRequired),
        .currentAccountMismatch: .internal(.internalErrorMismatchedUser),
        .accountAlreadySignedIn: .internal(.internalErrorMismatchedUser),
        .authenticationFailed: .internal(.internalErrorAuthorizationFailed),
        .tooManyAttempts: .internal(.internalErrorAuthorizationFailed),
        .tenantMismatch: .internal(.internalErrorAuthorizationFailed),
        .cleanupPending: .internal(.internalErrorAuthorizationFailed),
        // Apps answer to this one by deleting what they hold of accounts, which is what is due.
        .cleanupRequired: .internal(.internalErrorAmbiguousAccount),
        .userCanceled: .surfaced(.userCanceled),
        .deviceNotJoined: .surfaced(.workplaceJoinRequired),
        .invalidRequest: .internal(.internalErrorInvalidParameter),
        .appNotEligible: .internal(.internalErrorUnauthorizedClient),
        .notPermitted: .internal(.internalErrorUnauthorizedClient),
        .brokerFailed: .internal(.internalErrorBrokerUnknown),
        .recordUnusable: .internal(.internalErrorUnexpected),
    ]
}
