public import Dispatch
public import Foundation

/// Parameters of any request: where its completion block runs.
public class MSALParameters {
    /// The queue on which the completion block is called. `nil` means the request's own default: the main queue for
    /// ``MSALPublicClientApplication/acquireToken(with:completionBlock:)`` and
    /// ``MSALPublicClientApplication/signout(with:signoutParameters:completionBlock:)``, a queue of the system's choice for all others.
    /// The async functions ignore it.
    public var completionBlockQueue: DispatchQueue?

    /// Parameters that change nothing.
    public init() {}
}

// MARK: Tokens

/// What both token requests have in common. Made as ``MSALInteractiveTokenParameters`` or ``MSALSilentTokenParameters``.
public class MSALTokenParameters: MSALParameters {
    /// What the token is to be good for; at least one.
    public var scopes: [String]
    /// The account that the token is for. While somebody is signed in, it must be their account.
    public var account: MSALAccount?
    /// The id that the result, or the error under ``MSALCorrelationIDKey``, has. `nil` means a new one.
    public var correlationId: UUID?
    /// The authority of this request, for ``MSALResult/authority``; `nil` means that of the configuration. It decides nothing: see
    /// ``MSALAuthority``.
    public var authority: MSALAuthority?
    /// Claims that the token is to have. A request that demands claims fails; see ``MSALClaimsRequest``.
    public var claimsRequest: MSALClaimsRequest?
    /// Parameters for the token service. Changes nothing: the broker asks no token service on the app's behalf.
    public var extraQueryParameters: [String: String]?

    init(scopes: [String], account: MSALAccount?) {
        self.scopes = scopes
        self.account = account
        super.init()
    }
}

/// Parameters of a sign-in.
public final class MSALInteractiveTokenParameters: MSALTokenParameters {
    /// How the person is asked.
    public let webviewParameters: MSALWebviewParameters
    /// Whether the person is asked while somebody is signed in already.
    public var promptType = MSALPromptType.default
    /// The name to offer at the prompt; `nil` means that of ``MSALTokenParameters/account``.
    public var loginHint: String?
    /// The person's organisation, as a hint to the token service. Changes nothing.
    public var domainHint: String?
    /// Scopes that the person is asked to consent to, beyond those of the token. Changes nothing: the administrator consents for all.
    public var extraScopesToConsent: [String]?
    /// The way to sign in that the app prefers. Changes nothing: the prompt decides.
    public var preferredAuthMethod = MSALPreferredAuthMethod.notConfigured

    /// Parameters of a sign-in at which the person is asked as `webviewParameters` say.
    public init(scopes: [String], webviewParameters: MSALWebviewParameters) {
        self.webviewParameters = webviewParameters
        super.init(scopes: scopes, account: nil)
    }

    /// Parameters of a sign-in at the device's own prompt.
    public convenience init(scopes: [String]) { self.init(scopes: scopes, webviewParameters: MSALWebviewParameters()) }

    /// The kind of web view, in its old place. Changes nothing.
    public var webviewType: MSALWebviewType {
        get { webviewParameters.webviewType }
        set { webviewParameters.webviewType = newValue }
    }
}

/// Whether the person is asked while somebody is signed in already.
public enum MSALPromptType: UInt, Sendable {
    /// Asks which account. The device has one account at a time: while somebody is signed in, the request fails.
    case selectAccount
    /// Asks in any case; the rest is as for ``selectAccount``.
    case login
    /// Asks for consent. The administrator has consented for the broker's users; the rest is as for ``selectAccount``.
    case consent
    /// Makes an account. The administrator makes the broker's users; the rest is as for ``selectAccount``.
    case create
    /// Asks only while nobody is signed in. Otherwise the result is a token of the current account: single sign-on.
    case promptIfNecessary

    /// ``promptIfNecessary``.
    public static let `default` = MSALPromptType.promptIfNecessary
}

/// Parameters of a token request without a person.
public final class MSALSilentTokenParameters: MSALTokenParameters {
    /// Asks for a new token even while the broker has a valid one.
    public var forceRefresh = false

    /// Parameters for a token of `account`.
    public init(scopes: [String], account: MSALAccount) { super.init(scopes: scopes, account: account) }
}

// MARK: Accounts

/// Parameters of a sign-out.
public final class MSALSignoutParameters: MSALParameters {
    /// Required for a sign-out of the browser, as in MSAL; not used otherwise.
    public let webviewParameters: MSALWebviewParameters?
    /// Whether the browser is signed out too. Needs ``webviewParameters``, and `endSessionURL` in the device's
    /// configuration.
    public var signoutFromBrowser = false
    /// Whether the tokens of all apps are removed. Changes nothing: the broker has all tokens, and they end with the session.
    public var wipeAccount = false
    /// Whether the tokens of all accounts are removed. Changes nothing: a shared device has one account, and its tokens end anyway.
    public var wipeCacheForAllAccounts = false
    /// Parameters for the page that signs the browser out. Changes nothing: the device's configuration names that page.
    public var extraQueryParameters: [String: String]?

    /// Parameters of a sign-out that may include the browser.
    public init(webviewParameters: MSALWebviewParameters) {
        self.webviewParameters = webviewParameters
        super.init()
    }

    /// Parameters of a sign-out without the browser.
    public override init() {
        webviewParameters = nil
        super.init()
    }
}

/// Which accounts to list. An account must match every value that is given.
public final class MSALAccountEnumerationParameters: MSALParameters {
    /// ``MSALAccount/identifier``; `nil` means any.
    public let identifier: String?
    /// ``MSALAccount/username``, in upper or lower case; `nil` means any.
    public let username: String?
    /// ``MSALTenantProfile/identifier``; `nil` means any.
    public let tenantProfileIdentifier: String?
    /// Whether only accounts that are signed in are listed. Changes nothing: the broker knows no other.
    public var returnOnlySignedInAccounts = true

    /// All accounts.
    public override init() {
        identifier = nil
        username = nil
        tenantProfileIdentifier = nil
        super.init()
    }

    /// The account of this person within an organisation.
    public init(tenantProfileIdentifier: String) {
        identifier = nil
        username = nil
        self.tenantProfileIdentifier = tenantProfileIdentifier
        super.init()
    }

    /// The account of this identity.
    public init(identifier: String) {
        self.identifier = identifier
        username = nil
        tenantProfileIdentifier = nil
        super.init()
    }

    /// The account of this identity and name.
    public init(identifier: String?, username: String) {
        self.identifier = identifier
        self.username = username
        tenantProfileIdentifier = nil
        super.init()
    }
}
