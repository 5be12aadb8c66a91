/// A string by which somebody's data is known.
public struct Marker: Sendable, Hashable, ExpressibleByStringLiteral {
    /// How it was written into a file.
    public enum Encoding: String, Sendable, CaseIterable {
        /// A byte or more for each character.
        case utf8 = "UTF-8"
        /// Two bytes or four, the low one first.
        case utf16LittleEndian = "UTF-16 (little-endian)"
        /// Two bytes or four, the high one first.
        case utf16BigEndian = "UTF-16 (big-endian)"
    }

    /// What it is, for people: “user name”.
    public let kind: String
    /// The string itself. One that says little is in other people's data too: “ada” is in every tenth hexadecimal identifier.
    public let text: String

    /// A marker that findings call by `kind`.
    public init(kind: String, text: String) {
        self.kind = kind
        self.text = text
    }

    /// A marker that findings call by its text.
    public init(_ text: String) { self.init(kind: "“\(text)”", text: text) }

    /// A marker that findings call by its text.
    public init(stringLiteral text: String) { self.init(text) }

    /// What a file has in it that it was written to.
    public func bytes(_ encoding: Encoding) -> [UInt8] {
        switch encoding {
        case .utf8: Array(text.utf8)
        case .utf16LittleEndian: text.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
        case .utf16BigEndian: text.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xFF)] }
        }
    }
}
