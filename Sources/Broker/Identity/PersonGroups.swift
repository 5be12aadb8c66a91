import Basics

/// The groups of a person, as the directory or the provider has reported them when the person authenticated.
public enum PersonGroups: Sendable, Hashable {
    case known(Set<String>)
    case unknown(Flaw)

    /// Why the groups are not known. The raw values go over the wire.
    public enum Flaw: String, Sendable, Hashable {
        /// The provider has them at another place, and not in the ID token.
        case elsewhere
        /// They do not have the form of a list of names, or they exceed a limit.
        case malformed
    }

    public static let none = PersonGroups.known([])

    /// The highest number of groups, the longest name, and the longest list in all, in bytes of UTF-8.
    public static let (most, longestName, longestList) = (1000, 1024, 65_536)

    /// The groups in a list from another process. A name with an invisible character is left out: no rule can name it.
    public init(listed names: [String]) {
        let isFine =
            names.count <= Self.most && names.allSatisfy { (1...Self.longestName).contains($0.utf8.count) }
            && names.reduce(0, { $0 + $1.utf8.count }) <= Self.longestList
        let visible = names.filter { !$0.unicodeScalars.contains(where: \.isInvisible) }
        self = isFine ? .known(Set(visible)) : .unknown(.malformed)
    }

    /// The names; none if they are not known.
    public var names: Set<String> { if case .known(let names) = self { names } else { [] } }
    public var flaw: Flaw? { if case .unknown(let flaw) = self { flaw } else { nil } }
}
