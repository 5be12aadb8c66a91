/// Parameters of a sign-out.
public final class MSALSignoutParameters: MSALParameters {
    /// The parameters that the sign-out of the browser needs; here they are but required, as in MSAL.
    public let webviewParameters: MSALWebviewParameters?
    /// Whether the browser is signed out too. Needs ``webviewParameters``.
    public var signoutFromBrowser = false
    /// Whether the tokens of all apps are removed. On a shared device they are in any case: the broker has them, and ends them with the
    /// session.
    public var wipeAccount = false
    /// Whether the tokens of all accounts are removed. A shared device has one account, and its tokens end in any case.
    public var wipeCacheForAllAccounts = false
    /// Parameters for the page that signs the browser out. Not used: the page is the one that the device's configuration names.
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
