/// A JSON value (RFC 8259).
package indirect enum JSONValue: Sendable, Hashable {
    /// The members by name. Names are unique in the text.
    case object([String: JSONValue])
    case array([JSONValue])
    case string(String)
    /// Always finite.
    case number(Double)
    case boolean(Bool)
    case null
}

extension JSONValue {
    /// The member of this name; `nil` if there is none, or if the value is not an object.
    package subscript(_ name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members[name]
    }

    package var string: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    package var number: Double? {
        guard case .number(let number) = self else { return nil }
        return number
    }

    package var boolean: Bool? {
        guard case .boolean(let value) = self else { return nil }
        return value
    }

    package var array: [JSONValue]? {
        guard case .array(let elements) = self else { return nil }
        return elements
    }

    package var object: [String: JSONValue]? {
        guard case .object(let members) = self else { return nil }
        return members
    }

    /// The type of the value, for messages.
    package var kind: String {
        switch self {
        case .object: "an object"
        case .array: "a list"
        case .string: "a text"
        case .number: "a number"
        case .boolean: "a Boolean"
        case .null: "null"
        }
    }

    /// The elements of an array of strings; otherwise `nil`.
    package var strings: [String]? {
        guard let elements = array else { return nil }
        let texts = elements.compactMap(\.string)
        return texts.count == elements.count ? texts : nil
    }
}

/// The limits of a JSON text. A larger text is rejected before it uses memory.
package struct JSONLimits: Sendable, Hashable {
    /// In bytes.
    package var size: Int
    /// The depth of nested objects and arrays. Any other value has depth 0.
    package var depth: Int
    /// The number of values at all depths. A value of two bytes uses about 30 bytes of memory.
    package var values: Int

    package init(size: Int, depth: Int = 16, values: Int = 50_000) {
        self.size = size
        self.depth = depth
        self.values = values
    }
}

/// The reason why a text is rejected.
package struct JSONError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The flaw, as a phrase that continues with a place such as “in line 3”; `nil` if the text ends too early.
    package let what: String?
    /// The offset of the flaw in bytes; `nil` if the flaw concerns the whole text.
    package let offset: Int?
    /// The key that is repeated, if that is the flaw.
    package var repeatedKey: String?

    /// For instance: no “:” at byte 12.
    package var description: String {
        let place = offset.map { " at byte \($0)" } ?? ""
        return (what ?? "it ends too early,") + place
    }
}

// MARK: Untrusted texts

extension String {
    /// Formats an untrusted text for a message: in quotation marks, at most 64 characters, without invisible ones.
    package var quoted: String { "“" + printable(64) + "”" }

    /// The first `count` Unicode scalars, with invisible ones replaced.
    package func printable(_ count: Int) -> String {
        let scalars = unicodeScalars.prefix(count).map { $0.isInvisible ? "\u{FFFD}" : $0 }
        return String(String.UnicodeScalarView(scalars)) + (unicodeScalars.count > count ? "…" : "")
    }
}

extension Unicode.Scalar {
    /// Whether this is a control or formatting character. It could make a name look like another, or control a
    /// terminal.
    package var isInvisible: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .surrogate, .unassigned: true
        default: false
        }
    }
}
