import DBusTransport
import Foundation
public import NotifyCenter
import SharedDevice
import Synchronization

/// An app on a shared device, with MSAL's names: who is signed in, signing in and out for the whole device, tokens.
///
/// Make one per app and keep it. All functions may be called from any thread and task. Parameters are read during the call; to change
/// them afterwards changes nothing. Each completion block is called once, on the queue that its parameters name.
///
/// Every error is an `NSError` of the domain ``MSALErrorDomain``. Where the shared device said why, `NSUnderlyingErrorKey` has its
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
        /// The account that the app heard of last, and has not signed out.
        var known: Account?
        /// The mode that the broker gave last is ``MSALDeviceMode/shared``.
        var wasShared = false
        /// A person is being asked.
        var isPrompting = false
        /// Changes that the app was told of, and that its next request settles.
        var toSettle: [AccountChange] = []
    }

    /// An app as `configuration` describes it; the broker is on the bus that the environment names.
    ///
    /// - Throws: an error with ``MSALInternalError/internalErrorInvalidParameter`` where the configuration has no client id, or an
    ///   identifier that cannot name a folder.
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
    ///   - stateDirectory: where the record is kept of whose data the app holds; `nil` for `$XDG_STATE_HOME` (`~/.local/state`) and the
    ///     app's identifier. It must outlast the user data of the app.
    /// - Throws: as ``init(configuration:)``.
    public init(configuration: MSALPublicClientApplicationConfig, bus: Bus, stateDirectory: String? = nil) throws {
        setup = Configuration(configuration)
        do throws(RequestFailure) {
            let identifier = try setup.identifier()
            shared = SharedDeviceApplication(identifier: identifier, bus: bus, stateDirectory: stateDirectory)
        } catch {
            throw error.nsError
        }
    }

    /// The configuration that this was made with; a copy.
    public var configuration: MSALPublicClientApplicationConfig { setup.copy }

    // MARK: What requests have in common

    /// - Throws: ``RequestFailure``, −42714, where this app is none of the broker's.
    func requireBroker(_ attempted: String) throws(RequestFailure) {
        guard !setup.isBrokerEnabled else { return }
        throw RequestFailure(
            .internal(.internalBrokerNotAvailable),
            "could not \(attempted): the broker is not enabled for this app. Leave bypassRedirectURIValidation false, and have a "
                + "redirectUri of the form msauth.<the app's identifier>://auth, or none"
        )
    }

    func requireScopes(_ scopes: [String], _ attempted: String) throws(RequestFailure) {
        guard scopes.isEmpty || scopes.contains(where: \.isEmpty) else { return }
        throw .invalidParameter("could not \(attempted): scopes are required, and none of them may be empty")
    }

    func know(_ account: Account?) { state.withLock { $0.known = account } }
}
