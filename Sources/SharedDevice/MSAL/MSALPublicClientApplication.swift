import Basics
import DBus
// As MSAL's module does: a file that imports MSAL alone finds `DispatchQueue`, `NSError` and `URL` too.
@_exported public import Foundation
public import NotifyCenter
import SharedDevice
import Synchronization

@_exported public import enum NotifyCenter.Bus

/// An app on a shared device, with MSAL's names: current account, tokens, and sign-in and sign-out for the whole
/// device.
///
/// Create one per app and keep it. All functions may be called from any thread and task. Parameters are read during the
/// call; later changes to them have no effect. Each completion block is called once, on the queue that its parameters
/// name.
///
/// Every error is an `NSError` of the domain ``MSALErrorDomain``. If the failure came from the module SharedDevice,
/// `NSUnderlyingErrorKey` contains its `SharedDeviceError`.
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

    struct State {
        /// The account of the last request. `nil` after the app has signed it out or removed it.
        var known: Account?
        var wasShared = false
        var isPrompting = false
        /// Changes that the app was told of. Its next request settles them.
        var toSettle: [(debt: AccountChange, task: Int?)] = []
    }

    /// Creates an app from `configuration`; the broker is on the bus that the environment names.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorInvalidParameter`` if the configuration has no client
    ///   id, or has an identifier that cannot be the name of a directory.
    public convenience init(configuration: MSALPublicClientApplicationConfig) throws {
        try self.init(configuration: configuration, bus: .fromEnvironment)
    }

    /// Creates an app with only this client id; otherwise like ``init(configuration:)``.
    public convenience init(clientId: String) throws {
        try self.init(configuration: MSALPublicClientApplicationConfig(clientId: clientId))
    }

    /// Creates an app with this client id and authority; otherwise like ``init(configuration:)``.
    public convenience init(clientId: String, authority: MSALAuthority?) throws {
        try self.init(clientId: clientId, authority: authority, redirectUri: nil)
    }

    /// Creates an app with this client id, authority and redirect URI; otherwise like ``init(configuration:)``.
    public convenience init(clientId: String, authority: MSALAuthority?, redirectUri: String?) throws {
        let configuration = MSALPublicClientApplicationConfig(
            clientId: clientId,
            redirectUri: redirectUri,
            authority: authority
        )
        try self.init(configuration: configuration)
    }

    /// Creates an app whose broker is on `bus`. Beyond MSAL; for tests, and for apps whose bus is not the environment's
    /// choice.
    ///
    /// - Parameters:
    ///   - configuration: the app's configuration, which is copied.
    ///   - bus: the bus of the broker.
    ///   - stateDirectory: the directory of the app's record of whose data it holds. `nil` means a directory named
    ///     after the app's identifier in `$XDG_STATE_HOME` (`~/.local/state`). It must outlast the user data of the
    ///     app.
    /// - Throws: like ``init(configuration:)``.
    public init(configuration: MSALPublicClientApplicationConfig, bus: Bus, stateDirectory: String? = nil) throws {
        setup = configuration.snapshot
        do throws(RequestFailure) {
            let identifier = try setup.identifier()
            shared = SharedDeviceApplication(identifier: identifier, bus: bus, stateDirectory: stateDirectory)
        } catch {
            throw error.nsError
        }
    }

    /// A copy of the configuration that this object was created with.
    public var configuration: MSALPublicClientApplicationConfig { MSALPublicClientApplicationConfig(setup) }

    // MARK: Functions without effect

    /// Always returns false, which leaves the URL to the app. On iOS the browser and Microsoft Authenticator respond by
    /// opening a URL in the app; here the broker responds to each request directly.
    @discardableResult
    public static func handleMSALResponse(_ response: URL, sourceApplication: String?) -> Bool { false }

    /// The old spelling of ``handleMSALResponse(_:sourceApplication:)``.
    @discardableResult
    public static func handleMSALResponse(_ response: URL) -> Bool { false }

    /// Always returns false: there is no web view to close. A sign-in ends when its prompt returns or throws.
    @discardableResult
    public static func cancelCurrentWebAuthSession() -> Bool { false }

    // MARK: Checks of requests

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

    /// - Throws: ``RequestFailure``, −42000, if the request demands claims, because the token would lack them.
    func requireNoClaims(_ demandsClaims: Bool, _ attempted: String) throws(RequestFailure) {
        guard demandsClaims else { return }
        throw .invalidParameter(
            "could not \(attempted): the broker passes no claims on to the provider. To meet a claims challenge, sign out and in again"
        )
    }

    func know(_ account: Account?) { state.withLock { $0.known = account } }

    func described(_ account: Account, debt: AccountChange? = nil) -> MSALAccount {
        MSALAccount(account, environment: setup.authority.environment, debt: debt)
    }
}
