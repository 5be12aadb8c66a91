import CDBus
import Glibc

// MARK: - Writing

extension DBusMessage {
    /// Appends values to the body. Checks all values before it writes the first.
    func append(_ values: [DBusValue], attempted: @autoclosure () -> String) throws(DBusError) {
        guard !values.isEmpty else { return }
        try DBusValueLimits.check(values, attempted: attempted())
        // libdbus keeps the brackets of a signature that it checks in a list, and its lists have a global lock.
        let isWritten = onLibdbus {
            var iterator = DBusMessageIter()
            dbus_message_iter_init_append(pointer, &iterator)
            return values.allSatisfy { write($0, to: &iterator) }
        }
        guard isWritten else { throw DBusMessage.outOfMemory(attempted()) }
    }
}

/// A message that is sent repeatedly with different arguments. A copy costs a fraction of making a message and checking
/// its names.
public final class MessageTemplate: Sendable {
    private let message: DBusMessage
    /// Made before other threads see the message: libdbus caches the positions of its fields at the first access, even
    /// if threads share it.
    private let attempted: String

    /// - Parameter message: a message without arguments that was not sent.
    public init(_ message: consuming DBusMessage) {
        attempted = ConnectionCore.attempt(message)
        self.message = message
    }

    public func filled(_ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        let copy = try message.copy()
        try copy.append(arguments, attempted: attempted)
        return copy
    }

