/// Whether the person is asked where somebody is signed in already.
public enum MSALPromptType: UInt, Sendable {
    /// Asks which account. There is one at a time, so that somebody who is signed in has to be signed out first.
    case selectAccount
    /// Asks in any case; otherwise as ``selectAccount``.
    case login
    /// Asks for consent. The broker's users have consented; otherwise as ``selectAccount``.
    case consent
    /// Makes an account. The broker's users are made by the administrator; otherwise as ``selectAccount``.
    case create
    /// Asks only where nobody is signed in. Otherwise the result is a token of the current account, as single sign-on has it.
    case promptIfNecessary

    /// ``promptIfNecessary``.
    public static let `default` = MSALPromptType.promptIfNecessary
}
