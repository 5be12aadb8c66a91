/// A match rule: it decides which messages the bus sends to this connection.
///
/// Two rules are equal if the bytes of their texts are equal. Equal rules are shared (see
/// ``DBusConnection/addMatch(_:fallback:timeout:)``).
public struct MatchRule: Sendable, Hashable, CustomStringConvertible {
    /// The rule in the bus's syntax.
    public let description: String

    /// Creates a rule for signals; a part that is `nil` matches everything.
    ///
    /// - Parameters:
    ///   - sender: a bus name; the bus compares with the sender's unique name or the owner of a well-known name.
    ///   - path: the object path.
    ///   - interface: the interface.
    ///   - member: the signal's name.
    ///   - argument0: the first argument, a string.
    ///   - argument2: the third argument, a string.
    public init(
        signalFrom sender: String? = nil,
        path: String? = nil,
        interface: String? = nil,
        member: String? = nil,
        argument0: String? = nil,
        argument2: String? = nil
    ) {
        // One string without intermediate ones: a registration of ten thousand names makes ten thousand rules.
        var rule = "type='signal'"
        rule.reserveCapacity(160)
        Self.append(",sender='", sender, to: &rule)
        Self.append(",path='", path, to: &rule)
        Self.append(",interface='", interface, to: &rule)
        Self.append(",member='", member, to: &rule)
        Self.append(",arg0='", argument0, to: &rule)
        Self.append(",arg2='", argument2, to: &rule)
        description = rule
    }

    /// Compares bytes, as the bus does: to Swift, the two spellings of é are one string.
    public static func == (one: MatchRule, other: MatchRule) -> Bool {
        one.description.utf8.elementsEqual(other.description.utf8)
    }

    /// Hashes the bytes.
    public func hash(into hasher: inout Hasher) {
        var text = description
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }

    /// Inside apostrophes only an apostrophe needs escaping: it stands outside of them, behind a backslash.
    private static func append(_ key: String, _ value: String?, to rule: inout String) {
        guard let value else { return }
        rule += key
        if value.contains(byte: UInt8(ascii: "'")) {
            rule += value.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''")
        } else {
            rule += value
        }
        rule += "'"
    }
}
