public import Dispatch
public import Foundation

/// The parameters of any request: the queue of its completion block.
public class MSALParameters {
    /// The queue on which the completion block is called. `nil` means the main queue for
    /// ``MSALPublicClientApplication/acquireToken(with:completionBlock:)`` and
    /// ``MSALPublicClientApplication/signout(with:signoutParameters:completionBlock:)``, a queue of the system's choice
    /// for all others. The async functions ignore it.
    public var completionBlockQueue: DispatchQueue?

    /// Parameters with default values.
    public init() {}
}

// MARK: Tokens

/// The parameters that both token requests share. Create ``MSALInteractiveTokenParameters`` or
/// ``MSALSilentTokenParameters``.
public class MSALTokenParameters: MSALParameters {
    /// The scopes of the token; at least one.
    public var scopes: [String]
    /// The account of the token. While an account is signed in, it must be that account.
    public var account: MSALAccount?
    /// The correlation id of the result, or of the error under ``MSALCorrelationIDKey``. `nil` means a new one.
    public var correlationId: UUID?
    /// The authority of this request, for ``MSALResult/authority``; `nil` means the configuration's. It has no effect
    /// on the token: see ``MSALAuthority``.
    public var authority: MSALAuthority?
    /// The claims of the token. For them the person is asked; see ``MSALClaimsRequest``.
    public var claimsRequest: MSALClaimsRequest?
    /// Parameters for the token service. Changes nothing: the broker passes none on.
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
    /// Whether to ask the person although an account is signed in.
    public var promptType = MSALPromptType.default
    /// The user name to offer at the prompt; `nil` means that of ``MSALTokenParameters/account``.
    public var loginHint: String?
    /// The person's organisation, as a hint to the token service. Changes nothing.
    public var domainHint: String?
    /// Further scopes to ask the person's consent for. Changes nothing: the administrator consents for everyone.
    public var extraScopesToConsent: [String]?
    /// The sign-in method that the app prefers. Changes nothing: the prompt decides.
    public var preferredAuthMethod = MSALPreferredAuthMethod.notConfigured

    /// Parameters of a sign-in with the prompt of `webviewParameters`.
    public init(scopes: [String], webviewParameters: MSALWebviewParameters) {
        self.webviewParameters = webviewParameters
        super.init(scopes: scopes, account: nil)
    }

    /// Parameters of a sign-in at the device's own prompt.
    public convenience init(scopes: [String]) { self.init(scopes: scopes, webviewParameters: MSALWebviewParameters()) }

    /// The kind of web view, at its old place in the API. Changes nothing.
    public var webviewType: MSALWebviewType {
        get { webviewParameters.webviewType }
        set { webviewParameters.webviewType = newValue }
    }
}

/// Whether to ask the person although an account is signed in.
public enum MSALPromptType: UInt, Sendable {
    /// Asks which account. The device has one account at a time: while an account is signed in, the request fails.
    case selectAccount
    /// Always asks. While an account is signed in, its person authenticates again, and the session stays open.
    case login
    /// Asks for consent. The administrator has consented for the broker's users; otherwise like ``selectAccount``.
    case consent
    /// Creates an account. The administrator creates the broker's users; otherwise like ``selectAccount``.
    case create
    /// Asks only if no account is signed in. Otherwise the result is a token of the current account (single sign-on).
    case promptIfNecessary

    /// ``promptIfNecessary``.
    public static let `default` = MSALPromptType.promptIfNecessary
}

/// Parameters of a silent token request.
public final class MSALSilentTokenParameters: MSALTokenParameters {
    /// Asks for a new token even if the broker has a valid one.
    public var forceRefresh = false

    /// Parameters for a token of `account`.
    public init(scopes: [String], account: MSALAccount) { super.init(scopes: scopes, account: account) }
}

// MARK: Accounts

/// Parameters of a sign-out.
public final class MSALSignoutParameters: MSALParameters {
    /// Required for a sign-out of the browser, as in MSAL; not used otherwise.
    public let webviewParameters: MSALWebviewParameters?
    /// Whether to sign the browser out too. Needs ``webviewParameters``, and `endSessionURL` in the device's
    /// configuration.
    public var signoutFromBrowser = false
    /// Whether to remove the tokens of all apps. Changes nothing: the broker has all tokens, and they end with the
    /// session.
    public var wipeAccount = false
    /// Whether to remove the tokens of all accounts. Changes nothing: a shared device has one account, and its tokens
    /// end anyway.
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

/// A filter for accounts. An account must match every value that is given.
public final class MSALAccountEnumerationParameters: MSALParameters {
    /// ``MSALAccount/identifier``; `nil` means any.
    public private(set) var identifier: String?
    /// ``MSALAccount/username``, ignoring case; `nil` means any.
    public private(set) var username: String?
    /// ``MSALTenantProfile/identifier``; `nil` means any.
    public private(set) var tenantProfileIdentifier: String?
    /// Whether to list only accounts that are signed in. Changes nothing: the broker knows no others.
    public var returnOnlySignedInAccounts = true

    /// All accounts.
    public override init() { super.init() }

    /// The account of this person within an organisation.
    public init(tenantProfileIdentifier: String) {
        self.tenantProfileIdentifier = tenantProfileIdentifier
        super.init()
    }

    /// The account of this identity.
    public init(identifier: String) {
        self.identifier = identifier
        super.init()
    }

    /// The account of this identity and name.
    public init(identifier: String?, username: String) {
        (self.identifier, self.username) = (identifier, username)
        super.init()
    }
}
