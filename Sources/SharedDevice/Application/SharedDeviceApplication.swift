import DBusTransport
import FoundationEssentials
public import NotifyCenter

/// An app on a shared device: asks the broker who is signed in, signs in and out for the whole device, and follows changes.
///
/// Make one per app and keep it. All functions may be called from any thread and task.
///
/// ```swift
/// let application = SharedDeviceApplication(identifier: "org.example.orders")
/// for await change in application.accountChanges {
///     stopWork()
///     for account in change.previousAccounts { try deleteData(of: account) }
///     try await application.cleanupDone(change)
///     show(change.current)
/// }
/// ```
public final class SharedDeviceApplication: Sendable {
    /// The app's identity, which names its record of whose data it holds.
    public let identifier: String
    private let broker: BrokerClient
    private let keeper: SessionKeeper

    /// - Parameters:
    ///   - identifier: the app's own, in reverse DNS.
    ///   - bus: where the broker is; the environment's choice by default.
    ///   - stateDirectory: where the record is kept; `nil` for `$XDG_STATE_HOME` (`~/.local/state`) and `identifier`. It must
    ///     outlast the user data of the app.
    public init(identifier: String, bus: Bus = .fromEnvironment, stateDirectory: String? = nil) {
        self.identifier = identifier
        broker = BrokerClient(bus: bus)
        let directory = stateDirectory ?? Self.defaultStateDirectory(identifier)
        keeper = SessionKeeper(broker: broker, store: SessionStore(path: "\(directory)/shared-device-sessions.json"))
    }

    private static func defaultStateDirectory(_ identifier: String) -> String {
        let environment = ProcessInfo.processInfo.environment
        let base = environment["XDG_STATE_HOME"].flatMap { $0.isEmpty ? nil : $0 }
        return (base ?? "\(environment["HOME"] ?? ".")/.local/state") + "/" + identifier
    }

    // MARK: The device

    /// Whether the device is shared. A broker that does not answer makes the mode ``DeviceMode/unknown``, with the reason in
    /// ``DeviceInformation/problem``; never personal.
    public func getDeviceInformation() async -> DeviceInformation {
        do throws(SharedDeviceError) {
            let fields = try await broker.call(.getDeviceInformation, attempted: "get the device's information")
            return DeviceInformation(
                deviceMode: fields["mode"]?.stringValue.flatMap(DeviceMode.init) ?? .unknown,
                organization: fields["organization"]?.stringValue,
                brokerVersion: fields["brokerVersion"]?.stringValue
            )
        } catch {
            return DeviceInformation(deviceMode: .unknown, problem: error)
        }
    }

    // MARK: The account

    /// Who is signed in, and whom this app was told the last time it asked.
    ///
    /// A change is reported once, as MSAL does it; ``accountChanges`` reports it until it is cleaned up, and after ``cleanupDone(_:)``
    /// nothing of the old account is kept, its name as the previous one included. A failed request consumes nothing.
    ///
    /// - Throws: ``SharedDeviceError/Code/brokerUnavailable``, ``SharedDeviceError/Code/recordUnusable``.
    public func getCurrentAccount() async throws(SharedDeviceError) -> (current: Account?, previous: Account?) {
        let report = try await keeper.report()
        return (report.change.current, report.previous)
    }

    /// As ``getCurrentAccount()``, with what is left to clean up.
    package func reportCurrentAccount() async throws(SharedDeviceError) -> AccountReport { try await keeper.report() }

    /// Who is signed in. Unlike ``getCurrentAccount()`` it reports nothing: what that one says next is the same as without this question.
    package func currentAccount() async throws(SharedDeviceError) -> Account? { try await keeper.current() }

    /// The changes of the device's account, from where this app stands.
    public var accountChanges: AccountChanges { accountChanges { _ in } }

    /// The changes of the device's account; `onFailure` hears, on the iterating task, of each question that the broker did not
    /// answer. It is asked again, at the latest after a second.
    public func accountChanges(onFailure: @escaping @Sendable (SharedDeviceError) -> Void) -> AccountChanges {
        AccountChanges(keeper: keeper, broker: broker, onFailure: onFailure)
    }

