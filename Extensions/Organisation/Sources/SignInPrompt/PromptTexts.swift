import Basics
@_spi(Extensions) package import SharedDevice

/// The sentences that a person reads at the prompt, in one language. The program contains `Texts/LANGUAGE.json`.
package struct PromptTexts: Sendable, Hashable {
    package enum Language: String, Sendable, CaseIterable {
        case english = "en"
        case german = "de"
        case spanish = "es"
        case turkish = "tr"
        case traditionalChinese = "zh-TW"

        /// The sentences by key.
        package var sentences: [String: String] {
            let file =
                switch self {
                case .english: PackageResources.en_json
                case .german: PackageResources.de_json
                case .spanish: PackageResources.es_json
                case .turkish: PackageResources.tr_json
                case .traditionalChinese: PackageResources.zh_TW_json
                }
            let content = try? JSONValue(parsing: file, limits: JSONLimits(size: file.count))
            return (content?.object ?? [:]).compactMapValues(\.string)
        }
    }

    package enum Key: String, Sendable, CaseIterable {
        case signIn
        case userName
        case password
        case explanation = "form.explanation"
        case incomplete = "form.incomplete"
        case wrongPassword = "form.wrong"
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
        case terminalOpen = "terminal.open"
        case terminalHost = "terminal.host"
        case terminalWaiting = "terminal.waiting"
        case terminalSignedIn = "terminal.signedIn"
        case accountAlreadySignedIn = "error.account_already_signed_in"
        case authenticationFailed = "error.authentication_failed"
        case brokerUnavailable = "error.broker_unavailable"
        case tenantMismatch = "error.brt_tenant_mismatch"
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

    package let language: Language
    private let sentences: [String: String]

    package init(_ language: Language) {
        self.language = language
        sentences = language.sentences
    }

    package subscript(_ key: Key) -> String { sentences[key.rawValue] ?? key.rawValue }

    /// The sentence with values in the places of `{name}`.
    package subscript(_ key: Key, values: [String: String]) -> String { Self.filled(self[key], values) }

    /// The sentence as HTML. The values are HTML, too.
    func markup(_ key: Key, _ values: [String: String]) -> String { Self.filled(self[key].markup, values) }

    /// The text of an error for the person. English keeps the broker's text, which says more.
    ///
    /// - Parameter isForPassword: whether the user typed the rejected user name and password at this prompt.
    package func text(of error: SharedDeviceError, isForPassword: Bool = false) -> String {
        if language == .english { return error.message }
        if isForPassword, error.code == .authenticationFailed { return self[.wrongPassword] }
        if let key = Key(rawValue: "error.\(error.code)") { return self[key] }
        return self[.otherError, ["message": error.message]]
    }

    /// Fills a sentence from left to right, so that a value with braces is not filled again.
    private static func filled(_ sentence: String, _ values: [String: String]) -> String {
        var rest = sentence[...]
        var result = ""
        while let start = rest.firstIndex(of: "{"), let end = rest[start...].firstIndex(of: "}") {
            let name = String(rest[rest.index(after: start)..<end])
            result += rest[..<start] + (values[name] ?? "{\(name)}")
            rest = rest[rest.index(after: end)...]
        }
        return result + rest
    }
}

extension PromptTexts.Language {
    /// The language of the session: the first translated one of `LANGUAGE` and of the locale of messages, else English.
    /// Returns `nil` if the session has no locale, or `C`.
    package init?(environment: [String: String]) {
        let locale = ["LC_ALL", "LC_MESSAGES", "LANG"].compactMap { environment[$0] }.first { !$0.isEmpty } ?? ""
        guard let name = Self.parts(locale).first, name != "c", name != "posix" else { return nil }
        let wanted = (environment["LANGUAGE"] ?? "").split(separator: ":").map(String.init) + [locale]
        self = wanted.lazy.compactMap(Self.init(tag:)).first ?? .english
    }

    /// The translated language that a browser's `Accept-Language` prefers; `nil` if it names none.
    package init?(accepted: String) {
        var best: (language: Self, weight: Double)?
        for range in accepted.split(separator: ",") {
            let fields = range.split(separator: ";").map { $0.filter { $0 != " " } }
            let weight = fields.dropFirst().first { $0.hasPrefix("q=") }.map { Double($0.dropFirst(2)) ?? 0 } ?? 1
            guard let language = fields.first.flatMap(Self.init(tag:)), weight > best?.weight ?? 0 else { continue }
            best = (language, weight)
        }
        guard let best else { return nil }
        self = best.language
    }

    /// - Parameter tag: A locale's name such as `de_AT.UTF-8`, or a language tag such as `zh-Hant`. Simplified Chinese
    ///   is another language.
    private init?(tag: String) {
        let parts = Self.parts(tag)
        // The script wins over the region: zh-Hans-HK is simplified.
        let isTraditional =
            parts.contains("hant") || !parts.contains("hans") && parts.contains { ["tw", "hk", "mo"].contains($0) }
        guard let name = parts.first, let language = Self(rawValue: name == "zh" && isTraditional ? "zh-TW" : name)
        else { return nil }
        self = language
    }

    private static func parts(_ tag: String) -> [String] {
        tag.lowercased().split { "_-.@".contains($0) }.map(String.init)
    }
}
