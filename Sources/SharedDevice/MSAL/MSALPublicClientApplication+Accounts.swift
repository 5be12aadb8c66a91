import DBusTransport
import Dispatch
import SharedDevice
import Synchronization

// MARK: The current account

/// What ``MSALPublicClientApplication/getCurrentAccount(with:completionBlock:)`` calls.
public typealias MSALCurrentAccountCompletionBlock = (
    _ account: MSALAccount?, _ previousAccount: MSALAccount?, (any Error)?
) -> Void

extension MSALPublicClientApplication {
    /// Who is signed in on the device, and whom this app was told of before. Ask at the start, on each broadcast, when the app comes back
    /// to the foreground, and before work in the background. By default the block runs on a queue of the system's choice.
    ///
    /// The rule: if there is a previous account and it is not the current one, delete its data from disk and screen, whatever the current
    /// one is. Delete in the block: the change counts as settled when the app, after the block has returned, asks for an account or a token
    /// again in the same process. With ``MSALPublicClientApplicationConfig/reportsCleanup`` it is settled when the app calls
    /// ``cleanupDone(of:)``. Until then the app is told again, also after a crash. A device with a strict policy accepts only
    /// ``cleanupDone(of:)`` as a receipt. A request that fails settles nothing.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` if the broker does not answer,
    /// ``MSALInternalError/internalErrorUnexpected`` if the app's record of whose data it holds cannot be read or written.
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
            completion(accounts, after: { [self] in handedOver(accounts.value, to: nil) })
        }
    }

    /// The same as an async function, under the name that Swift gives MSAL's. It does not see when its caller has deleted the data. So the
    /// change counts as settled by the next request of the same task, or the next question for the current account of any task. An app
    /// that asks from several tasks at a time calls ``cleanupDone(of:)``.
    public func currentAccount(with parameters: MSALParameters?) async throws -> (MSALAccount?, MSALAccount?) {
        let accounts = await outcome { () throws(RequestFailure) in try await reportedAccounts() }
        if let error = accounts.nsError { throw error }
        handedOver(accounts.value, to: withUnsafeCurrentTask { $0?.hashValue })
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
        try await settle(byQuestion: true)
        let report = try await mapping { () throws(SharedDeviceError) in try await shared.reportCurrentAccount() }
        let change = report.change
        know(change.current)
        // One at a time: MSAL's callers see a single previous account, and they cannot delete what they are not told of.
        let previous = change.previous.map { described($0, debt: change.part(of: $0)) }
        return ReportedAccounts(
            current: change.current.map { described($0) },
            previous: previous ?? report.previous.map { described($0) }
        )
    }

    /// The app's block has returned, or its async function is about to: its next request settles the change. A return of the same person is
    /// not settled so: MSAL's callers see no difference between the two accounts, and have deleted nothing.
    ///
    /// - Parameter task: the task that goes on with the result, and deletes; `nil` if a block has done that.
    private func handedOver(_ accounts: ReportedAccounts?, to task: Int?) {
        guard !setup.reportsCleanup, let previous = accounts?.previous, let debt = previous.debt,
            previous != accounts?.current
        else { return }
        state.withLock { $0.toSettle.append((debt, task)) }
    }

    /// Reports the changes that the app was told of before: by asking again, it says that it has dealt with them. A request of another task
    /// says nothing of what the told task does meanwhile.
    ///
    /// - Parameter byQuestion: whether the request is a question for the current account, which settles what any task was told.
    func settle(byQuestion: Bool = false) async throws(RequestFailure) {
        let task = withUnsafeCurrentTask { $0?.hashValue }
        while true {
            let next = state.withLock { state in
                state.toSettle.firstIndex { byQuestion || $0.task == nil || $0.task == task }
                    .map { state.toSettle.remove(at: $0) }
            }
            guard let next else { return }
            do throws(SharedDeviceError) {
                try await shared.cleanupImplied(next.debt)
            } catch {
                state.withLock { $0.toSettle.append(next) }
                throw RequestFailure(error)
            }
        }
    }
}

// MARK: Lists

