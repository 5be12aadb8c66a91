package import CommandParts
@_spi(Extensions) package import SharedDevice

/// The sentences that a person reads at the prompt, in one language.
package struct PromptTexts: Sendable, Hashable {
    package enum Key: String, Sendable, CaseIterable {
        case signIn
        case userName
        case password
        case badge
        case pin
        case otherWay = "form.otherWay"
        case explanation = "form.explanation"
        case incomplete = "form.incomplete"
        case wrongPassword = "form.wrong"
        case wrongBadge = "form.wrongBadge"
        case goOn
        case signedInTitle = "signedIn.title"
        case signedIn = "signedIn.text"
        case notSignedIn = "notSignedIn.title"
        case busyTitle = "busy.title"
        case busy = "busy.text"
        case notHereTitle = "notHere.title"
        case notHere = "notHere.text"
        case deviceCodeTitle = "deviceCode.title"
        case instruction = "deviceCode.instruction"
        case picture = "deviceCode.picture"
        case warning = "deviceCode.warning"
        case goesOn = "deviceCode.goesOn"
        case terminalBadge = "terminal.badge"
        case terminalOpen = "terminal.open"
        case terminalHost = "terminal.host"
        case terminalWaiting = "terminal.waiting"
        case terminalSignedIn = "terminal.signedIn"
        case accountAlreadySignedIn = "error.account_already_signed_in"
        case authenticationFailed = "error.authentication_failed"
        case brokerUnavailable = "error.broker_unavailable"
        case tenantMismatch = "error.brt_tenant_mismatch"
        case currentAccountMismatch = "error.current_account_mismatch"
        case cleanupPending = "error.cleanup_pending"
        case loginExpired = "error.login_expired"
        case notPermitted = "error.not_permitted"
        case providerUnavailable = "error.provider_unavailable"
        case tooManyAttempts = "error.too_many_attempts"
        case userCanceled = "error.user_canceled"
        case userNotAllowed = "error.user_not_allowed"
        case otherError = "error.other"
    }

    package static let english = PromptTexts(.english)

    private let texts: Texts

    package init(_ language: Language) { texts = Texts(language) }

    package var language: Language { texts.language }

    package subscript(_ key: Key) -> String { texts[key.rawValue] }

    /// The sentence with values in the places of `{name}`.
    package subscript(_ key: Key, values: [String: String]) -> String { texts[key.rawValue, values] }

    /// The sentence as HTML. The values are HTML, too.
    func markup(_ key: Key, _ values: [String: String]) -> String { texts.markup(key.rawValue, values) }

    /// The text of an error for the person. English keeps the broker's text, which says more.
    ///
    /// - Parameter wrong: the text if the broker rejects what the user typed at this prompt.
    package func text(of error: SharedDeviceError, wrong: Key? = nil) -> String {
        if language == .english { return error.message }
        if let wrong, error.code == .authenticationFailed { return self[wrong] }
        if let key = Key(rawValue: "error.\(error.code)") { return self[key] }
        return self[.otherError, ["message": error.message]]
    }
}
