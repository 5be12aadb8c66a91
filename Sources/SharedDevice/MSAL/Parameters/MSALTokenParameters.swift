public import Foundation

/// What both token requests have in common. Made as ``MSALInteractiveTokenParameters`` or ``MSALSilentTokenParameters``.
public class MSALTokenParameters: MSALParameters {
    /// What the token is to be good for; at least one.
    public var scopes: [String]
    /// The account that the token is for. It must be the current one where somebody is signed in.
    public var account: MSALAccount?
    /// Comes back in the result or in the error's ``MSALCorrelationIDKey``; `nil` for a new one.
    public var correlationId: UUID?

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
    /// Whether the person is asked where somebody is signed in already.
    public var promptType = MSALPromptType.default
    /// The name to offer at the prompt; `nil` for that of ``MSALTokenParameters/account``.
    public var loginHint: String?

    /// Parameters of a sign-in whose name and password come through `webviewParameters`.
    public init(scopes: [String], webviewParameters: MSALWebviewParameters) {
        self.webviewParameters = webviewParameters
        super.init(scopes: scopes, account: nil)
    }
}

/// Parameters of a token request without a person.
public final class MSALSilentTokenParameters: MSALTokenParameters {
    /// Asks for a new token even where the broker has a valid one.
    public var forceRefresh = false

    /// Parameters for a token of `account`.
    public init(scopes: [String], account: MSALAccount) { super.init(scopes: scopes, account: account) }
}
