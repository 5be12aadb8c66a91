public import Dispatch
public import FoundationEssentials

/// Parameters of the requests that need none, but for where the completion block runs.
public struct SharedDeviceParameters: Sendable {
    /// Where the completion block is called; `nil` for the request's own default.
    public var completionBlockQueue: DispatchQueue?

    /// Parameters that change nothing.
    public init(completionBlockQueue: DispatchQueue? = nil) { self.completionBlockQueue = completionBlockQueue }
}

/// Name and password, as a person gives them.
public struct Credentials: Sendable {
    /// The name to sign in with.
    public let username: String
    /// The password. It travels to the broker over the bus; on a session bus the user's own processes could read along.
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
    /// How long the sign-in waits for other apps to clean up after the last user, where the device's policy demands it; a minute at most.
    public var patience: Duration = .seconds(15)
    /// Asks the person, with the login hint; `nil` from it means that the person gave up.
    public var prompt: @Sendable (_ loginHint: String?) async -> Credentials?

    /// Parameters of a sign-in whose credentials come from `prompt`.
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
    /// Asks for a new token even where the broker has a valid one.
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
    /// Whether the identity provider's end-session page is opened in the browser as well, which would otherwise stay signed in there.
    ///
    /// The page is the one that the device's configuration names. What comes of it is in ``SignoutResult/browser``; it never undoes the
    /// sign-out.
    public var signoutFromBrowser = false
    /// How the page is opened.
    public var browserOpener = BrowserOpener.desktop
    /// How long opening the page may take. After that it is given up; the default opener's process is killed.
    public var browserDeadline: Duration = .seconds(10)
    /// How long to wait for all apps to clean up; `nil` for not at all. The app that signs out is one of them: let another task follow
    /// ``SharedDeviceApplication/accountChanges`` meanwhile.
    public var cleanupDeadline: Duration?
    /// Hears each step of the round while it is waited for, from its opening to the last receipt, in order, on the task that signs out.
    public var onProgress: (@Sendable (CleanupReport) -> Void)?

    /// Parameters of a sign-out that waits as long as `cleanupDeadline` says.
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

/// What a sign-out brought. The account is signed out in any case.
public struct SignoutResult: Sendable {
    /// The session that ended, by which ``SharedDeviceApplication/cleanupReport(ofSession:)`` finds its round later.
    public let session: UInt64
    /// How far the apps' cleanup was when the waiting ended: complete, or at the deadline, or when the broker stopped answering; `nil` where
    /// nothing was to be waited for, or the broker did not tell.
    public let cleanup: CleanupReport?
    /// What became of the browser's session.
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
    /// Whose it is.
    public let account: Account
}
