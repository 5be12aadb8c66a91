import Foundation
import SharedDevice

/// Why a request was not fulfilled, before it becomes the `NSError` that MSAL's callers expect.
struct RequestFailure: Error {
    let codes: ErrorCodes
    let description: String
    /// What ``SharedDevice`` said, where it was asked.
    var underlying: SharedDeviceError?
    var context = Context()

    /// What the request named.
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

    /// A parameter is missing or has no meaning.
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
        if let id = context.correlationId { information[MSALCorrelationIDKey] = id.uuidString }
        if let account = context.account {
            information[MSALDisplayableUserIdKey] = account.username
            information[MSALHomeAccountIdKey] = account.identifier
        }
        return NSError(domain: MSALErrorDomain, code: codes.code.rawValue, userInfo: information)
    }
}