    /// Reports that the data of `change.previousAccounts` is gone from disk and screen. Not before: what is reported is not
    /// asked for again.
    ///
    /// - Throws: ``SharedDeviceError/Code/recordUnusable``; the change is then reported again at the next start.
    public func cleanupDone(_ change: AccountChange) async throws(SharedDeviceError) {
        try await keeper.cleaned(change)
    }

    /// Broadcasts of an account change that came from another process than the broker, and were ignored.
    public var ignoredBroadcasts: Int { broker.ignoredBroadcasts }

    // MARK: Signing in and out

    /// Signs somebody in for the whole device: prompts, and hands name and password to the broker.
    ///
    /// - Throws: ``SharedDeviceError/Code/accountAlreadySignedIn``, ``SharedDeviceError/Code/authenticationFailed``,
    ///   ``SharedDeviceError/Code/tooManyAttempts``, ``SharedDeviceError/Code/notSharedDevice``,
    ///   ``SharedDeviceError/Code/userCanceled``, ``SharedDeviceError/Code/brokerUnavailable``.
    public func acquireToken(with parameters: InteractiveTokenParameters) async throws(SharedDeviceError) -> TokenResult
    {
        let attempted = "sign in"
        guard let credentials = await parameters.prompt(parameters.loginHint) else {
            throw SharedDeviceError(.userCanceled, attempted: attempted, message: "no name and password were given")
        }
        let request: BrokerProtocol.Fields = [
            "username": .string(credentials.username),
            "password": .string(credentials.password),
            "scopes": .array(parameters.scopes.map(DBusValue.string), of: "s"),
        ]
        return try await token(try await broker.call(.signIn, request, attempted: attempted), attempted)
    }

    /// A token for the current account, without asking anybody.
    ///
    /// - Throws: ``SharedDeviceError/Code/noCurrentAccount`` or ``SharedDeviceError/Code/currentAccountMismatch`` where the
    ///   account is not the current one (any more), ``SharedDeviceError/Code/brokerUnavailable``.
    public func acquireTokenSilent(
        with parameters: SilentTokenParameters
    ) async throws(SharedDeviceError) -> TokenResult {
        let attempted = "get a token for \(parameters.account.username)"
        let request: BrokerProtocol.Fields = [
            "accountIdentifier": .string(parameters.account.identifier),
            "scopes": .array(parameters.scopes.map(DBusValue.string), of: "s"),
            "forceRefresh": .boolean(parameters.forceRefresh),
        ]
        return try await token(try await broker.call(.acquireTokenSilently, request, attempted: attempted), attempted)
    }

    /// Signs the account out for the whole device: its tokens end, and all apps are told. The data of the app is the app's to
    /// delete, this one's too: the change comes through ``accountChanges``.
    ///
    /// - Throws: ``SharedDeviceError/Code/noCurrentAccount``, ``SharedDeviceError/Code/currentAccountMismatch``,
    ///   ``SharedDeviceError/Code/brokerUnavailable``.
    public func signout(
        with account: Account,
        signoutParameters: SignoutParameters = SignoutParameters()
    ) async throws(SharedDeviceError) {
        _ = try await broker.call(
            .signOut,
            ["accountIdentifier": .string(account.identifier)],
            attempted: "sign \(account.username) out"
        )
    }

    /// The result that an answer holds. Its session is in the record before the app has the result: the app may store data
    /// for the account at once.
    private func token(
        _ fields: BrokerProtocol.Fields,
        _ attempted: String
    ) async throws(SharedDeviceError) -> TokenResult {
        let (result, session): (TokenResult, DeviceSession)
        do throws(BrokerProtocol.Malformed) {
            let token = try WireToken(fields["token"])
            result = TokenResult(
                accessToken: token.value,
                expiresOn: Date(timeIntervalSince1970: token.expiresAt),
                scopes: token.scopes,
                account: try Account(fields["account"])
            )
            session = try DeviceSession(fields)
        } catch {
            throw SharedDeviceError(.brokerFailed, attempted: attempted, message: "its answer lacks “\(error.field)”")
        }
        try await keeper.enter(session, attempted: attempted)
        return result
    }
}
