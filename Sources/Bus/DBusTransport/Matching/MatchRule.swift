/// A match rule: which messages the bus sends to this connection.
///
/// Two rules are equal when their texts are, so that equal rules are shared (see ``DBusConnection/addMatch(_:fallback:)``).
public struct MatchRule: Sendable, Hashable, CustomStringConvertible {
    /// The rule as the bus reads it.
    public let description: String

    /// A rule for signals; a part that is `nil` matches everything.
    ///
    /// - Parameters:
    ///   - sender: a bus name; the bus compares with the sender's unique name or the owner of a well-known one.
    ///   - path: the object path.
    ///   - interface: the interface.
    ///   - member: the signal's name.
    ///   - argument0: the first argument, a string.
    public init(
        signalFrom sender: String? = nil,
        path: String? = nil,
        interface: String? = nil,
        member: String? = nil,
        argument0: String? = nil
    ) {
        var rule = "type='signal'"
        func add(_ key: String, _ value: String?) {
            guard let value else { return }
            rule += ",\(key)=\(MatchRule.quoted(value))"
        }
        add("sender", sender)
        add("path", path)
        add("interface", interface)
        add("member", member)
        add("arg0", argument0)
        description = rule
    }

    /// Inside apostrophes everything is literal but the apostrophe itself, which stands outside, behind a backslash.
    private static func quoted(_ value: String) -> String {
        guard value.utf8.contains(UInt8(ascii: "'")) else { return "'\(value)'" }
        return "'" + value.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
    }
}
