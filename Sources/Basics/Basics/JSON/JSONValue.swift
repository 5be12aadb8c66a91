/// A JSON value (RFC 8259).
public indirect enum JSONValue: Sendable, Hashable {
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
    public subscript(_ name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members[name]
    }

    public var string: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    public var number: Double? {
        guard case .number(let number) = self else { return nil }
        return number
    }

    public var boolean: Bool? {
        guard case .boolean(let value) = self else { return nil }
        return value
    }

    public var array: [JSONValue]? {
        guard case .array(let elements) = self else { return nil }
        return elements
    }

    public var object: [String: JSONValue]? {
        guard case .object(let members) = self else { return nil }
        return members
    }

    /// The type of the value, for messages.
    public var kind: String {
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
    public var strings: [String]? {
        guard let elements = array else { return nil }
        let texts = elements.compactMap(\.string)
        return texts.count == elements.count ? texts : nil
    }
}

/// The limits of a JSON text. A larger text is rejected before it uses memory.
public struct JSONLimits: Sendable, Hashable {
    /// In bytes.
    public var size: Int
    /// The depth of nested objects and arrays. Any other value has depth 0.
    public var depth: Int
    /// The number of values at all depths. A value of two bytes uses about 30 bytes of memory.
    public var values: Int

    public init(size: Int, depth: Int = 16, values: Int = 50_000) {
        self.size = size
        self.depth = depth
        self.values = values
    }
}

/// The reason why a text is rejected.
public struct JSONError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The flaw, as a phrase that continues with a place such as “in line 3”; `nil` if the text ends too early.
    public let what: String?
    /// The offset of the flaw in bytes; `nil` if the flaw concerns the whole text.
    public let offset: Int?
    /// The key that is repeated, if that is the flaw.
    public var repeatedKey: String?

    /// For instance: no “:” at byte 12.
    public var description: String {
        let place = offset.map { " at byte \($0)" } ?? ""
        return (what ?? "it ends too early,") + place
    }
}
