import AppleNotifications
import MSAL

// The lines between “printed: NAME” and “end of NAME” are the snippets of the documentation of shared device mode for iOS, word for
// word: Fixtures/NAME.swift.txt. Lines that this app adds to them end in “// app”; MSALTests compares.

let MSID_SHARED_MODE_CURRENT_ACCOUNT_CHANGED_NOTIFICATION_KEY = "SHARED_MODE_CURRENT_ACCOUNT_CHANGED"

func sharedModeAccountChangedCallback(
    center: CFNotificationCenter?,
    observer: UnsafeMutableRawPointer?,
    name: CFNotificationName?,
    object: UnsafeRawPointer?,
    userInfo: CFDictionary?
) {
    // Invoke account cleanup logic here
    print("broadcast")
    controller.checkCurrentAccount()
}

class ViewController {
    let application: MSALPublicClientApplication
    var webViewParamaters: MSALWebviewParameters?
    var account: MSALAccount?
    let loginHint: String

    init(application: MSALPublicClientApplication, name: String, password: String) {
        self.application = application
        loginHint = name
        webViewParamaters = MSALWebviewParameters(prompt: { hint in
            MSALCredentials(username: hint ?? "", password: password)
        })
    }

    func registerDarwinNotificationListener() {
        let center = CFNotificationCenterGetDarwinNotifyCenter()
        CFNotificationCenterAddObserver(
            center,
            nil,
            sharedModeAccountChangedCallback,
            MSID_SHARED_MODE_CURRENT_ACCOUNT_CHANGED_NOTIFICATION_KEY as CFString,
            nil,
            CFNotificationSuspensionBehavior.deliverImmediately
        )
    }

    // swift-format-ignore
    func detect() {
        // printed: detect
        application.getDeviceInformation(with: nil, completionBlock: { (deviceInformation, error) in

            if let error = error { print("detect failed \((error as NSError).code)") } // app
            guard let deviceInfo = deviceInformation else {
                return
            }

            let isSharedDevice = deviceInfo.deviceMode == .shared
            // Change your app UX if needed
            print("shared \(isSharedDevice)") // app
        })
        // end of detect
    }

    // swift-format-ignore
    func checkCurrentAccount() {
        // printed: current-account
        let msalParameters = MSALParameters()
        msalParameters.completionBlockQueue = DispatchQueue.main

        application.getCurrentAccount(with: msalParameters, completionBlock: { (currentAccount, previousAccount, error) in

            // currentAccount is the currently signed in account
            // previousAccount is the previously signed in account if any
            dispatchPrecondition(condition: .onQueue(.main)) // app
            self.show(currentAccount, previousAccount, error) // app
        })
        // end of current-account
    }

    func show(_ currentAccount: MSALAccount?, _ previousAccount: MSALAccount?, _ error: (any Error)?) {
        if let error = error { return print("account failed \((error as NSError).code)") }
        if let previousAccount = previousAccount, previousAccount != currentAccount {
            print("cleaned \(previousAccount.username ?? "-")")
        }
        account = currentAccount
        print("current \(currentAccount?.username ?? "-") previous \(previousAccount?.username ?? "-")")
    }

    /// The sign-in, which the documentation prints in Objective-C only.
    func signIn() {
        let parameters = MSALInteractiveTokenParameters(
            scopes: ["api://myapi/scope"],
            webviewParameters: webViewParamaters!
        )
        parameters.loginHint = loginHint
        application.acquireToken(with: parameters) { result, error in
            guard let authResult = result, error == nil else {
                let nsError = error! as NSError
                let reason = nsError.userInfo[MSALErrorDescriptionKey] ?? "-"
                return print("sign-in failed \(nsError.domain) \(nsError.code) \(reason)")
            }
            dispatchPrecondition(condition: .onQueue(.main))
            self.account = authResult.account
            print("signed in \(authResult.account.username ?? "-") for \(authResult.scopes.joined(separator: " "))")
        }
    }

    // swift-format-ignore
    func signOut() {
        guard let retrieved = account else { return print("no account to sign out") }
        // printed: sign-out
        let account = retrieved /* account retrieved above */ // placeholder

        let signoutParameters = MSALSignoutParameters(webviewParameters: self.webViewParamaters!)
        signoutParameters.signoutFromBrowser = true // To trigger a browser signout in Safari.

        application.signout(with: account, signoutParameters: signoutParameters, completionBlock: {(success, error) in
            if let error = error {

                // Signout failed
                print("sign-out failed \((error as NSError).code)") // app

                return

            }

            // Sign out completed successfully
            dispatchPrecondition(condition: .onQueue(.main)) // app
            print("signed out \(success)") // app

        })
        // end of sign-out
    }
}

extension ViewController: Form {
    func press(_ button: String) {
        switch button {
        case "detect": detect()
        case "account": checkCurrentAccount()
        case "sign-in": signIn()
        default: signOut()
        }
    }
}
