import DBusTransport
// As MSAL's module does: a file that imports MSAL alone finds `DispatchQueue`, `NSError` and `URL` too.
@_exported public import Foundation
public import NotifyCenter
import SharedDevice
import Synchronization

@_exported public import enum NotifyCenter.Bus

/// An app on a shared device, with MSAL's names: the current account, sign-in and sign-out for the whole device,
/// tokens.
///
/// Make one per app and keep it. All functions may be called from any thread and task. Parameters are read during the call; later changes
/// to them do nothing. Each completion block is called once, on the queue that its parameters name.
///
/// Every error is an `NSError` of the domain ``MSALErrorDomain``. If the shared device gave the reason, `NSUnderlyingErrorKey` has its
/// `SharedDeviceError`.
///
/// ```swift
/// let application = try MSALPublicClientApplication(configuration: MSALPublicClientApplicationConfig(clientId: "org.example.orders"))
/// application.getCurrentAccount(with: nil) { account, previousAccount, error in
///     if let previousAccount, previousAccount != account { deleteData(of: previousAccount) }
/// }
/// ```
public final class MSALPublicClientApplication: Sendable {
    let setup: Configuration
    let shared: SharedDeviceApplication
    let state = Locked(State())

    /// What an application object remembers.
    struct State {
        /// The account that the app heard of last. `nil` after the app has signed it out or removed it.
        var known: Account?
        /// Whether the broker's last answer was ``MSALDeviceMode/shared``.
        var wasShared = false
        /// Whether a person is being asked.
        var isPrompting = false
        /// Changes that the app was told of. Its next request settles them.
        var toSettle: [(debt: AccountChange, task: Int?)] = []
    }

    /// An app as `configuration` describes it; the broker is on the bus that the environment names.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorInvalidParameter`` if the configuration has no client id, or an identifier
    ///   that cannot name a folder.
    public convenience init(configuration: MSALPublicClientApplicationConfig) throws {
        try self.init(configuration: configuration, bus: .fromEnvironment)
    }

    /// An app with this client id and nothing else; otherwise as ``init(configuration:)``.
    public convenience init(clientId: String) throws {
        try self.init(configuration: MSALPublicClientApplicationConfig(clientId: clientId))
    }

    /// An app with this client id and authority; otherwise as ``init(configuration:)``.
    public convenience init(clientId: String, authority: MSALAuthority?) throws {
        try self.init(clientId: clientId, authority: authority, redirectUri: nil)
    }

    /// An app with this client id, authority and redirect URI; otherwise as ``init(configuration:)``.
    public convenience init(clientId: String, authority: MSALAuthority?, redirectUri: String?) throws {
        let configuration = MSALPublicClientApplicationConfig(
            clientId: clientId,
            redirectUri: redirectUri,
            authority: authority
        )
        try self.init(configuration: configuration)
    }

    /// An app whose broker is on `bus`. Beyond MSAL; for tests, and for apps whose bus is not the environment's choice.
    ///
    /// - Parameters:
    ///   - configuration: what the app says of itself; a copy is taken.
    ///   - bus: where the broker is.
    ///   - stateDirectory: the folder of the app's record of whose data it holds. `nil` means the app's identifier in `$XDG_STATE_HOME`
    ///     (`~/.local/state`). The folder must outlast the user data of the app.
    /// - Throws: as ``init(configuration:)``.
    public init(configuration: MSALPublicClientApplicationConfig, bus: Bus, stateDirectory: String? = nil) throws {
        setup = configuration.snapshot
        do throws(RequestFailure) {
            let identifier = try setup.identifier()
            shared = SharedDeviceApplication(identifier: identifier, bus: bus, stateDirectory: stateDirectory)
        } catch {
            throw error.nsError
        }
    }

    /// The configuration that this was made with; a copy.
    public var configuration: MSALPublicClientApplicationConfig { MSALPublicClientApplicationConfig(setup) }

    // MARK: What changes nothing here

    /// Always false: the URL is for the app. On iOS the browser and Microsoft Authenticator answer the app by opening a URL; here the broker
    /// answers each request itself.
    @discardableResult
    public static func handleMSALResponse(_ response: URL, sourceApplication: String?) -> Bool { false }

    /// The old spelling of ``handleMSALResponse(_:sourceApplication:)``.
    @discardableResult
    public static func handleMSALResponse(_ response: URL) -> Bool { false }

    /// Always false: there is no web view to close. A sign-in ends when its prompt returns or throws.
    @discardableResult
    public static func cancelCurrentWebAuthSession() -> Bool { false }

    // MARK: What requests have in common

    /// - Throws: ``RequestFailure``, −42714, unless this app uses the broker.
    func requireBroker(_ attempted: String) throws(RequestFailure) {
        let remedy: String
        if MSALGlobalConfig.brokerAvailability == .none {
            remedy = "Leave MSALGlobalConfig.brokerAvailability at auto"
        } else if !setup.isBrokerEnabled {
            remedy =
                "Leave bypassRedirectURIValidation false, and have a redirectUri of the form msauth.<the app's identifier>://auth, "
                + "or none"
        } else {
            return
        }
        throw RequestFailure(
            .internal(.internalBrokerNotAvailable),
            "could not \(attempted): the broker is not enabled for this app. \(remedy)"
        )
    }

    func requireScopes(_ scopes: [String], _ attempted: String) throws(RequestFailure) {
        guard scopes.isEmpty || scopes.contains(where: \.isEmpty) else { return }
        throw .invalidParameter("could not \(attempted): scopes are required, and none of them may be empty")
    }

    /// - Throws: ``RequestFailure``, −42000, for a request that a token without claims would not fulfil.
    func requireNoClaims(_ demandsClaims: Bool, _ attempted: String) throws(RequestFailure) {
        guard demandsClaims else { return }
        throw .invalidParameter(
            "could not \(attempted): the broker passes no claims on to the provider. To meet a claims challenge, sign out and in again"
        )
    }

    func know(_ account: Account?) { state.withLock { $0.known = account } }

    /// The account as the app sees it.
    func described(_ account: Account, debt: AccountChange? = nil) -> MSALAccount {
        MSALAccount(account, environment: setup.authority.environment, debt: debt)
    }
}
