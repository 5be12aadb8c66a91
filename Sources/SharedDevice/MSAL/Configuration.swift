import Foundation

/// The configuration of an app.
///
/// An application takes a copy: later changes to the configuration have no effect on it.
public final class MSALPublicClientApplicationConfig {
    /// The app's registered identity.
    public var clientId: String
    /// The redirect URI, which must be `msauth.<the app's identifier>://auth` or `nil`. The broker does not serve an
    /// app with any other URI: its requests fail with ``MSALInternalError/internalBrokerNotAvailable``.
    public var redirectUri: String?
    /// The app's token service; see ``MSALAuthority``.
    public var authority: MSALAuthority
    /// Turns the broker off for this app, as in MSAL: every request fails with
    /// ``MSALInternalError/internalBrokerNotAvailable``.
    public var bypassRedirectURIValidation = false

    /// Creates a configuration; `nil` as the authority means any organisation.
    public init(clientId: String, redirectUri: String?, authority: MSALAuthority?) {
        self.clientId = clientId
        self.redirectUri = redirectUri
        self.authority = authority ?? .common
    }

    /// Creates a configuration with only a client id.
    public convenience init(clientId: String) { self.init(clientId: clientId, redirectUri: nil, authority: nil) }

    // MARK: Beyond MSAL

    /// The app's identity on this device, in reverse DNS. It names the app's record of whose data the app holds. `nil`
    /// means the identifier in ``redirectUri`` or, if that is `nil`, ``clientId``. Two apps with the same client id
    /// need two identifiers.
    public var applicationIdentifier: String?
    /// Whether the app reports each cleanup with ``MSALPublicClientApplication/cleanupDone(of:)``. False selects MSAL's
    /// behaviour: a change counts as settled when the app asks for an account or a token after its block for the change
    /// has returned.
    public var reportsCleanup = false

    // MARK: Settings without effect

    /// The app's tokens in the keychain. Changes nothing: the broker keeps all tokens, and apps keep none.
    public let cacheConfig = MSALCacheConfig()
    /// Authorities that the app trusts without a check. Changes nothing: no authority is ever contacted.
    public var knownAuthorities: [MSALAuthority] = []
    /// Whether tokens may be used longer while the token service is unavailable. Changes nothing: the broker decides
    /// how long a token is valid.
    public var extendedLifetimeEnabled = false
    /// The features of the token service that the app can handle. Changes nothing.
    public var clientApplicationCapabilities: [String]?
    /// The number of seconds before its expiry at which a token is renewed. Changes nothing: the broker renews tokens
    /// in time.
    public var tokenExpirationBuffer = 300.0
    /// The test slice of the token service. Changes nothing.
    public var sliceConfig: MSALSliceConfig?
    /// Whether the token service may choose another national cloud. Changes nothing.
    public var multipleCloudsSupported = false

    // MARK: An application's copy

    func copy() -> MSALPublicClientApplicationConfig {
        let copy = MSALPublicClientApplicationConfig(clientId: clientId, redirectUri: redirectUri, authority: authority)
        copy.bypassRedirectURIValidation = bypassRedirectURIValidation
        copy.applicationIdentifier = applicationIdentifier
        copy.reportsCleanup = reportsCleanup
        copy.cacheConfig.keychainSharingGroup = cacheConfig.keychainSharingGroup
        copy.knownAuthorities = knownAuthorities
        copy.extendedLifetimeEnabled = extendedLifetimeEnabled
        copy.clientApplicationCapabilities = clientApplicationCapabilities
        copy.tokenExpirationBuffer = tokenExpirationBuffer
        copy.sliceConfig = sliceConfig.flatMap { MSALSliceConfig(slice: $0.slice, dc: $0.dc) }
        copy.multipleCloudsSupported = multipleCloudsSupported
        return copy
    }

    var isBrokerEnabled: Bool { !bypassRedirectURIValidation && (redirectUri == nil || redirectIdentifier != nil) }

    /// The app's identity on this device, which names a directory.
    ///
    /// - Throws: an error with −42000 if there is none, or if it could name a different directory.
    func identifier() throws -> String {
        guard !clientId.isEmpty else {
            throw NSError.invalidParameter(
                "could not make an application: the client id is empty; it is a required parameter"
            )
        }
        let identifier = applicationIdentifier ?? redirectIdentifier ?? clientId
        guard !identifier.isEmpty, !identifier.hasPrefix("."), !identifier.contains("/"), !identifier.contains("\0")
        else {
            throw NSError.invalidParameter(
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

    /// The parts that are not empty, as query parameters of a URL.
    public var sliceDictionary: [AnyHashable: Any] { ["slice": slice, "dc": dc].filter { !$0.value.isEmpty } }
}
