public import Dispatch
public import FoundationEssentials

/// The parameters of any request: the queue of its completion block.
public struct SharedDeviceParameters: Sendable {
    /// The queue on which the completion block is called; `nil` means the request's own default.
    public var completionBlockQueue: DispatchQueue?

    /// Creates parameters; without arguments they are the defaults.
    public init(completionBlockQueue: DispatchQueue? = nil) { self.completionBlockQueue = completionBlockQueue }
}

/// A user name and a password, as a person enters them.
public struct Credentials: Sendable {
    /// The name to sign in with.
    public let username: String
    /// The password. It is sent to the broker over the bus; on a session bus, other processes of the same user can read
    /// it there.
    public let password: String

    /// Creates credentials from what the person entered.
    public init(username: String, password: String) {
        self.username = username
        self.password = password
    }
}

/// Parameters of an interactive sign-in.
public struct InteractiveTokenParameters: Sendable {
    /// The scopes of the token.
    public var scopes: [String]
    /// The user name to offer at the prompt.
    public var loginHint: String?
    /// The queue on which the completion block is called; `nil` means the main queue.
    public var completionBlockQueue: DispatchQueue?
    /// The time that the sign-in waits for other apps to clean up after the last user, if the device's policy demands
    /// that; at most a minute.
    public var patience: Duration = .seconds(15)
    /// Asks the person, given the login hint, and returns the entered credentials, or `nil` if the person cancelled;
    /// called on the task that signs in. Without a closure `shared-device-sign-in` asks, and the app sees no password.
    public var prompt: (@Sendable (_ loginHint: String?) async -> Credentials?)?
    /// Whether `shared-device-sign-in` asks in a window even if the app has a terminal.
    public var showsPage = false
    /// Whether a signed-in person has to authenticate again, for instance before a payment. The session stays open, and
    /// only the same person can answer. ``prompt`` cannot ask again; `shared-device-sign-in` can.
    public var asksAgain = false
    /// How long ago a signed-in person may have authenticated. After a longer time the person is asked as with
    /// ``asksAgain``, and so they are after a restart of the broker. `nil` means any time.
    public var maximumAge: Duration?
    /// Claims that the organisation's provider has to meet, as JSON (OpenID Connect Core 1.0, section 5.5) of at most
    /// 4096 bytes: a service's claims challenge. A signed-in person is asked as with ``asksAgain``. The device's own
    /// directory and a sign-in with a code meet no claims.
    public var claims: String?

    /// Creates parameters of a sign-in with the device's own prompt, `shared-device-sign-in`, which works with every
    /// identity provider: on the app's terminal if it has one, otherwise in a window.
    public init(scopes: [String], loginHint: String? = nil) {
        self.scopes = scopes
        self.loginHint = loginHint
    }

    /// Creates parameters of a sign-in whose credentials come from `prompt`. It works only with the device's own
    /// directory: if an organisation's provider signs people in, the sign-in fails with
    /// ``SharedDeviceError/Code/interactionRequired``.
    public init(
        scopes: [String],
        loginHint: String? = nil,
        prompt: @escaping @Sendable (_ loginHint: String?) async -> Credentials?
    ) {
        self.init(scopes: scopes, loginHint: loginHint)
        self.prompt = prompt
    }
}

/// Parameters of a silent token request.
public struct SilentTokenParameters: Sendable {
    /// The scopes of the token.
    public var scopes: [String]
    /// The account; it must be the current one.
    public var account: Account
    /// Asks for a new token even if the broker has a valid one.
    public var forceRefresh: Bool
    /// How long ago the person may have authenticated, at most a day. After a longer time, and after a restart of the
    /// broker, the request fails with ``SharedDeviceError/Code/interactionRequired``. `nil` means any time.
    public var maximumAge: Duration?
    /// The queue on which the completion block is called; `nil` means a queue of the system's choice.
    public var completionBlockQueue: DispatchQueue?

    /// Creates parameters of a token request for the current account.
    public init(scopes: [String], account: Account, forceRefresh: Bool = false, maximumAge: Duration? = nil) {
        (self.scopes, self.account) = (scopes, account)
        (self.forceRefresh, self.maximumAge) = (forceRefresh, maximumAge)
    }
}

/// Parameters of a sign-out.
public struct SignoutParameters: Sendable {
    /// The queue on which the completion block is called; `nil` means the main queue.
    public var completionBlockQueue: DispatchQueue?
    /// Whether to open the identity provider's end-session page in the browser, too. Without that, the person stays
    /// signed in in the browser.
    ///
    /// The device's configuration names the page. The result is in ``SignoutResult/browser``; a failure does not undo
    /// the sign-out.
    public var signoutFromBrowser = false
    /// The way to open the page.
    public var browserOpener = BrowserOpener.desktop
    /// The time limit for opening the page. After that the opener is cancelled; the default opener's process is killed.
    public var browserDeadline: Duration = .seconds(10)
    /// The time to wait for all apps to clean up; `nil` means not to wait. The app that signs out is one of them:
    /// another of its tasks has to follow ``SharedDeviceApplication/accountChanges`` during the wait.
    public var cleanupDeadline: Duration?
    /// Called during the wait with each step of the round, from its opening to the last receipt, in order, on the task
    /// that signs out.
    public var onProgress: (@Sendable (CleanupReport) -> Void)?

    /// Creates parameters of a sign-out; see the properties.
    public init(
        completionBlockQueue: DispatchQueue? = nil,
        signoutFromBrowser: Bool = false,
        cleanupDeadline: Duration? = nil,
        onProgress: (@Sendable (CleanupReport) -> Void)? = nil
    ) {
        (self.completionBlockQueue, self.signoutFromBrowser) = (completionBlockQueue, signoutFromBrowser)
        (self.cleanupDeadline, self.onProgress) = (cleanupDeadline, onProgress)
    }
}

/// The result of a sign-out. The account is signed out in any case.
public struct SignoutResult: Sendable {
    /// The session that ended. ``SharedDeviceApplication/cleanupReport(ofSession:)`` takes it.
    public let session: UInt64
    /// The state of the apps' cleanup at the end of the wait: at its completion, at the deadline, or when the broker
    /// stopped responding. `nil` if there was no wait, or the broker did not report it.
    public let cleanup: CleanupReport?
    /// The effect on the browser's session.
    public let browser: BrowserSignout
}

/// A token for the current account.
public struct TokenResult: Sendable {
    /// The token. Keep it in memory only, and drop it when the account changes.
    public let accessToken: String
    /// The time at which the token expires.
    public let expiresOn: Date
    /// The scopes of the token.
    public let scopes: [String]
    /// The account of the token.
    public let account: Account
    /// The ID token of the organisation's provider; `nil` if there is no such provider, or the app may not have the ID
    /// token.
    public let idToken: String?
}
