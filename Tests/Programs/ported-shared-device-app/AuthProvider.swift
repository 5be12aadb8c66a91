import MSAL

// A login provider next to others (Apple, Google, Microsoft): an async function around a completion block, and a
// sign-out by `remove`.

enum SocialAuthError: Error {
    case error(text: String)
    case canceled
}

struct SocialAuthResponse {
    let name: String
    let email: String
    let token: String
}

public final class AuthProvider {
    private let scopes = ["User.Read", "email"]
    private var result: MSALResult?
    private let application: MSALPublicClientApplication

    init() throws {
        application = try MSALPublicClientApplication(
            configuration: MSALPublicClientApplicationConfig(clientId: "org.example.provider")
        )
    }

    @MainActor
    func signIn(withPresenting: UIViewController) async -> Result<SocialAuthResponse, any Error> {
        await withCheckedContinuation { continuation in
            let webParameters = MSALWebviewParameters(authPresentationViewController: withPresenting)
            let parameters = MSALInteractiveTokenParameters(scopes: scopes, webviewParameters: webParameters)
            application.acquireToken(with: parameters) { result, error in
                if let error = error {
                    continuation.resume(returning: .failure(self.failure(error)))
                    return
                }
                guard let result = result else {
                    continuation.resume(returning: .failure(SocialAuthError.error(text: "unknown")))
                    return
                }
                self.result = result
                let account = result.account
                continuation.resume(
                    returning: .success(
                        SocialAuthResponse(
                            name: account.accountClaims?["name"] as? String ?? "",
                            email: account.accountClaims?["email"] as? String ?? "",
                            token: result.accessToken
                        )
                    )
                )
            }
        }
    }

    /// As in iOS apps, the account is only removed from this app. On a shared device, the removal signs no account out.
    func signOut() {
        do {
            guard let account = try application.allAccounts().first else { return print("no account") }
            try application.remove(account)
            print("removed", try application.allAccounts().count)
        } catch let error {
            print("could not sign out: \(error)")
        }
    }

    private func failure(_ error: (any Error)?) -> any Error {
        if let error = error as? NSError, let description = error.userInfo[MSALErrorDescriptionKey] as? String {
            if let code = MSALError(rawValue: error.code), case .userCanceled = code { return SocialAuthError.canceled }
            return SocialAuthError.error(text: description)
        }
        return error ?? SocialAuthError.error(text: "unknown")
    }
}

final class ProviderForm: Form {
    private let provider: AuthProvider
    private let viewController: UIViewController

    init(_ viewController: UIViewController) throws {
        provider = try AuthProvider()
        self.viewController = viewController
    }

    func press(_ button: String) {
        guard button == "sign-in" else { return provider.signOut() }
        Task { @MainActor in
            switch await provider.signIn(withPresenting: viewController) {
            case .success(let response):
                print("provided", response.name, response.email.isEmpty, !response.token.isEmpty)
            case .failure(let error): print("failed", error)
            }
        }
    }
}
