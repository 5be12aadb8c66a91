import DBusTransport
import Dispatch
import SharedDevice
import Synchronization

/// What ``MSALPublicClientApplication/accountsFromDevice(for:completionBlock:)`` calls.
public typealias MSALAccountsCompletionBlock = (_ accounts: [MSALAccount]?, (any Error)?) -> Void

extension MSALPublicClientApplication {
    /// The accounts on the device that are as `parameters` say: the current one, or none. Unlike
    /// ``getCurrentAccount(with:completionBlock:)`` this reports no change. By default the block runs on a queue of the system's choice.
    ///
    /// The error's internal code is ``MSALInternalError/internalBrokerNotAvailable`` where the broker does not answer,
    /// ``MSALInternalError/internalErrorUnexpected`` where the app's record cannot be read or written.
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
        return filter.apply(account)
    }

    // MARK: Without asking

    /// The account that this object heard of last, by whatever request, and has not signed out; empty before the first one. It asks
    /// nobody, and so does not know of sign-outs by other apps: ``getCurrentAccount(with:completionBlock:)`` does.
    public func allAccounts() throws -> [MSALAccount] { knownAccounts(AccountFilter()) }

    /// The accounts of ``allAccounts()`` that are as `parameters` say.
    public func accounts(for parameters: MSALAccountEnumerationParameters) throws -> [MSALAccount] {
        knownAccounts(AccountFilter(parameters))
    }

    /// The account of ``allAccounts()`` with this identifier.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorAccountRequired`` where there is none.
    public func account(forIdentifier identifier: String) throws -> MSALAccount {
        try onlyAccount(AccountFilter(identifier: identifier))
    }

    /// The account of ``allAccounts()`` with this name, in whatever case; throws as ``account(forIdentifier:)``.
    public func account(forUsername username: String) throws -> MSALAccount {
        try onlyAccount(AccountFilter(username: username))
    }

    private func knownAccounts(_ filter: AccountFilter) -> [MSALAccount] {
        filter.apply(state.withLock { $0.known })
    }

    private func onlyAccount(_ filter: AccountFilter) throws -> MSALAccount {
        guard let account = knownAccounts(filter).first else {
            throw RequestFailure(
                .internal(.internalErrorAccountRequired),
                "could not find the account: this app has heard of none that is as described; ask for the current account"
            ).nsError
        }
        return account
    }
}

/// Which accounts are asked for.
private struct AccountFilter: Sendable {
    var identifier: String?
    var username: String?

    init(identifier: String? = nil, username: String? = nil) {
        self.identifier = identifier
        self.username = username
    }

    init(_ parameters: MSALAccountEnumerationParameters) {
        identifier = parameters.identifier
        username = parameters.username
    }

    func apply(_ account: Account?) -> [MSALAccount] {
        guard let account else { return [] }
        if let identifier, identifier != account.identifier { return [] }
        if let username, username.lowercased() != account.username.lowercased() { return [] }
        return [MSALAccount(account)]
    }
}
