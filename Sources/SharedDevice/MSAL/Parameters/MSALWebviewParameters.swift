/// Name and password, as a person gives them.
public struct MSALCredentials: Sendable {
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

/// How the person is asked for name and password. On iOS this says which web view to use; here there is none, and the app asks with
/// a dialog of its own, or on the terminal.
public final class MSALWebviewParameters: Sendable {
    /// Asks the person, with the login hint; `nil` from it means that the person gave up. It runs on no particular thread; a prompt
    /// that shows windows is marked `@MainActor`. What it throws ends the request.
    public typealias Prompt = @Sendable (_ loginHint: String?) async throws -> MSALCredentials?

    let prompt: Prompt

    /// Asks on the terminal that the process was started from. Without one a sign-in fails with
    /// ``MSALInternalError/internalErrorNoViewController``.
    public init() { prompt = { try await TerminalPrompt().ask(loginHint: $0) } }

    /// Asks with `prompt`.
    public init(prompt: @escaping Prompt) { self.prompt = prompt }
}
