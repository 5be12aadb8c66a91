import Basics
package import SharedDevice

/// A language of the texts that a person at the device reads.
public enum Language: String, Sendable, CaseIterable {
    case english = "en"
    case german = "de"
    case spanish = "es"
    case turkish = "tr"
    case traditionalChinese = "zh-TW"

    /// The sentences by key. The program contains `Texts/LANGUAGE.json`.
    public var sentences: [String: String] {
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

/// The sentences in one language. A missing sentence is shown as its key.
public struct Texts: Sendable, Hashable {
    public let language: Language
    private let sentences: [String: String]

    public init(_ language: Language) {
        self.language = language
        sentences = language.sentences
    }

    public subscript(_ key: String) -> String { sentences[key] ?? key }

    /// The sentence with values in the places of `{name}`.
    public subscript(_ key: String, values: [String: String]) -> String { Self.filled(self[key], values) }

    /// The sentence as HTML. The values are HTML, too.
    public func markup(_ key: String, _ values: [String: String]) -> String { Self.filled(self[key].markup, values) }

    /// The sentence that warns the person of the session's end, or of the screen's lock.
    package func notice(of end: SessionEnd, at time: String) -> String {
        self[end.locks ? "ending.screenLock" : "ending.\(end.reason.rawValue)", ["time": time]]
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

extension Language {
    /// The language of the session: the first translated one of `LANGUAGE` and of the locale of messages, else English.
    /// Returns `nil` if the session has no locale, or `C`.
    public init?(environment: [String: String]) {
        let locale = ["LC_ALL", "LC_MESSAGES", "LANG"].compactMap { environment[$0] }.first { !$0.isEmpty } ?? ""
        guard let name = Self.parts(locale).first, name != "c", name != "posix" else { return nil }
        let wanted = (environment["LANGUAGE"] ?? "").split(separator: ":").map(String.init) + [locale]
        self = wanted.lazy.compactMap(Self.init(tag:)).first ?? .english
    }

    /// The translated language that a browser's `Accept-Language` prefers; `nil` if it names none.
    public init?(accepted: String) {
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

    /// The language of a locale such as `de_AT.UTF-8`, or of a tag such as `zh-Hant`. Simplified Chinese is another.
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
