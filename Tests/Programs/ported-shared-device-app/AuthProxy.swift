import MSAL

// A SwiftUI app: a class behind a protocol hides MSAL, and every request ends in a completion handler.

struct Person: Equatable {
    let email: String?
}

extension MSALAccount {
    var person: Person { Person(email: username) }
}

enum AuthError: Error {
    case interactiveLoginRequired
}

protocol AuthProxyProtocol {
    func setup(authorityUrl: URL, redirectUri: String) throws
    func connect(viewController: UIViewController)
    func loadAccount(completion: @escaping (Person?, (any Error)?) -> Void)
    func signIn(scopes: [String], completion: @escaping (Person?, String?, (any Error)?) -> Void)
    func refresh(scopes: [String], completion: @escaping (Person?, String?, (any Error)?) -> Void)
    func logout(completion: @escaping ((any Error)?) -> Void)
    func open(url: URL)
    func deviceMode(completion: @escaping (String?, (any Error)?) -> Void)
}

class AuthProxy: AuthProxyProtocol {
    private var context: MSALPublicClientApplication?
    private var webviewParameters: MSALWebviewParameters?
    private var account: MSALAccount?

    func setup(authorityUrl: URL, redirectUri: String) throws {
        let authority = try MSALAADAuthority(url: authorityUrl)
        let configuration = MSALPublicClientApplicationConfig(
            clientId: "8bcb2f1c-2f6b-4a8a-9d5c-0d8f1a6f7d12",
            redirectUri: redirectUri,
            authority: authority
        )
        context = try MSALPublicClientApplication(configuration: configuration)
    }

    func connect(viewController: UIViewController) {
        webviewParameters = MSALWebviewParameters(authPresentationViewController: viewController)
    }

    func loadAccount(completion: @escaping (Person?, (any Error)?) -> Void) {
        guard let context = context else { return }
        let parameters = MSALParameters()
        parameters.completionBlockQueue = DispatchQueue.main
        context.getCurrentAccount(with: parameters) { (account, _, error) in
            self.account = account
            completion(account?.person, error)
        }
    }

    func signIn(scopes: [String], completion: @escaping (Person?, String?, (any Error)?) -> Void) {
        guard let context = context, let webviewParameters = webviewParameters else { return }
        let parameters = MSALInteractiveTokenParameters(scopes: scopes, webviewParameters: webviewParameters)
        context.acquireToken(with: parameters) { (result, error) in
            self.account = result?.account
            completion(result?.account.person, result?.accessToken, error)
        }
    }

    func refresh(scopes: [String], completion: @escaping (Person?, String?, (any Error)?) -> Void) {
        guard let context = context, let account = account else { return }
        let parameters = MSALSilentTokenParameters(scopes: scopes, account: account)
        context.acquireTokenSilent(with: parameters) { (result, error) in
            self.account = result?.account
            var shown: (any Error)? = error
            if let nsError = error as NSError?, nsError.domain == MSALErrorDomain,
                nsError.code == MSALError.interactionRequired.rawValue
            {
                shown = AuthError.interactiveLoginRequired
            }
            completion(result?.account.person, result?.accessToken, shown)
        }
    }

    func logout(completion: @escaping ((any Error)?) -> Void) {
        guard let context = context, let account = account else { return completion(nil) }
        self.account = nil
        let parameters = MSALSignoutParameters(webviewParameters: webviewParameters!)
        parameters.signoutFromBrowser = false
        context.signout(with: account, signoutParameters: parameters) { (_, error) in completion(error) }
    }

    func open(url: URL) { MSALPublicClientApplication.handleMSALResponse(url, sourceApplication: nil) }

    func deviceMode(completion: @escaping (String?, (any Error)?) -> Void) {
        context?.getDeviceInformation(with: nil) { (information, error) in
            guard let information = information else { return completion(nil, error) }
            completion(information.deviceMode == .shared ? "shared" : "private", error)
        }
    }
}

final class ProxyForm: Form {
    private let proxy: any AuthProxyProtocol = AuthProxy()

    init(_ viewController: UIViewController) throws {
        try proxy.setup(
            authorityUrl: URL(string: "https://login.microsoftonline.com/contoso")!,
            redirectUri: "msauth.org.example.proxy://auth"
        )
        proxy.connect(viewController: viewController)
    }

    func press(_ button: String) {
        switch button {
        case "mode": proxy.deviceMode { mode, error in print("mode", mode ?? "-", error == nil) }
        case "account": proxy.loadAccount { person, error in print("account", person?.email ?? "-", error == nil) }
        case "sign-in":
            proxy.signIn(scopes: ["User.Read"]) { person, token, error in
                print("signed in", person?.email ?? "-", token != nil, error == nil)
            }
        case "refresh":
            proxy.refresh(scopes: ["User.Read"]) { person, token, error in
                let interactive = (error as? AuthError) == .interactiveLoginRequired
                print("refreshed", person?.email ?? "-", token != nil, interactive)
            }
        case "sign-out": proxy.logout { error in print("signed out", error == nil) }
        default: proxy.open(url: URL(string: "msauth.org.example.proxy://auth")!)
        }
    }
}
