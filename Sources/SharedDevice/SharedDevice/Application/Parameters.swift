public import Dispatch

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
