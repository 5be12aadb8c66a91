import DBus
import Dispatch
@_spi(Extensions) import SharedDevice
import Synchronization

// MARK: The current account

/// The completion block of ``MSALPublicClientApplication/getCurrentAccount(with:completionBlock:)``.
public typealias MSALCurrentAccountCompletionBlock = (
    _ account: MSALAccount?, _ previousAccount: MSALAccount?, (any Error)?
) -> Void

extension MSALPublicClientApplication {
    /// Gets the account that is signed in on the device, and the account that this app was last told of.
    ///
    /// Call it when the app starts, on each broadcast, when the app returns to the foreground, and before work in the
    /// background. By default the block runs on a queue of the system's choice.
    ///
    /// If there is a previous account that differs from the current one, delete its data from disk and screen,
    /// whichever account is current. Delete it in the block. The change counts as settled when the same process asks
    /// for an account or a token after the block has returned.
    ///
    /// With ``MSALPublicClientApplicationConfig/reportsCleanup`` the change is settled when the app calls
    /// ``cleanupDone(of:)``. Until a change is settled, the app is told of it again, also after a crash. A device with
    /// a strict policy accepts only ``cleanupDone(of:)`` as a receipt. A request that fails settles nothing.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` if the broker does not respond,
    /// ``MSALInternalError/internalErrorUnexpected`` if the app's record of whose data it holds cannot be read or
    /// written.
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

    /// The async form, under the name that Swift gives MSAL's function.
    ///
    /// It cannot see when its caller has deleted the data. The change therefore counts as settled by the next request
    /// of the same task, or by the next request for the current account from any task. An app that calls it from
    /// several tasks at once has to call ``cleanupDone(of:)``.
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
        // One account at a time: MSAL's callers see a single previous account and cannot delete the data of others.
        let previous = change.previous.map { described($0, debt: change.part(of: $0)) }
        return ReportedAccounts(
            current: change.current.map { described($0) },
            previous: previous ?? report.previous.map { described($0) }
        )
    }

    /// Notes that the app's block has returned, or that its async function is about to return: the app's next request
    /// settles the change. The return of the same person is not settled this way: MSAL's callers see no difference
    /// between the two accounts and have deleted nothing.
    ///
    /// - Parameter task: the task that continues with the result and deletes the data; `nil` if a block has done that.
    private func handedOver(_ accounts: ReportedAccounts?, to task: Int?) {
        guard !setup.reportsCleanup, let previous = accounts?.previous, let debt = previous.debt,
            previous != accounts?.current
        else { return }
        state.withLock { $0.toSettle.append((debt, task)) }
    }

    /// Reports the changes that the app has been told of: by asking again, the app says that it has handled them. A
    /// request of another task says nothing about the progress of the task that was told.
    ///
    /// - Parameter byQuestion: whether the request is for the current account. Such a request settles the changes of
    ///   all tasks.
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

/// The completion block of ``MSALPublicClientApplication/accountsFromDevice(for:completionBlock:)``.
public typealias MSALAccountsCompletionBlock = (_ accounts: [MSALAccount]?, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// Lists the accounts on the device that match the parameters: the current one, or none. Unlike
    /// ``getCurrentAccount(with:completionBlock:)`` this reports no change. By default the block runs on a queue of the
    /// system's choice.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` if the broker does not respond,
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

    /// The async form of ``accountsFromDevice(for:completionBlock:)``.
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

    // MARK: Without a request

    /// The account that this object learned of last, by any request. Empty before the first request, and after
    /// ``signout(with:signoutParameters:)`` or ``remove(_:)``.
    ///
    /// It does not ask the broker, so it misses sign-outs by other apps; use
    /// ``getCurrentAccount(with:completionBlock:)`` for those.
    public func allAccounts() throws -> [MSALAccount] { knownAccounts(AccountFilter()) }

    /// Returns the accounts of ``allAccounts()`` that match the parameters.
    public func accounts(for parameters: MSALAccountEnumerationParameters) throws -> [MSALAccount] {
        knownAccounts(AccountFilter(parameters))
    }

    /// Returns the account of ``allAccounts()`` with this identifier.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorAccountRequired`` if there is none.
    public func account(forIdentifier identifier: String) throws -> MSALAccount {
        try onlyAccount(AccountFilter(identifier: identifier))
    }

    /// Returns the account of ``allAccounts()`` with this name, ignoring case. Throws like ``account(forIdentifier:)``.
    public func account(forUsername username: String) throws -> MSALAccount {
        try onlyAccount(AccountFilter(username: username))
    }

    /// Removes the account from ``allAccounts()`` until a request names it again.
    ///
    /// This signs no account out. MSAL's function deletes the app's own tokens, and on a shared device the account also
    /// stays signed in; here the app has no tokens. To sign the person out, call ``signout(with:signoutParameters:)``.
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
                "could not find the account: this app does not know the account. Ask for the current account"
            ).nsError
        }
        return account
    }
}

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
    /// Reports that the data of a previous account, as ``getCurrentAccount(with:completionBlock:)`` returned it, is
    /// deleted from disk and screen. Call it after the deletion; the app is then not told of this data again.
    ///
    /// It is for apps with ``MSALPublicClientApplicationConfig/reportsCleanup``. In other apps the next request reports
    /// the same. For an account without ``MSALAccount/needsCleanup`` it does nothing.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorUnexpected`` if the app's record cannot be written. The
    ///   app is then told of the account again.
    public func cleanupDone(of previousAccount: MSALAccount) async throws {
        guard let debt = previousAccount.debt else { return }
        do throws(SharedDeviceError) {
            try await shared.cleanupDone(debt)
        } catch {
            throw RequestFailure(error).nsError
        }
    }

    /// The form with a completion block, which runs on a queue of the system's choice.
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
