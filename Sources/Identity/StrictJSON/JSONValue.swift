/// A value of JSON (RFC 8259).
package indirect enum JSONValue: Sendable, Hashable {
    /// The members by their names, each of which the text has once.
    case object([String: JSONValue])
    case array([JSONValue])
    case string(String)
    /// Never infinite, and never something else than a number.
    case number(Double)
    case boolean(Bool)
    case null
}

extension JSONValue {
    /// The member of this name; `nil` where there is none, or where this is no object.
    package subscript(_ name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members[name]
    }

    /// The text of a string; otherwise `nil`.
    package var string: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// A number; otherwise `nil`.
    package var number: Double? {
        guard case .number(let number) = self else { return nil }
        return number
    }

    /// A truth value; otherwise `nil`.
    package var boolean: Bool? {
        guard case .boolean(let value) = self else { return nil }
        return value
    }

    /// The elements of an array; otherwise `nil`.
    package var array: [JSONValue]? {
        guard case .array(let elements) = self else { return nil }
        return elements
    }

    /// The members of an object; otherwise `nil`.
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

    /// The texts of an array that has nothing but strings; otherwise `nil`.
    package var strings: [String]? {
        guard let elements = array else { return nil }
        let texts = elements.compactMap(\.string)
        return texts.count == elements.count ? texts : nil
    }
}

/// How much a JSON text may have. What has more is refused before it costs memory.
package struct JSONLimits: Sendable, Hashable {
    /// In bytes.
    package var size: Int
    /// How deep objects and arrays lie in each other. A value that is neither has depth 0.
    package var depth: Int
    /// How many values there are, in all depths: one of two bytes takes some thirty in memory.
    package var values: Int

    package init(size: Int, depth: Int = 16, values: Int = 50_000) {
        self.size = size
        self.depth = depth
        self.values = values
    }
}

/// Why a text is refused.
package struct JSONError: Error, Sendable, Hashable, CustomStringConvertible {
    /// What keeps it from being accepted, as the part of a sentence before “in line 3”; `nil` where the text ends too early.
    package let what: String?
    /// Where, in bytes from its beginning; `nil` where it is the text as a whole.
    package let offset: Int?
    /// The key that is there a second time, where that is the reason.
    package var repeatedKey: String?

    /// For instance: no “:” at byte 12.
    package var description: String {
        let place = offset.map { " at byte \($0)" } ?? ""
        return (what ?? "it ends too early,") + place
    }
}

// MARK: Texts of strangers

extension String {
    /// A stranger's text for a message: in quotation marks, without invisible characters, and at most 64 characters of it.
    package var quoted: String { "“" + printable(64) + "”" }

    /// At most so many characters, with a sign in the place of each invisible one.
    package func printable(_ count: Int) -> String {
        let scalars = unicodeScalars.prefix(count).map { $0.isInvisible ? "\u{FFFD}" : $0 }
        return String(String.UnicodeScalarView(scalars)) + (unicodeScalars.count > count ? "…" : "")
    }
}

extension Unicode.Scalar {
    /// Whether this is a control or formatting character: a name with one could pass for another, or steer a terminal.
    package var isInvisible: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .surrogate, .unassigned: true
        default: false
        }
    }
}
