import Foundation

/// What an app says of itself.
public final class MSALPublicClientApplicationConfig {
    /// The app's registered identity.
    public var clientId: String
    /// Where answers go: `msauth.<the app's identifier>://auth`, or `nil`. An app with another one is none of the broker's, and its
    /// requests fail with ``MSALInternalError/internalBrokerNotAvailable``.
    public var redirectUri: String?
    /// See ``MSALAuthority``.
    public var authority: MSALAuthority
    /// Turns the broker off for this app, as in MSAL: every request fails with ``MSALInternalError/internalBrokerNotAvailable``.
    public var bypassRedirectURIValidation = false

    // MARK: Beyond MSAL

    /// The app's identity on this device, in reverse DNS, which names its record of whose data it holds. `nil` for the identifier in
    /// ``redirectUri`` or, where that is `nil`, for ``clientId``. Two apps with one client id need two of them.
    public var applicationIdentifier: String?
    /// Whether the app reports each cleanup by ``MSALPublicClientApplication/cleanupDone(of:)``. False, as MSAL has it: a change that
    /// the app was told of counts as settled when the app makes its next request for an account or a token, after the block in which it was
    /// told has returned.
    public var reportsCleanup = false

    /// A configuration of these parts.
    public init(clientId: String, redirectUri: String?, authority: MSALAuthority?) {
        self.clientId = clientId
        self.redirectUri = redirectUri
        self.authority = authority ?? .common
    }

    /// A configuration with nothing but a client id.
    public convenience init(clientId: String) { self.init(clientId: clientId, redirectUri: nil, authority: nil) }
}

/// A configuration as it was when the application was made.
struct Configuration: Sendable {
    let clientId: String
    let redirectUri: String?
    let authority: MSALAuthority
    let bypassRedirectURIValidation: Bool
    let applicationIdentifier: String?
    let reportsCleanup: Bool

    init(_ configuration: MSALPublicClientApplicationConfig) {
        clientId = configuration.clientId
        redirectUri = configuration.redirectUri
        authority = configuration.authority
        bypassRedirectURIValidation = configuration.bypassRedirectURIValidation
        applicationIdentifier = configuration.applicationIdentifier
        reportsCleanup = configuration.reportsCleanup
    }

    /// A copy for the app.
    var copy: MSALPublicClientApplicationConfig {
        let copy = MSALPublicClientApplicationConfig(clientId: clientId, redirectUri: redirectUri, authority: authority)
        copy.bypassRedirectURIValidation = bypassRedirectURIValidation
        copy.applicationIdentifier = applicationIdentifier
        copy.reportsCleanup = reportsCleanup
        return copy
    }

    /// Whether the app is one that the broker serves.
    var isBrokerEnabled: Bool { !bypassRedirectURIValidation && (redirectUri == nil || redirectIdentifier != nil) }

    /// The app's identity on this device; it names a folder.
    ///
    /// - Throws: ``RequestFailure`` where there is none, or where it could name another folder.
    func identifier() throws(RequestFailure) -> String {
        guard !clientId.isEmpty else {
            throw .invalidParameter("could not make an application: the client id is empty; it is a required parameter")
        }
        let identifier = applicationIdentifier ?? redirectIdentifier ?? clientId
        guard !identifier.isEmpty, !identifier.hasPrefix("."), !identifier.contains("/"), !identifier.contains("\0")
        else {
            throw .invalidParameter(
                "could not make an application: “\(identifier)” is no identifier of an app; it names a folder, and so may neither "
                    + "be empty nor begin with a dot nor have a slash. Set the configuration's applicationIdentifier"
            )
        }
        return identifier
    }

    /// The identifier in a redirect URI of the broker's form.
    private var redirectIdentifier: String? {
        guard let redirectUri, redirectUri.hasPrefix("msauth."),
            let end = redirectUri.range(of: "://auth"), ["", "/"].contains(redirectUri[end.upperBound...])
        else { return nil }
        let identifier = redirectUri[..<end.lowerBound].dropFirst("msauth.".count)
        return identifier.isEmpty ? nil : String(identifier)
    }
}
