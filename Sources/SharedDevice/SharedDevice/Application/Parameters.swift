public import Dispatch
public import FoundationEssentials

/// Parameters of any request: where its completion block runs.
public struct SharedDeviceParameters: Sendable {
    /// The queue on which the completion block is called; `nil` means the request's own default.
    public var completionBlockQueue: DispatchQueue?

    /// Parameters that change nothing.
    public init(completionBlockQueue: DispatchQueue? = nil) { self.completionBlockQueue = completionBlockQueue }
}

/// Name and password, as a person gives them.
public struct Credentials: Sendable {
    /// The name to sign in with.
    public let username: String
    /// The password. It travels to the broker over the bus; on a session bus, other processes of the same user can read it there.
    public let password: String

    /// Name and password.
    public init(username: String, password: String) {
        self.username = username
        self.password = password
    }
}

/// Parameters of an interactive sign-in.
public struct InteractiveTokenParameters: Sendable {
    /// What the token is to be good for.
    public var scopes: [String]
    /// The name to offer at the prompt.
    public var loginHint: String?
    /// Where the completion block is called; `nil` for the main queue.
    public var completionBlockQueue: DispatchQueue?
    /// How long the sign-in waits for other apps to clean up after the last user, if the device's policy demands that; a minute at most.
    public var patience: Duration = .seconds(15)
    /// Asks the person, with the login hint, and returns what they gave; `nil` means that they gave up. Without a closure the program
    /// `shared-device-sign-in` asks, and the app sees no password.
    public var prompt: (@Sendable (_ loginHint: String?) async -> Credentials?)?
    /// Whether `shared-device-sign-in` asks in a window, also where the app has a terminal.
    public var showsPage = false

    /// Parameters of a sign-in at the device's own prompt, `shared-device-sign-in`: at the app's terminal if it has one, else in a window. It serves
    /// every identity provider.
    public init(scopes: [String], loginHint: String? = nil) {
        self.scopes = scopes
        self.loginHint = loginHint
    }

    /// Parameters of a sign-in whose credentials come from `prompt`. It serves the device's own directory alone; where an organisation's provider
    /// signs people in, it fails with ``SharedDeviceError/Code/interactionRequired``.
    public init(
        scopes: [String],
        loginHint: String? = nil,
        prompt: @escaping @Sendable (_ loginHint: String?) async -> Credentials?
    ) {
        self.scopes = scopes
        self.loginHint = loginHint
        self.prompt = prompt
    }
}

/// Parameters of a token request without a person.
public struct SilentTokenParameters: Sendable {
    /// What the token is to be good for.
    public var scopes: [String]
    /// The account; it must be the current one.
    public var account: Account
    /// Asks for a new token even while the broker has a valid one.
    public var forceRefresh: Bool
    /// Where the completion block is called; `nil` for a queue of the system's choice.
    public var completionBlockQueue: DispatchQueue?

    /// Parameters for a token of `account`.
    public init(scopes: [String], account: Account, forceRefresh: Bool = false) {
        self.scopes = scopes
        self.account = account
        self.forceRefresh = forceRefresh
    }
}

/// Parameters of a sign-out.
public struct SignoutParameters: Sendable {
    /// Where the completion block is called; `nil` for the main queue.
    public var completionBlockQueue: DispatchQueue?
    /// Whether the identity provider's end-session page is opened in the browser as well. Without that, the person stays signed in there.
    ///
    /// The device's configuration names the page. The result is in ``SignoutResult/browser``; a failure does not undo the sign-out.
    public var signoutFromBrowser = false
    /// How the page is opened.
    public var browserOpener = BrowserOpener.desktop
    /// How long opening the page may take. After that the opener is cancelled; the process of the default opener is killed.
    public var browserDeadline: Duration = .seconds(10)
    /// How long to wait for all apps to clean up; `nil` means not to wait. The app that signs out is one of them: another of its tasks has to
    /// follow ``SharedDeviceApplication/accountChanges`` meanwhile.
    public var cleanupDeadline: Duration?
    /// Called with each step of the round during the wait, from its opening to the last receipt, in order, on the task that signs out.
    public var onProgress: (@Sendable (CleanupReport) -> Void)?

    /// Parameters of a sign-out that waits for `cleanupDeadline`.
    public init(
        completionBlockQueue: DispatchQueue? = nil,
        signoutFromBrowser: Bool = false,
        cleanupDeadline: Duration? = nil,
        onProgress: (@Sendable (CleanupReport) -> Void)? = nil
    ) {
        self.completionBlockQueue = completionBlockQueue
        self.signoutFromBrowser = signoutFromBrowser
        self.cleanupDeadline = cleanupDeadline
        self.onProgress = onProgress
    }
}

/// The result of a sign-out. The account is signed out in any case.
public struct SignoutResult: Sendable {
    /// The session that ended. ``SharedDeviceApplication/cleanupReport(ofSession:)`` takes it.
    public let session: UInt64
    /// The state of the apps' cleanup at the end of the wait: when it was complete, at the deadline, or when the broker stopped answering.
    /// `nil` if there was no wait, or the broker did not tell.
    public let cleanup: CleanupReport?
    /// The effect on the browser's session.
    public let browser: BrowserSignout
}

/// A token for the current account.
public struct TokenResult: Sendable {
    /// The token. Keep it in memory only, and drop it when the account changes.
    public let accessToken: String
    /// When it ends.
    public let expiresOn: Date
    /// What it is good for.
    public let scopes: [String]
    /// The account that it belongs to.
    public let account: Account
    /// The ID token of the organisation's provider; `nil` where there is no such provider, or the app may not have it.
    public let idToken: String?
}