/// What ``MSALPublicClientApplication/accountsFromDevice(for:completionBlock:)`` calls.
public typealias MSALAccountsCompletionBlock = (_ accounts: [MSALAccount]?, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// The accounts on the device that match the parameters: the current one, or none. Unlike
    /// ``getCurrentAccount(with:completionBlock:)`` this reports no change. By default the block runs on a queue of the system's choice.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` if the broker does not answer,
    /// ``MSALInternalError/internalErrorUnexpected`` if the app's record cannot be read or written.
    public func accountsFromDevice(
        for parameters: MSALAccountEnumerationParameters,
        completionBlock: @escaping MSALAccountsCompletionBlock
    ) {
        let completion = Completion<Result<[MSALAccount], RequestFailure>>(
            parameters.completionBlockQueue,
            default: .global()
        ) {
            completionBlock($0.value, $0.nsError)
        }
        let filter = AccountFilter(parameters)
        Task { completion(await outcome { () throws(RequestFailure) in try await currentAccounts(filter) }) }
    }

    /// The same as an async function.
    public func accountsFromDevice(for parameters: MSALAccountEnumerationParameters) async throws -> [MSALAccount] {
        let filter = AccountFilter(parameters)
        let accounts = await outcome { () throws(RequestFailure) in try await currentAccounts(filter) }
        if let error = accounts.nsError { throw error }
        return accounts.value ?? []
    }

    private func currentAccounts(_ filter: AccountFilter) async throws(RequestFailure) -> [MSALAccount] {
        try requireBroker("list the accounts")
        try await settle()
        let account = try await mapping { () throws(SharedDeviceError) in try await shared.currentAccount() }
        know(account)
        return accounts(account, filter)
    }

    // MARK: Without asking

    /// The account that this object heard of last, by any request; empty before the first one and after ``signout(with:signoutParameters:)``
    /// or ``remove(_:)``. It asks nobody, and so does not know of sign-outs by other apps: ``getCurrentAccount(with:completionBlock:)`` does.
    public func allAccounts() throws -> [MSALAccount] { knownAccounts(AccountFilter()) }

    /// The accounts of ``allAccounts()`` that match the parameters.
    public func accounts(for parameters: MSALAccountEnumerationParameters) throws -> [MSALAccount] {
        knownAccounts(AccountFilter(parameters))
    }

    /// The account of ``allAccounts()`` with this identifier.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorAccountRequired`` if there is none.
    public func account(forIdentifier identifier: String) throws -> MSALAccount {
        try onlyAccount(AccountFilter(identifier: identifier))
    }

    /// The account of ``allAccounts()`` with this name, in upper or lower case; throws as ``account(forIdentifier:)``.
    public func account(forUsername username: String) throws -> MSALAccount {
        try onlyAccount(AccountFilter(username: username))
    }

    /// Forgets the account: ``allAccounts()`` no longer lists it, until a request names it again.
    ///
    /// This signs nobody out. In MSAL it deletes the app's own tokens, and on a shared device the account stays signed in there too; here the
    /// app has no tokens of its own. To sign the person out, call ``signout(with:signoutParameters:)``.
    ///
    /// - Throws: nothing; MSAL's function may throw.
    public func remove(_ account: MSALAccount) throws {
        state.withLock { if $0.known == account.account { $0.known = nil } }
    }

    private func knownAccounts(_ filter: AccountFilter) -> [MSALAccount] {
        accounts(state.withLock { $0.known }, filter)
    }

    private func accounts(_ account: Account?, _ filter: AccountFilter) -> [MSALAccount] {
        account.flatMap { filter.matches($0) ? [described($0)] : nil } ?? []
    }

    private func onlyAccount(_ filter: AccountFilter) throws -> MSALAccount {
        guard let account = knownAccounts(filter).first else {
            throw RequestFailure(
                .internal(.internalErrorAccountRequired),
                "could not find the account: this app has heard of no such account. Ask for the current account"
            ).nsError
        }
        return account
    }
}

/// Which accounts a request asks for.
private struct AccountFilter: Sendable {
    var identifier: String?
    var username: String?
    var tenantProfileIdentifier: String?

    init(identifier: String? = nil, username: String? = nil) {
        self.identifier = identifier
        self.username = username
    }

    init(_ parameters: MSALAccountEnumerationParameters) {
        identifier = parameters.identifier
        username = parameters.username
        tenantProfileIdentifier = parameters.tenantProfileIdentifier
    }

    func matches(_ account: Account) -> Bool {
        if let identifier, identifier != account.identifier { return false }
        if let tenantProfileIdentifier, tenantProfileIdentifier != MSALAccountId(account.identifier).objectId {
            return false
        }
        guard let username else { return true }
        return username.lowercased() == account.username.lowercased()
    }
}

// MARK: Receipts, beyond MSAL

extension MSALPublicClientApplication {
    /// Reports that the data of a previous account, as ``getCurrentAccount(with:completionBlock:)`` gave it, is gone from disk and screen.
    /// Call it after the deletion: the app is not told of this data again. It is for apps with
    /// ``MSALPublicClientApplicationConfig/reportsCleanup``; in other apps the next request would report the same. For an account without
    /// ``MSALAccount/needsCleanup`` it does nothing.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorUnexpected`` if the app's record cannot be written. The app is then told of
    ///   the account again.
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
