import Foundation

/// A user name that the embedded directory takes.
struct Username: Hashable, Sendable {
    /// In bytes of UTF-8.
    static let maximumLength = 256

    /// As the person writes it, in Unicode's composed form.
    let text: String

    /// The name that counts when two are compared: case does not.
    var key: String { Self.key(of: text) }

    /// - Throws: `UserDirectoryError`: `invalidUsername` where the name is empty, longer than 256 bytes, or has characters
    ///   that cannot be seen.
    init(_ text: String) throws(UserDirectoryError) {
        let text = text.precomposedStringWithCanonicalMapping
        guard !text.isEmpty else { throw .invalidUsername(text, "it is empty") }
        guard text.utf8.count <= Self.maximumLength else {
            throw .invalidUsername(
                "\(text.prefix(16).debugDescription)…",
                "it is longer than \(Self.maximumLength) bytes"
            )
        }
        guard !text.unicodeScalars.contains(where: { $0.isInvisible || $0.properties.isWhitespace }) else {
            throw .invalidUsername(text.debugDescription, "it has spaces or invisible characters")
        }
        self.text = text
    }

    /// The key of any string, whether a user may be called that or not.
    static func key(of text: String) -> String { text.precomposedStringWithCanonicalMapping.lowercased() }
}

extension Unicode.Scalar {
    /// Whether this is a control or formatting character: a name with one could pass for another, or steer a terminal.
    var isInvisible: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .surrogate, .unassigned: true
        default: false
        }
    }
}
