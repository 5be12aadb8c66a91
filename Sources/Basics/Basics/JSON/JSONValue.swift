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
        if case .object(let members) = self { members[name] } else { nil }
    }

    public var string: String? { if case .string(let text) = self { text } else { nil } }
    public var number: Double? { if case .number(let number) = self { number } else { nil } }
    public var boolean: Bool? { if case .boolean(let value) = self { value } else { nil } }
    public var array: [JSONValue]? { if case .array(let elements) = self { elements } else { nil } }
    public var object: [String: JSONValue]? { if case .object(let members) = self { members } else { nil } }

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

/// The limits of a JSON text, which bound the memory that a stranger's text can use.
public struct JSONLimits: Sendable, Hashable {
    /// In bytes.
    public var size: Int
    /// The depth of nested objects and arrays. Any other value has depth 0.
    public var depth: Int
    /// The number of values at all depths. A value of two bytes uses about 30 bytes of memory.
    public var values: Int

    public init(size: Int, depth: Int = 16, values: Int = 50_000) {
        (self.size, self.depth, self.values) = (size, depth, values)
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

extension JSONValue {
    /// The canonical text of the value: members sorted by name, no spaces. Parsing it returns the same value.
    public var text: String {
        var bytes: [UInt8] = []
        write(to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    private func write(to bytes: inout [UInt8]) {
        switch self {
        case .object(let members):
            Self.write("{", "}", members.sorted { $0.key < $1.key }, to: &bytes) { member, bytes in
                Self.write(member.key, to: &bytes)
                bytes.append(UInt8(ascii: ":"))
                member.value.write(to: &bytes)
            }
        case .array(let elements): Self.write("[", "]", elements, to: &bytes) { $0.write(to: &$1) }
        case .string(let text): Self.write(text, to: &bytes)
        // Whole numbers up to 2^53 are exact; other numbers may have a fraction or an exponent.
        case .number(let number): bytes += (Int64(exactly: number).map { "\($0)" } ?? "\(number)").utf8
        case .boolean(let value): bytes += (value ? "true" : "false").utf8
        case .null: bytes += "null".utf8
        }
    }

    private static func write<Part>(
        _ start: Unicode.Scalar,
        _ end: Unicode.Scalar,
        _ parts: [Part],
        to bytes: inout [UInt8],
        each: (Part, inout [UInt8]) -> Void
    ) {
        bytes.append(UInt8(ascii: start))
        for (index, part) in parts.enumerated() {
            if index > 0 { bytes.append(UInt8(ascii: ",")) }
            each(part, &bytes)
        }
        bytes.append(UInt8(ascii: end))
    }

    private static func write(_ text: String, to bytes: inout [UInt8]) {
        let digits = Array("0123456789abcdef".utf8)
        bytes.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes += [UInt8(ascii: "\\"), byte]
            case 0..<0x20: bytes += "\\u00".utf8 + [digits[Int(byte >> 4)], digits[Int(byte & 0xF)]]
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }

    /// A whole number from 0 to 2⁵³ - 1, which every JSON reader represents exactly; otherwise `nil`.
    public var wholeNumber: UInt64? {
        guard let number, number < 0x1p53 else { return nil }
        return UInt64(exactly: number)
    }

    /// A whole number. Numbers above 2⁵³ lose precision.
    public static func number(_ value: some BinaryInteger) -> JSONValue { .number(Double(value)) }
}

/// Any JSON value, for files that this project writes or that another reader has checked.
extension JSONValue: Codable {
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .boolean(value)
        } else if let number = try? container.decode(Double.self) {
            self = .number(number)
        } else if let text = try? container.decode(String.self) {
            self = .string(text)
        } else if let elements = try? container.decode([JSONValue].self) {
            self = .array(elements)
        } else {
            self = .object(try container.decode([String: JSONValue].self))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .object(let members): try container.encode(members)
        case .array(let elements): try container.encode(elements)
        case .string(let text): try container.encode(text)
        case .number(let number): try container.encode(number)
        case .boolean(let value): try container.encode(value)
        case .null: try container.encodeNil()
        }
    }
}
