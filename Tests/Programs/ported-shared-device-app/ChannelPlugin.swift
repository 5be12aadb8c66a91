import MSAL

// A plugin that another language calls by name: global settings, kinds of web views, authorities of single requests,
// and a table of errors.

enum AuthorityType: String {
    case aad, b2c, ciam
}

public class ChannelPlugin {
    private var application: MSALPublicClientApplication!
    private let viewController: UIViewController

    init(_ viewController: UIViewController) {
        self.viewController = viewController
        MSALGlobalConfig.loggerConfig.logLevel = .verbose
        MSALGlobalConfig.loggerConfig.piiEnabled = false
        MSALGlobalConfig.loggerConfig.setLogCallback { (level, message, containsPII) in
            if let message = message, !containsPII { print("[MSAL][\(level)] \(message)") }
        }
    }

    func create(clientId: String, authority: String?, type: AuthorityType, broker: String) {
        switch broker {
        case "webView", "safariBrowser": MSALGlobalConfig.brokerAvailability = .none
        default: MSALGlobalConfig.brokerAvailability = .auto
        }
        var configuration: MSALPublicClientApplicationConfig!
        do {
            if let authority = authority {
                let made = try self.authority(authority, type)
                configuration = MSALPublicClientApplicationConfig(clientId: clientId, redirectUri: nil, authority: made)
                configuration.knownAuthorities = [made]
            } else {
                configuration = MSALPublicClientApplicationConfig(clientId: clientId)
            }
            configuration.cacheConfig.keychainSharingGroup = "org.example.channel"
            application = try MSALPublicClientApplication(configuration: configuration)
            let made = application.configuration
            print("created", made.authority.url, made.cacheConfig.keychainSharingGroup, made.knownAuthorities.count)
        } catch let error as NSError {
            report(error)
        }
    }

    private func authority(_ address: String, _ type: AuthorityType) throws -> MSALAuthority {
        let url = URL(string: address)!
        switch type {
        case .b2c: return try MSALB2CAuthority(url: url)
        case .ciam:
            if #available(iOS 14.0, *) { return try MSALCIAMAuthority(url: url) }
            return try MSALAADAuthority(url: url)
        default: return try MSALAuthority(url: url)
        }
    }

    func acquireToken(webView: String, prompt: String) {
        let webviewParameters = MSALWebviewParameters(authPresentationViewController: viewController)
        if #available(iOS 13.0, *) {
            webviewParameters.prefersEphemeralWebBrowserSession = true
            switch webView {
            case "webView":
                webviewParameters.webviewType = .wkWebView
                webviewParameters.customWebview = WKWebView()
            case "safariBrowser": webviewParameters.webviewType = .safariViewController
            default: webviewParameters.webviewType = .default
            }
        }
        let parameters = MSALInteractiveTokenParameters(scopes: ["User.Read"], webviewParameters: webviewParameters)
        switch prompt {
        case "selectAccount": parameters.promptType = .selectAccount
        case "login": parameters.promptType = .login
        case "create": parameters.promptType = .create
        case "whenRequired": parameters.promptType = .promptIfNecessary
        default: parameters.promptType = .default
        }
        parameters.extraQueryParameters = ["slice": "test"]
        parameters.extraScopesToConsent = ["Mail.Read"]
        do {
            parameters.authority = try authority("https://contoso.ciamlogin.com/contoso", .ciam)
        } catch let error as NSError {
            return report(error)
        }
        application.acquireToken(
            with: parameters,
            completionBlock: { (result, error) in
                guard let result = result else {
                    guard let error = error as NSError? else { return }
                    return self.report(error)
                }
                self.show(result)
            }
        )
    }

    func acquireTokenSilent() {
        guard let account = accountOfTenant() else { return print("no account") }
        let parameters = MSALSilentTokenParameters(scopes: ["User.Read"], account: account)
        parameters.authority = try? MSALADFSAuthority(url: URL(string: "https://adfs.contoso.example/adfs")!)
        parameters.extraQueryParameters = ["slice": "test"]
        application.acquireTokenSilent(with: parameters) { result, error in
            if let result = result { self.show(result) }
            if let error = error as NSError? { self.report(error) }
        }
    }

    /// The account with a profile in the tenant that its claims name.
    private func accountOfTenant() -> MSALAccount? {
        guard let accounts = try? application.allAccounts() else { return nil }
        for account in accounts {
            if let profiles = account.tenantProfiles {
                for profile in profiles {
                    if let tenantId = profile.tenantId, profile.isHomeTenantProfile,
                        profile.claims?["tid"] as? String == tenantId
                    {
                        return account
                    }
                }
            }
        }
        return nil
    }

    func removeAccount() {
        guard let account = accountOfTenant() else { return print("no account") }
        do {
            try application.remove(account)
            print("removed")
        } catch let error as NSError {
            report(error)
        }
    }

    private func show(_ result: MSALResult) {
        let milliseconds = Int(result.expiresOn!.timeIntervalSince1970 * 1000.0)
        print("token", result.account.username ?? "-", result.authority.url.absoluteString, milliseconds > 0)
    }

    private func report(_ error: NSError) {
        guard error.domain == MSALErrorDomain, let code = MSALError(rawValue: error.code) else {
            return print("error", error.domain)
        }
        switch code {
        case .userCanceled: print("error USER_CANCEL")
        case .serverDeclinedScopes:
            print(
                "error DECLINED",
                error.userInfo[MSALGrantedScopesKey] ?? "",
                error.userInfo[MSALDeclinedScopesKey] ?? ""
            )
        case .interactionRequired: print("error UI_REQUIRED", error.userInfo[MSALOAuthSubErrorDescriptionKey] ?? "-")
        case .internal: print("error INTERNAL", error.userInfo[MSALInternalErrorCodeKey] ?? "-")
        case .workplaceJoinRequired, .serverError, .insufficientDeviceStrength, .serverProtectionPoliciesRequired,
            .mdmEnrollmentCompletedNeedsRetry, .serverInvalidRequestResetPasswordRequired:
            print("error OTHER")
        @unknown default: break
        }
    }
}

final class ChannelForm: Form {
    private let plugin: ChannelPlugin

    init(_ viewController: UIViewController) {
        plugin = ChannelPlugin(viewController)
        create(broker: "broker")
    }

    private func create(broker: String) {
        plugin.create(
            clientId: "org.example.channel",
            authority: "https://contoso.b2clogin.com/contoso",
            type: .b2c,
            broker: broker
        )
    }

    func press(_ button: String) {
        switch button {
        case "sign-in": plugin.acquireToken(webView: "webView", prompt: "whenRequired")
        case "refresh": plugin.acquireTokenSilent()
        case "no-broker": create(broker: "webView")
        default: plugin.removeAccount()
        }
    }
}
