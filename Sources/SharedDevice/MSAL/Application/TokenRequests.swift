import Foundation
import SharedDevice

/// A sign-in as it was asked for: the parameters are an object that the app may go on to change.
struct SignInRequest: Sendable {
    let scopes: [String]
    let account: Account?
    let loginHint: String?
    let promptType: MSALPromptType
    let prompt: MSALWebviewParameters.Prompt
    let correlationId: UUID

    init(_ parameters: MSALInteractiveTokenParameters) {
        scopes = parameters.scopes
        account = parameters.account?.account
        loginHint = parameters.loginHint.flatMap { $0.isEmpty ? nil : $0 }
        promptType = parameters.promptType
        prompt = parameters.webviewParameters.prompt
        correlationId = parameters.correlationId ?? UUID()
    }

    var context: RequestFailure.Context { RequestFailure.Context(correlationId: correlationId, account: account) }

    /// Whether a token of this account is what was asked for.
    func admits(_ current: Account) -> Bool {
        if let account { return account == current }
        guard let loginHint else { return true }
        return loginHint.lowercased() == current.username.lowercased()
    }
}

/// A token request without a person, as it was asked for.
struct SilentRequest: Sendable {
    let scopes: [String]
    let account: Account?
    var forceRefresh = false
    let correlationId: UUID

    init(_ parameters: MSALSilentTokenParameters) {
        scopes = parameters.scopes
        account = parameters.account?.account
        forceRefresh = parameters.forceRefresh
        correlationId = parameters.correlationId ?? UUID()
    }

    init(scopes: [String], account: Account, correlationId: UUID) {
        self.scopes = scopes
        self.account = account
        self.correlationId = correlationId
    }
}