    /// Returns a copy with one text (`s`), or with a list that holds this text alone (`as`).
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` for a text with U+0000.
    public func filled(with text: String, isList: Bool = false) throws(DBusError) -> DBusMessage {
        guard !text.containsNUL, text.utf8.count < DBusValueLimits.bodyBytes / 2 else {
            return try filled(isList ? [.array([.string(text)], of: "s")] : [.string(text)])
        }
        let copy = try message.copy()
        let isWritten = onLibdbus {
            var iterator = DBusMessageIter()
            dbus_message_iter_init_append(copy.pointer, &iterator)
            return isList
                ? writeContainer(CDBUS_TYPE_ARRAY, "s", to: &iterator) { writeText(text, CDBUS_TYPE_STRING, to: &$0) }
                : writeText(text, CDBUS_TYPE_STRING, to: &iterator)
        }
        guard isWritten else { throw DBusMessage.outOfMemory(attempted) }
        return copy
    }
}

/// Appends one value. Returns false if memory ran out, the only possible failure after ``DBusValueLimits``.
private func write(_ value: DBusValue, to iterator: inout DBusMessageIter) -> Bool {
    switch value {
    case .byte(let byte): return writeBasic(byte, CDBUS_TYPE_BYTE, to: &iterator)
    case .boolean(let flag): return writeBasic(dbus_bool_t(flag ? 1 : 0), CDBUS_TYPE_BOOLEAN, to: &iterator)
    case .int16(let number): return writeBasic(number, CDBUS_TYPE_INT16, to: &iterator)
    case .uint16(let number): return writeBasic(number, CDBUS_TYPE_UINT16, to: &iterator)
    case .int32(let number): return writeBasic(number, CDBUS_TYPE_INT32, to: &iterator)
    case .uint32(let number): return writeBasic(number, CDBUS_TYPE_UINT32, to: &iterator)
    case .int64(let number): return writeBasic(number, CDBUS_TYPE_INT64, to: &iterator)
    case .uint64(let number): return writeBasic(number, CDBUS_TYPE_UINT64, to: &iterator)
    case .double(let number): return writeBasic(number, CDBUS_TYPE_DOUBLE, to: &iterator)
    case .string(let text): return writeText(text, CDBUS_TYPE_STRING, to: &iterator)
    case .objectPath(let text): return writeText(text, CDBUS_TYPE_OBJECT_PATH, to: &iterator)
    case .signature(let text): return writeText(text, CDBUS_TYPE_SIGNATURE, to: &iterator)
    case .bytes(let bytes):
        return writeContainer(CDBUS_TYPE_ARRAY, "y", to: &iterator) { inner in
            bytes.withUnsafeBufferPointer { buffer in
                var start = buffer.baseAddress
                return dbus_message_iter_append_fixed_array(&inner, CDBUS_TYPE_BYTE, &start, CInt(buffer.count)) != 0
            }
        }
    case .array(let elements, let type):
        return writeContainer(CDBUS_TYPE_ARRAY, type, to: &iterator) { inner in
            elements.allSatisfy { write($0, to: &inner) }
        }
    case .structure(let members):
        return writeContainer(CDBUS_TYPE_STRUCT, nil, to: &iterator) { inner in
            members.allSatisfy { write($0, to: &inner) }
        }
    case .dictionary(let entries, let key, let value):
        return writeContainer(CDBUS_TYPE_ARRAY, "{\(key)\(value)}", to: &iterator) { inner in
            entries.allSatisfy { entry in
                writeContainer(CDBUS_TYPE_DICT_ENTRY, nil, to: &inner) { pair in
                    write(entry.key, to: &pair) && write(entry.value, to: &pair)
                }
            }
        }
    case .variant(let inner):
        return writeContainer(CDBUS_TYPE_VARIANT, inner.signature, to: &iterator) { write(inner, to: &$0) }
    case .descriptor(let descriptor):
        return writeBasic(descriptor.number, CDBUS_TYPE_UNIX_FD, to: &iterator)
    }
}

private func writeBasic(_ value: some BitwiseCopyable, _ type: CInt, to iterator: inout DBusMessageIter) -> Bool {
    withUnsafePointer(to: value) { dbus_message_iter_append_basic(&iterator, type, $0) != 0 }
}

private func writeText(_ text: String, _ type: CInt, to iterator: inout DBusMessageIter) -> Bool {
    text.withCString { start in
        withUnsafePointer(to: start) { dbus_message_iter_append_basic(&iterator, type, $0) != 0 }
    }
}

private func writeContainer(
    _ type: CInt,
    _ signature: String?,
    to iterator: inout DBusMessageIter,
    _ body: (inout DBusMessageIter) -> Bool
) -> Bool {
    var inner = DBusMessageIter()
    guard dbus_message_iter_open_container(&iterator, type, signature, &inner) != 0 else { return false }
    guard body(&inner) else {
        dbus_message_iter_abandon_container(&iterator, &inner)
        return false
    }
    return dbus_message_iter_close_container(&iterator, &inner) != 0
}

// MARK: - Reading

extension DBusMessage {
    /// Returns the body's values.
    ///
    /// - Throws: ``DBusError/Code/malformed`` for a type that this library does not know, for descriptors outside a
    ///   response, and for a descriptor if this process has no number left for it. libdbus has already checked form,
    ///   depth and UTF-8.
    public func arguments() throws(DBusError) -> [DBusValue] {
        guard kind == .methodReturn || !hasDescriptors else {
            throw DBusError(
                .malformed,
                message: "the message contains file descriptors",
                attempted: "read a message",
                remedy: "send values, not descriptors"
            )
        }
        var reader = reader
        return try readAll(&reader, descriptors)
    }

    /// The first argument if it is a string. Does not read the others.
    public var firstString: String? {
        let reader = reader
        return reader.kind == .string ? reader.text.map { String(decoding: $0, as: UTF8.self) } : nil
    }
}

private func readAll(_ reader: inout DBusReader, _ descriptors: [CInt]?) throws(DBusError) -> [DBusValue] {
    var values: [DBusValue] = []
    while reader.kind != .end {
        values.append(try read(reader, descriptors))
        reader.next()
    }
    return values
}

private func read(_ reader: DBusReader, _ descriptors: [CInt]?) throws(DBusError) -> DBusValue {
    switch reader.kind {
    case .byte: return .byte(reader.basic(0))
    case .boolean: return .boolean(reader.basic(dbus_bool_t(0)) != 0)
    case .int16: return .int16(reader.basic(0))
    case .uint16: return .uint16(reader.basic(0))
    case .int32: return .int32(reader.basic(0))
    case .uint32: return .uint32(reader.basic(0))
    case .int64: return .int64(reader.basic(0))
    case .uint64: return .uint64(reader.basic(0))
    case .double: return .double(reader.basic(0))
    case .string: return .string(readText(reader))
    case .objectPath: return .objectPath(readText(reader))
    case .signature: return .signature(readText(reader))
    case .bytes: return .bytes(reader.bytes.map { Array($0) } ?? [])
    case .array:
        var inner = reader.inner
        let type = inner.signature
        return .array(try readAll(&inner, descriptors), of: type)
    case .dictionary: return try readDictionary(reader, descriptors)
    case .structure, .entry:
        var inner = reader.inner
        return .structure(try readAll(&inner, descriptors))
    case .variant: return .variant(try read(reader.inner, descriptors))
    case .descriptor:
        let number: CInt
        if let descriptors {
            // libdbus does not report which descriptor a value refers to.
            guard descriptors.count == 1 else {
                throw DBusError(
                    .malformed,
                    message: "the message contains several file descriptors",
                    attempted: "read a message"
                )
            }
            number = fcntl(descriptors[0], F_DUPFD_CLOEXEC, 3)
        } else {
            // A message that was made here. libdbus returns a duplicate, or -1 if there is no number left.
            number = reader.basic(-1)
        }
        guard number >= 0 else {
            throw DBusError(
                .malformed,
                message: "its file descriptor could not be duplicated",
                attempted: "read a message"
            )
        }
        return .descriptor(DBusDescriptor(adopting: number))
    case .other, .end:
        throw DBusError(
            .malformed,
            message: "an argument has the type “\(reader.signature)”",
            attempted: "read a message"
        )
    }
}

private func readDictionary(_ reader: DBusReader, _ descriptors: [CInt]?) throws(DBusError) -> DBusValue {
    var pairs = reader.inner
    let (key, value) = dictionaryTypes(pairs)
    var entries: [DBusValue.DictionaryEntry] = []
    while pairs.kind != .end {
        var pair = pairs.inner
        let entryKey = try read(pair, descriptors)
        pair.next()
        entries.append(DBusValue.DictionaryEntry(entryKey, try read(pair, descriptors)))
        pairs.next()
    }
    return .dictionary(entries, key: key, value: value)
}

private func dictionaryTypes(_ pairs: DBusReader) -> (key: String, value: String) {
    // The common case, without making the signature's text.
    var first = pairs.inner
    if first.kind == .string {
        first.next()
        if first.kind == .variant { return ("s", "v") }
    }
    // “{sv}”: a key is one character, as it is a basic type.
    let type = pairs.signature
    return (String(type.dropFirst().prefix(1)), String(type.dropFirst(2).dropLast()))
}

private func readText(_ reader: DBusReader) -> String {
    reader.text.map { String(decoding: $0, as: UTF8.self) } ?? ""
}
