import Glibc

/// A value of the D-Bus type system, with its type.
public indirect enum DBusValue: Sendable, Hashable {
    case byte(UInt8)
    case boolean(Bool)
    case int16(Int16)
    case uint16(UInt16)
    case int32(Int32)
    case uint32(UInt32)
    case int64(Int64)
    case uint64(UInt64)
    case double(Double)
    /// Any Unicode text without U+0000, which D-Bus cannot carry.
    case string(String)
    case objectPath(String)
    case signature(String)
    /// An array of bytes (`ay`), separate from other arrays because it is sent as one block.
    case bytes([UInt8])
    /// An array whose elements all have the signature `of`.
    case array([DBusValue], of: String)
    case structure([DBusValue])
    /// A dictionary in wire order; keys are basic types.
    case dictionary([DictionaryEntry], key: String, value: String)
    case variant(DBusValue)
    /// A file descriptor from a response: newer buses return one for a peer's process. This library sends no
    /// descriptors, and refuses calls and signals that carry any.
    case descriptor(DBusDescriptor)

    /// One pair of a dictionary.
    public struct DictionaryEntry: Sendable, Hashable {
        /// The key, of a basic type.
        public let key: DBusValue
        /// The value.
        public let value: DBusValue

        /// Creates a pair.
        public init(_ key: DBusValue, _ value: DBusValue) {
            self.key = key
            self.value = value
        }
    }

    /// Returns a dictionary of strings to variants (`a{sv}`), sorted by key so that equal values make equal messages.
    public static func fields(_ fields: [String: DBusValue]) -> DBusValue {
        let entries = fields.sorted { $0.key < $1.key }
            .map { DictionaryEntry(.string($0.key), .variant($0.value)) }
        return .dictionary(entries, key: "s", value: "v")
    }

    /// The value's type in D-Bus's notation.
    public var signature: String {
        switch self {
        case .byte: "y"
        case .boolean: "b"
        case .int16: "n"
        case .uint16: "q"
        case .int32: "i"
        case .uint32: "u"
        case .int64: "x"
        case .uint64: "t"
        case .double: "d"
        case .string: "s"
        case .objectPath: "o"
        case .signature: "g"
        case .bytes: "ay"
        case .array(_, let element): "a\(element)"
        case .structure(let members): "(\(members.map(\.signature).joined()))"
        case .dictionary(_, let key, let value): "a{\(key)\(value)}"
        case .variant: "v"
        case .descriptor: "h"
        }
    }
}

/// A received file descriptor. It closes when the last reference ends; child programs do not inherit it.
public final class DBusDescriptor: Sendable, Hashable {
    /// Valid while this object lives. Do not close it.
    public let number: CInt

    init(adopting number: CInt) { self.number = number }

    deinit { close(number) }

    /// Whether both are the same object.
    public static func == (one: DBusDescriptor, other: DBusDescriptor) -> Bool { one === other }

    /// Hashes the identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

// MARK: - Reading

extension DBusValue {
    /// The text of a string or object path.
    public var stringValue: String? {
        switch self {
        case .string(let text), .objectPath(let text): text
        default: nil
        }
    }

    /// The value of a boolean.
    public var booleanValue: Bool? {
        if case .boolean(let value) = self { value } else { nil }
    }

    /// The value of any unsigned integer type.
    public var unsignedValue: UInt64? {
        switch self {
        case .byte(let value): UInt64(value)
        case .uint16(let value): UInt64(value)
        case .uint32(let value): UInt64(value)
        case .uint64(let value): value
        default: nil
        }
    }

    /// The bytes of an `ay`.
    public var bytesValue: [UInt8]? {
        if case .bytes(let bytes) = self { bytes } else { nil }
    }

    /// The strings of an `as`; `nil` for any other type.
    public var stringsValue: [String]? {
        guard case .array(let elements, "s") = self else { return nil }
        return elements.compactMap(\.stringValue)
    }

    /// The elements of an array; `nil` for any other type, dictionaries and `ay` included.
    public var elementsValue: [DBusValue]? {
        if case .array(let elements, _) = self { elements } else { nil }
    }

    /// The fields of an `a{sv}`, without their variants; `nil` for any other type. If a key occurs twice, the last one
    /// counts.
    public var fieldsValue: [String: DBusValue]? {
        guard case .dictionary(let entries, "s", "v") = self else { return nil }
        return entries.reduce(into: [:]) { fields, entry in
            if case .string(let key) = entry.key, case .variant(let value) = entry.value { fields[key] = value }
        }
    }
}
