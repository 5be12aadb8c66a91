import AppleNotifications
import MSAL

// A plugin of a hybrid app: calls with options, several kinds of authorities, and a listener whose observer is the
// plugin.

public class HybridPlugin {
    private var application: MSALPublicClientApplication?
    private var scopes: [String] = []
    private var domainHint: String?
    private var viewController: UIViewController?
    private var isListening = false
    var onAccountChanged: (() -> Void)?

    deinit {
        if isListening {
            CFNotificationCenterRemoveEveryObserver(
                CFNotificationCenterGetDarwinNotifyCenter(),
                Unmanaged.passUnretained(self).toOpaque()
            )
        }
    }

    func initialize(_ call: PluginCall, viewController: UIViewController) {
        guard let clientId = call.getString("clientId") else { return call.reject("no client id") }
        let type = call.getString("authorityType") ?? "AAD"
        guard let url = URL(string: call.getString("authorityUrl") ?? "https://login.microsoftonline.com/common") else {
            return call.reject("no address")
        }
        scopes = call.getArray("scopes", String.self) ?? []
        domainHint = call.getString("domainHint")
        self.viewController = viewController
        do {
            let authority = type == "AAD" ? try MSALAADAuthority(url: url) : try MSALB2CAuthority(url: url)
            let configuration = MSALPublicClientApplicationConfig(
                clientId: clientId,
                redirectUri: nil,
                authority: authority
            )
            let known = call.getArray("knownAuthorities", String.self) ?? []
            if known.isEmpty {
                configuration.knownAuthorities = [authority]
            } else {
                configuration.knownAuthorities = known.compactMap { address in
                    guard let url = URL(string: address) else { return nil }
                    return try?
                        (type == "AAD"
                        ? MSALAADAuthority(url: url) as MSALAuthority : MSALB2CAuthority(url: url) as MSALAuthority)
                }
            }
            application = try MSALPublicClientApplication(configuration: configuration)
            listen()
            call.resolve(["known": configuration.knownAuthorities.count])
        } catch {
            call.reject("\(error)")
        }
    }

    func login(_ call: PluginCall) {
        if let identifier = call.getString("identifier") {
            refresh(identifier, call)
        } else {
            signIn(call)
        }
    }

    private func refresh(_ identifier: String, _ call: PluginCall) {
        guard let application = application else { return call.reject("not initialized") }
        let account: MSALAccount
        if let named = try? application.account(forUsername: identifier) {
            account = named
        } else if let identified = try? application.account(forIdentifier: identifier) {
            account = identified
        } else {
            return signIn(call)
        }
        let parameters = MSALSilentTokenParameters(scopes: scopes, account: account)
        application.acquireTokenSilent(with: parameters) { (result, error) in
            guard let result = result, error == nil else { return self.signIn(call) }
            self.answer(result, call)
        }
    }

    private func signIn(_ call: PluginCall) {
        guard let application = application, let viewController = viewController else {
            return call.reject("not initialized")
        }
        let webviewParameters = MSALWebviewParameters(authPresentationViewController: viewController)
        let parameters = MSALInteractiveTokenParameters(scopes: scopes, webviewParameters: webviewParameters)
        parameters.promptType = .selectAccount
        parameters.domainHint = domainHint
        parameters.loginHint = call.getString("loginHint")
        application.acquireToken(with: parameters) { (result, error) in
            guard let result = result else { return call.reject("no token: \((error as NSError?)?.code ?? 0)") }
            self.answer(result, call)
        }
    }

    private func answer(_ result: MSALResult, _ call: PluginCall) {
        var answer: [String: Any] = [:]
        answer["username"] = result.account.username
        answer["environment"] = result.account.environment
        answer["authority"] = result.authority.description
        answer["isPerson"] = result.tenantProfile.identifier == result.account.homeAccountId?.objectId
        answer["isTenant"] = result.tenantProfile.tenantId == result.account.homeAccountId?.tenantId
        answer["isSSOAccount"] = result.account.isSSOAccount
        answer["hasIdToken"] = result.idToken != nil
        answer["hasHeader"] = result.authorizationHeader == "\(result.authenticationScheme) \(result.accessToken)"
        call.resolve(answer)
    }

    func logout(_ call: PluginCall) {
        guard let application = application, let viewController = viewController else {
            return call.reject("not initialized")
        }
        let parameters = MSALParameters()
        parameters.completionBlockQueue = DispatchQueue.main
        application.getDeviceInformation(with: parameters) { [weak self] information, error in
            guard let self = self else { return }
            guard let information = information, error == nil else { return call.reject("no device mode") }
            guard information.deviceMode == .shared else { return self.forget(call) }
            application.getCurrentAccount(with: parameters) { current, _, error in
                guard let account = current ?? (try? application.allAccounts().first) else { return call.resolve() }
                let webviewParameters = MSALWebviewParameters(authPresentationViewController: viewController)
                let signoutParameters = MSALSignoutParameters(webviewParameters: webviewParameters)
                signoutParameters.signoutFromBrowser = true
                application.signout(with: account, signoutParameters: signoutParameters) { success, error in
                    if let error = error { return call.reject(error.localizedDescription) }
                    call.resolve(["success": success])
                }
            }
        }
    }

    func forget(_ call: PluginCall) {
        guard let application = application else { return call.reject("not initialized") }
        do {
            for account in try application.allAccounts() { try application.remove(account) }
            call.resolve(["left": try application.allAccounts().count])
        } catch {
            call.reject(error.localizedDescription)
        }
    }

    private func listen() {
        guard !isListening else { return }
        let callback: CFNotificationCallback = { _, observer, _, _, _ in
            guard let observer = observer else { return }
            let plugin = Unmanaged<HybridPlugin>.fromOpaque(observer).takeUnretainedValue()
            DispatchQueue.main.async { plugin.onAccountChanged?() }
        }
        CFNotificationCenterAddObserver(
            CFNotificationCenterGetDarwinNotifyCenter(),
            Unmanaged.passUnretained(self).toOpaque(),
            callback,
            "SHARED_MODE_CURRENT_ACCOUNT_CHANGED" as CFString,
            nil,
            .deliverImmediately
        )
        isListening = true
    }
}

final class HybridForm: Form {
    private let plugin = HybridPlugin()

    init(_ viewController: UIViewController) {
        plugin.onAccountChanged = { print("account changed") }
        let options: [String: Any] = [
            "clientId": "org.example.hybrid", "authorityType": "B2C", "scopes": ["User.Read"],
            "authorityUrl": "https://contoso.b2clogin.com/contoso/policy", "domainHint": "contoso.example",
            "knownAuthorities": ["https://a.example/one", "http://plain.example", "https://b.example/two"],
        ]
        plugin.initialize(PluginCall(options: options), viewController: viewController)
    }

    func press(_ button: String) {
        switch button {
        case "sign-in": plugin.login(PluginCall(options: [:]))
        case "refresh": plugin.login(PluginCall(options: ["identifier": "ada"]))
        case "forget": plugin.forget(PluginCall(options: [:]))
        default: plugin.logout(PluginCall(options: [:]))
        }
    }
}
