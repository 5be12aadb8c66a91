import Dispatch
import SharedDevice

/// Receipts, which MSAL has none of.
extension MSALPublicClientApplication {
    /// Reports that the data of a previous account, as ``getCurrentAccount(with:completionBlock:)`` gave it, is gone from disk and screen.
    /// Not before: what is reported is not asked for again. For an app with ``MSALPublicClientApplicationConfig/reportsCleanup``; in any
    /// other it reports at once what the next request would. Of an account that is nobody's debt it reports nothing.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorUnexpected`` where the app's record cannot be written; the account is then
    ///   reported again.
    public func cleanupDone(of previousAccount: MSALAccount) async throws {
        guard let debt = previousAccount.debt else { return }
        do throws(SharedDeviceError) {
            try await shared.cleanupDone(debt)
        } catch {
            throw RequestFailure(error).nsError
        }
    }

    /// The same for code without async functions. The block runs on a queue of the system's choice.
    public func cleanupDone(
        of previousAccount: MSALAccount,
        completionBlock: @escaping (_ success: Bool, (any Error)?) -> Void
    ) {
        let completion = Completion<(any Error)?>(nil, default: .global()) { completionBlock($0 == nil, $0) }
        Task {
            do {
                try await cleanupDone(of: previousAccount)
                completion(nil)
            } catch {
                completion(error)
            }
        }
    }
}
