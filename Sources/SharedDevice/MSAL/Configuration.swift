import Foundation

/// The configuration of an app.
///
/// An application takes a copy: later changes to the configuration have no effect on it.
public final class MSALPublicClientApplicationConfig {
    private var settings: Configuration

    /// Creates a configuration; `nil` as the authority means any organisation.
    public init(clientId: String, redirectUri: String?, authority: MSALAuthority?) {
        settings = Configuration(clientId: clientId, redirectUri: redirectUri, authority: authority ?? .common)
    }

    /// Creates a configuration with only a client id.
    public convenience init(clientId: String) { self.init(clientId: clientId, redirectUri: nil, authority: nil) }

    init(_ settings: Configuration) {
        self.settings = settings
        cacheConfig.keychainSharingGroup = settings.keychainSharingGroup
    }

    var snapshot: Configuration {
        var settings = settings
        settings.keychainSharingGroup = cacheConfig.keychainSharingGroup
        return settings
    }

    /// The app's registered identity.
    public var clientId: String {
        get { settings.clientId }
        set { settings.clientId = newValue }
    }

    /// The redirect URI, which must be `msauth.<the app's identifier>://auth` or `nil`. The broker does not serve an
    /// app with any other URI: its requests fail with ``MSALInternalError/internalBrokerNotAvailable``.
    public var redirectUri: String? {
        get { settings.redirectUri }
        set { settings.redirectUri = newValue }
    }

    /// The app's token service; see ``MSALAuthority``.
    public var authority: MSALAuthority {
        get { settings.authority }
        set { settings.authority = newValue }
    }

    /// Turns the broker off for this app, as in MSAL: every request fails with
    /// ``MSALInternalError/internalBrokerNotAvailable``.
    public var bypassRedirectURIValidation: Bool {
        get { settings.bypassRedirectURIValidation }
        set { settings.bypassRedirectURIValidation = newValue }
    }

    // MARK: Beyond MSAL

    /// The app's identity on this device, in reverse DNS. It names the app's record of whose data the app holds. `nil`
    /// means the identifier in ``redirectUri`` or, if that is `nil`, ``clientId``. Two apps with the same client id
    /// need two identifiers.
    public var applicationIdentifier: String? {
        get { settings.applicationIdentifier }
        set { settings.applicationIdentifier = newValue }
    }

    /// Whether the app reports each cleanup with ``MSALPublicClientApplication/cleanupDone(of:)``. False selects MSAL's
    /// behaviour: a change counts as settled when the app asks for an account or a token after its block for the change
    /// has returned.
    public var reportsCleanup: Bool {
        get { settings.reportsCleanup }
        set { settings.reportsCleanup = newValue }
    }

    // MARK: Settings without effect

    /// The app's tokens in the keychain. Changes nothing: the broker keeps all tokens, and apps keep none.
    public let cacheConfig = MSALCacheConfig()

    /// Authorities that the app trusts without a check. Changes nothing: no authority is ever contacted.
    public var knownAuthorities: [MSALAuthority] {
        get { settings.knownAuthorities }
        set { settings.knownAuthorities = newValue }
    }

    /// Whether tokens may be used longer while the token service is unavailable. Changes nothing: the broker decides
    /// how long a token is valid.
    public var extendedLifetimeEnabled: Bool {
        get { settings.extendedLifetimeEnabled }
        set { settings.extendedLifetimeEnabled = newValue }
    }

    /// The features of the token service that the app can handle. Changes nothing.
    public var clientApplicationCapabilities: [String]? {
        get { settings.clientApplicationCapabilities }
        set { settings.clientApplicationCapabilities = newValue }
    }

    /// The number of seconds before its expiry at which a token is renewed. Changes nothing: the broker renews tokens
    /// in time.
    public var tokenExpirationBuffer: Double {
        get { settings.tokenExpirationBuffer }
        set { settings.tokenExpirationBuffer = newValue }
    }

    /// The test slice of the token service. Changes nothing.
    public var sliceConfig: MSALSliceConfig? {
        get { settings.slice.map { MSALSliceConfig($0) } }
        set { settings.slice = newValue?.parts }
    }

    /// Whether the token service may choose another national cloud. Changes nothing.
    public var multipleCloudsSupported: Bool {
        get { settings.multipleCloudsSupported }
        set { settings.multipleCloudsSupported = newValue }
    }
}

/// The token cache of an iOS app. It changes nothing here: the broker keeps all tokens, and apps keep none.
public final class MSALCacheConfig {
    /// The group of apps that share a keychain. Changes nothing.
    public var keychainSharingGroup = MSALCacheConfig.defaultKeychainSharingGroup()

    /// MSAL's default keychain group.
    public static func defaultKeychainSharingGroup() -> String { "com.microsoft.adalcache" }

    fileprivate init() {}
}

/// A test slice of the token service. It changes nothing here: no request of the app reaches the token service.
public final class MSALSliceConfig {
    /// The name of the slice.
    public var slice: String
    /// The data centre.
    public var dc: String

    /// Creates a slice in a data centre; `nil` is the same as an empty string. The result is never `nil`.
    public init?(slice: String?, dc: String?) {
        self.slice = slice ?? ""
        self.dc = dc ?? ""
    }

    init(_ parts: Parts) { (slice, dc) = parts }

    typealias Parts = (slice: String, dc: String)

    var parts: Parts { (slice, dc) }

    /// The parts that are not empty, as query parameters of a URL.
    public var sliceDictionary: [AnyHashable: Any] { ["slice": slice, "dc": dc].filter { !$0.value.isEmpty } }
}

struct Configuration: Sendable {
    var clientId: String
    var redirectUri: String?
    var authority: MSALAuthority
    var bypassRedirectURIValidation = false
    var applicationIdentifier: String?
    var reportsCleanup = false
    var knownAuthorities: [MSALAuthority] = []
    var extendedLifetimeEnabled = false
    var clientApplicationCapabilities: [String]?
    var tokenExpirationBuffer = 300.0
    var multipleCloudsSupported = false
    var slice: MSALSliceConfig.Parts?
    var keychainSharingGroup = MSALCacheConfig.defaultKeychainSharingGroup()

    var isBrokerEnabled: Bool { !bypassRedirectURIValidation && (redirectUri == nil || redirectIdentifier != nil) }

    /// The app's identity on this device, which names a directory.
    ///
    /// - Throws: ``RequestFailure`` if there is none, or if it could name a different directory.
    func identifier() throws(RequestFailure) -> String {
        guard !clientId.isEmpty else {
            throw .invalidParameter("could not make an application: the client id is empty; it is a required parameter")
        }
        let identifier = applicationIdentifier ?? redirectIdentifier ?? clientId
        guard !identifier.isEmpty, !identifier.hasPrefix("."), !identifier.contains("/"), !identifier.contains("\0")
        else {
            throw .invalidParameter(
                "could not make an application: “\(identifier)” cannot identify the app. The identifier names a folder: it may "
                    + "not be empty, begin with a dot or contain a slash. Set the configuration's applicationIdentifier"
            )
        }
        return identifier
    }

    private var redirectIdentifier: String? {
        guard let redirectUri, redirectUri.hasPrefix("msauth."),
            let end = redirectUri.range(of: "://auth"), ["", "/"].contains(redirectUri[end.upperBound...])
        else { return nil }
        let identifier = redirectUri[..<end.lowerBound].dropFirst("msauth.".count)
        return identifier.isEmpty ? nil : String(identifier)
    }
}
