import CDBus
import Glibc

/// Reads the values of a message in place, so that a receiver can measure a value before it copies it. A copy of a
/// reader keeps its position when the original advances. Valid while the message exists.
public struct DBusReader {
    /// The type of a value, with the ASCII code of its letter in the D-Bus specification. Two kinds of array have
    /// separate cases with codes of this library: bytes, because they lie in one block, and dictionaries.
    public enum Kind: CInt, Sendable {
        case byte = 121  // y
        case boolean = 98  // b
        case int16 = 110  // n
        case uint16 = 113  // q
        case int32 = 105  // i
        case uint32 = 117  // u
        case int64 = 120  // x
        case uint64 = 116  // t
        case double = 100  // d
        case string = 115  // s
        case objectPath = 111  // o
        case signature = 103  // g
        case array = 97  // a
        case entry = 101  // e
        case structure = 114  // r
        case variant = 118  // v
        case descriptor = 104  // h
        case bytes = -1
        case dictionary = -2
        /// A type that this library does not know.
        case other = -3
        /// The end of the values.
        case end = 0
    }

    public enum Number: Sendable {
        case signed(Int64)
        case unsigned(UInt64)
        case double(Double)
        case boolean(Bool)
    }

    private var iterator = DBusMessageIter()
    /// The type of the current value.
    public private(set) var kind = Kind.end

    fileprivate init(_ message: borrowing DBusMessage) {
        if dbus_message_iter_init(message.pointer, &iterator) != 0 { findKind() }
    }

    private init(inside outer: DBusReader) {
        var outer = outer.iterator
        dbus_message_iter_recurse(&outer, &iterator)
        findKind()
    }

    /// Advances to the next value of this message or container.
    public mutating func next() {
        guard kind != .end else { return }
        if dbus_message_iter_next(&iterator) != 0 { findKind() } else { kind = .end }
    }

    /// A reader of the values in a container: the pairs of a dictionary, the key and value of a pair, the one value of
    /// a variant. Empty for any other type.
    public var inner: DBusReader {
        switch kind {
        case .array, .dictionary, .entry, .structure, .variant: return DBusReader(inside: self)
        default:
            var nothing = self
            nothing.kind = .end
            return nothing
        }
    }

    /// The UTF-8 of a string, object path or signature, in the message's own memory; `nil` for any other type.
    public var text: UnsafeBufferPointer<UInt8>? {
        switch kind {
        case .string, .objectPath, .signature: break
        default: return nil
        }
        let start: UnsafePointer<CChar>? = basic(nil)
        guard let start else { return nil }
        let bytes = UnsafeRawPointer(start).assumingMemoryBound(to: UInt8.self)
        return UnsafeBufferPointer(start: bytes, count: strlen(start))
    }

    /// Overwrites the string in the message, which then reads as empty. Not for a message that is still to be sent.
    public func wipe() {
        guard kind == .string, let text, let start = UnsafeMutableRawPointer(mutating: text.baseAddress) else { return }
        explicit_bzero(start, text.count)
    }

    /// An array of bytes, in the message's own memory; `nil` for any other type.
    public var bytes: UnsafeBufferPointer<UInt8>? {
        guard kind == .bytes else { return nil }
        var (outer, inner) = (iterator, DBusMessageIter())
        dbus_message_iter_recurse(&outer, &inner)
        var start: UnsafePointer<UInt8>?
        var count: CInt = 0
        dbus_message_iter_get_fixed_array(&inner, &start, &count)
        return UnsafeBufferPointer(start: start, count: Int(count))
    }

    /// A number or boolean; `nil` for any other type.
    public var number: Number? {
        switch kind {
        case .byte: .unsigned(UInt64(basic(UInt8(0))))
        case .boolean: .boolean(basic(dbus_bool_t(0)) != 0)
        case .int16: .signed(Int64(basic(Int16(0))))
        case .uint16: .unsigned(UInt64(basic(UInt16(0))))
        case .int32: .signed(Int64(basic(Int32(0))))
        case .uint32: .unsigned(UInt64(basic(UInt32(0))))
        case .int64: .signed(basic(0))
        case .uint64: .unsigned(basic(0))
        case .double: .double(basic(0))
        default: nil
        }
    }

    /// Whether the current value has this type. In an empty array it is the type of the elements.
    public func has(signature: StaticString) -> Bool { withSignature { strcmp($0, cString(signature)) == 0 } ?? false }

    /// The value's type in D-Bus's notation, also in an empty array.
    var signature: String { withSignature { String(cString: $0) } ?? "" }

    private func withSignature<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result? {
        var iterator = iterator
        guard let start = dbus_message_iter_get_signature(&iterator) else { return nil }
        defer { dbus_free(start) }
        return body(start)
    }

    /// A value of fixed size, whose type is that of ``kind``.
    func basic<Value: BitwiseCopyable>(_ initial: Value) -> Value {
        var (iterator, value) = (iterator, initial)
        dbus_message_iter_get_basic(&iterator, &value)
        return value
    }

    private mutating func findKind() {
        kind = Kind(rawValue: dbus_message_iter_get_arg_type(&iterator)) ?? .other
        guard kind == .array else { return }
        switch dbus_message_iter_get_element_type(&iterator) {
        case Kind.byte.rawValue: kind = .bytes
        case Kind.entry.rawValue: kind = .dictionary
        default: break
        }
    }
}

extension DBusMessage {
    /// A reader at the beginning of the body. Valid while the message exists.
    public var reader: DBusReader { DBusReader(self) }

    /// Passes the text under this key to `body`, and overwrites it in the message. The first argument must be a
    /// dictionary of strings to variants (`a{sv}`). Later readers of the message find an empty text.
    ///
    /// - Returns: the result of `body`; `nil` if there is no such text. If a key occurs twice, the last one counts.
    public func takeText<Result>(_ key: StaticString, _ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result? {
        var result: Result?
        var pairs = reader.inner
        while pairs.kind == .entry {
            let name = pairs.inner
            if let text = name.text, let start = text.baseAddress, text.count == key.utf8CodeUnitCount,
                memcmp(start, key.utf8Start, text.count) == 0
            {
                var value = name
                value.next()
                let text = value.inner
                if text.kind == .string {
                    result = text.text.map(body)
                    text.wipe()
                }
            }
            pairs.next()
        }
        return result
    }
}
