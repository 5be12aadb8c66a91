/// The displayed names of apps: the last part of the identifier, if that is unique. Pure.
///
/// The broker's key of an app without a manifest is `IDENTIFIER (PROGRAM, uid N)`, or `PROGRAM (uid N)` if the app
/// claims no identifier.
@_spi(Extensions) public struct AppNames: Sendable {
    private let names: [String: String]

    /// - Parameter reserved: names that must not be confused with an app.
    @_spi(Extensions) public init(_ keys: some Sequence<String>, reserved: Set<String> = []) {
        let keys = Set(keys)
        let short = Self.counts(keys, Self.short)
        let identifiers = Self.counts(keys, Self.identifier)
        names = Dictionary(
            uniqueKeysWithValues: keys.map { key in
                let name = Self.short(key)
                if short[name] == 1, !reserved.contains(name) { return (key, name) }
                let identifier = Self.identifier(key)
                return (key, identifiers[identifier] == 1 ? identifier : key)
            }
        )
    }

    /// The name of an app; an unknown key is its own name.
    @_spi(Extensions) public subscript(_ key: String) -> String { names[key] ?? key }

    /// The keys of the apps that a text may mean, in alphabetical order. The text is compared with keys, then with
    /// identifiers, then with short names.
    @_spi(Extensions) public func keys(for text: String) -> [String] {
        if names[text] != nil { return [text] }
        let keys = names.keys.sorted()
        let identified = keys.filter { Self.identifier($0) == text }
        return identified.isEmpty ? keys.filter { Self.short($0) == text } : identified
    }

    private static func counts(_ keys: Set<String>, _ name: (String) -> String) -> [String: Int] {
        Dictionary(keys.map { (name($0), 1) }, uniquingKeysWith: +)
    }

    /// The part before the parentheses: the identifier, or the program.
    @_spi(Extensions) public static func identifier(_ key: String) -> String {
        guard key.hasSuffix(")"), let end = key.firstRange(of: " (")?.lowerBound else { return key }
        return String(key[..<end])
    }

    /// The last part of an identifier, or the file name of a program.
    private static func short(_ key: String) -> String {
        let identifier = identifier(key)
        let separator: Character = identifier.hasPrefix("/") ? "/" : "."
        guard let last = identifier.split(separator: separator).last else { return key }
        return String(last)
    }
}
