import CDBus
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
        public init(_ key: DBusValue, _ value: DBusValue) { (self.key, self.value) = (key, value) }
    }

    /// Returns a dictionary of strings to variants (`a{sv}`), sorted by key so that equal values make equal messages.
    public static func fields(_ fields: [String: DBusValue]) -> DBusValue {
        let entries = fields.sorted { $0.key < $1.key }.map { DictionaryEntry(.string($0.key), .variant($0.value)) }
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

    /// The fields of an `a{sv}`, without their variants; otherwise `nil`. The last one of a repeated key counts.
    public var fieldsValue: [String: DBusValue]? {
        guard case .dictionary(let entries, "s", "v") = self else { return nil }
        return entries.reduce(into: [:]) { fields, entry in
            if case .string(let key) = entry.key, case .variant(let value) = entry.value { fields[key] = value }
        }
    }
}

/// The limits of D-Bus on values. Values are checked before the first is marshalled: libdbus responds to a violation
/// with a warning on standard error or ends the process, and a bus closes the connection.
enum DBusValueLimits {
    /// The largest body that is sent: half of a system bus's default limit, the lowest of the standard configurations.
    static let bodyBytes = 16 * 1024 * 1024
    /// The depth of nested containers and variants (D-Bus specification, "Valid Signatures": 32 arrays, 32 structs).
    static let depth = 64

    /// Throws unless D-Bus can carry `values` as one body.
    static func check(_ values: [DBusValue], attempted: @autoclosure () -> String) throws(DBusError) {
        // Almost every message holds only a few strings and numbers, which make a valid signature.
        if values.count <= 16, values.allSatisfy(\.isSmallBasic) { return }
        var check = Check(attempted: attempted())
        for value in values { try check.value(value, depth: 0) }
        if values.count <= 16, values.allSatisfy(\.hasPlainSignature) { return }
        let signature = values.map(\.signature).joined()
        guard isValid(signature: signature) else { throw check.invalid("“\(signature)” is no valid signature") }
    }

    private static func isValid(signature: String) -> Bool {
        !signature.containsNUL && onLibdbus { dbus_signature_validate(signature, nil) != 0 }
    }

    private struct Check {
        let attempted: String
        var bytes = 0

        func invalid(_ message: String) -> DBusError {
            DBusError(.invalidArgument, message: message, attempted: attempted)
        }

        mutating func add(_ count: Int) throws(DBusError) {
            bytes += count
            guard bytes <= bodyBytes else {
                let message = "the message is over \(bodyBytes) bytes, which is more than some buses accept"
                let remedy = "put the data in a file and send its name"
                throw DBusError(.tooLarge, message: message, attempted: attempted, remedy: remedy)
            }
        }

        mutating func text(_ text: String) throws(DBusError) {
            guard !text.containsNUL else { throw invalid("a D-Bus string cannot hold U+0000") }
            try add(text.utf8.count + 9)
        }

        mutating func value(_ value: DBusValue, depth: Int) throws(DBusError) {
            guard depth < DBusValueLimits.depth else {
                throw invalid("containers are nested deeper than the \(DBusValueLimits.depth) levels of D-Bus")
            }
            switch value {
            case .byte, .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double: try add(8)
            case .string(let string): try text(string)
            case .objectPath(let path):
                try text(path)
                guard dbus_validate_path(path, nil) != 0 else { throw invalid("“\(path)” is no object path") }
            case .signature(let signature):
                guard isValid(signature: signature) else { throw invalid("“\(signature)” is no signature") }
                try add(signature.utf8.count + 2)
            case .bytes(let bytes): try add(bytes.count + 8)
            case .array(let elements, let type):
                try add(8)
                for element in elements {
                    try same(element, as: type)
                    try self.value(element, depth: depth + 1)
                }
            case .structure(let members):
                guard !members.isEmpty else { throw invalid("D-Bus has no empty struct") }
                try add(8)
                for member in members { try self.value(member, depth: depth + 1) }
            case .dictionary(let entries, let keyType, let valueType):
                try add(8)
                for entry in entries {
                    try same(entry.key, as: keyType)
                    try same(entry.value, as: valueType)
                    try add(8)
                    try self.value(entry.key, depth: depth + 2)
                    try self.value(entry.value, depth: depth + 2)
                }
            case .descriptor: throw invalid("this library sends no file descriptors")
            case .variant(let inner):
                let signature = inner.signature
                guard inner.hasPlainSignature || isValid(signature: signature) else {
                    throw invalid("“\(signature)” is no valid signature")
                }
                try add(signature.utf8.count + 2)
                try self.value(inner, depth: depth + 1)
            }
        }

        func same(_ value: DBusValue, as type: String) throws(DBusError) {
            let signature = value.signature
            guard signature == type else {
                throw invalid("an element of type “\(signature)” in a container of “\(type)”")
            }
        }
    }
}

extension DBusValue {
    /// Whether the signature is common and known to be valid.
    fileprivate var hasPlainSignature: Bool {
        switch self {
        case .byte, .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double, .string, .bytes: true
        case .array(_, let element): element == "s" || element == "a{sv}"
        case .dictionary(_, let key, let value): key == "s" && value == "v"
        case .objectPath, .signature, .structure, .variant, .descriptor: false
        }
    }

    /// Whether this is a number, or a text that is far from every limit and free of U+0000.
    fileprivate var isSmallBasic: Bool {
        switch self {
        case .byte, .boolean, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double: true
        case .string(let text): text.utf8.count <= 4096 && !text.containsNUL
        default: false
        }
    }
}
