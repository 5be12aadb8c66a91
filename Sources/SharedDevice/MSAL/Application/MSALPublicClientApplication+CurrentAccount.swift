import DBusTransport
import Dispatch
import SharedDevice
import Synchronization

/// What ``MSALPublicClientApplication/getCurrentAccount(with:completionBlock:)`` calls.
public typealias MSALCurrentAccountCompletionBlock = (
    _ account: MSALAccount?, _ previousAccount: MSALAccount?, (any Error)?
) -> Void

extension MSALPublicClientApplication {
    /// Who is signed in on the device, and whom this app was told before. Ask at the start, on each broadcast, when the app comes back to
    /// the foreground, and before work in the background. By default the block runs on a queue of the system's choice.
    ///
    /// The rule: where there is a previous account and it is not the current one, delete its data from disk and screen, whatever the
    /// current one is. A change counts as settled when the app makes its next request for an account or a token in the same process, after
    /// the block has returned: so delete in the block, not later. With ``MSALPublicClientApplicationConfig/reportsCleanup`` it is settled
    /// when the app calls ``cleanupDone(of:)``. Until then it is reported again, also after a crash. A device whose policy is strict takes nothing but ``cleanupDone(of:)`` for a receipt. A request that fails settles
    /// nothing.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` where the broker does not answer,
    /// ``MSALInternalError/internalErrorUnexpected`` where the app's record of whose data it holds cannot be read or written.
    public func getCurrentAccount(
        with parameters: MSALParameters?,
        completionBlock: @escaping MSALCurrentAccountCompletionBlock
    ) {
        let completion = Completion<Result<ReportedAccounts, RequestFailure>>(
            parameters?.completionBlockQueue,
            default: .global()
        ) {
            completionBlock($0.value?.current, $0.value?.previous, $0.nsError)
        }
        Task {
            let accounts = await outcome { () throws(RequestFailure) in try await reportedAccounts() }
            completion(accounts, after: { [self] in handedOver(accounts.value) })
        }
    }

    /// The same as an async function, under the name that Swift gives MSAL's.
    public func currentAccount(with parameters: MSALParameters?) async throws -> (MSALAccount?, MSALAccount?) {
        let accounts = await outcome { () throws(RequestFailure) in try await reportedAccounts() }
        if let error = accounts.nsError { throw error }
        handedOver(accounts.value)
        return (accounts.value?.current, accounts.value?.previous)
    }

    /// The same as ``currentAccount(with:)``.
    public func getCurrentAccount(with parameters: MSALParameters?) async throws -> (MSALAccount?, MSALAccount?) {
        try await currentAccount(with: parameters)
    }

    /// What the app is told.
    struct ReportedAccounts: Sendable {
        let current: MSALAccount?
        let previous: MSALAccount?
    }

    private func reportedAccounts() async throws(RequestFailure) -> ReportedAccounts {
        try requireBroker("get the current account")
        try await settle()
        let report = try await mapping { () throws(SharedDeviceError) in try await shared.reportCurrentAccount() }
        let change = report.change
        know(change.current)
        // One at a time: MSAL's callers know but one previous account, and what they are not told they cannot delete.
        let previous = change.previous.map { MSALAccount($0, debt: change.part(of: $0)) }
        return ReportedAccounts(
            current: change.current.map { MSALAccount($0) },
            previous: previous ?? report.previous.map { MSALAccount($0) }
        )
    }

    /// The app has been told: its next request settles the change. Requests that come while its block deletes do not. Not one that MSAL's callers cannot see, because the same person
    /// has come back: they have not deleted anything then.
    private func handedOver(_ accounts: ReportedAccounts?) {
        guard !setup.reportsCleanup, let previous = accounts?.previous, let debt = previous.debt,
            previous != accounts?.current
        else { return }
        state.withLock { $0.toSettle.append(debt) }
    }

    /// Reports what the app was told of before, and has not objected to by asking for nothing more.
    func settle() async throws(RequestFailure) {
        while let debt = state.withLock({ $0.toSettle.popLast() }) {
            do throws(SharedDeviceError) {
                try await shared.cleanupImplied(debt)
            } catch {
                state.withLock { $0.toSettle.append(debt) }
                throw RequestFailure(error)
            }
        }
    }
}
