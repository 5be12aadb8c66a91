import CDBus

// MARK: - Writing

extension DBusMessage {
    /// Appends values to the body. The values are checked as a whole before the first is written.
    func append(_ values: [DBusValue], attempted: @autoclosure () -> String) throws(DBusError) {
        guard !values.isEmpty else { return }
        try DBusValueLimits.check(values, attempted: attempted())
        var iterator = DBusMessageIter()
        dbus_message_iter_init_append(pointer, &iterator)
        for value in values {
            guard write(value, to: &iterator) else { throw DBusMessage.outOfMemory(attempted()) }
        }
    }
}

/// A message that is sent again and again with other arguments. A copy costs a fraction of making a message and checking its names.
package final class MessageTemplate: Sendable {
    private let message: DBusMessage

    /// - Parameter message: without arguments, and not sent.
    package init(_ message: consuming DBusMessage) { self.message = message }

    /// A copy with these arguments.
    package func filled(_ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        let copy = try message.copy()
        try copy.append(arguments, attempted: ConnectionCore.attempt(message))
        return copy
    }

    /// A copy with one text (`s`), or with a list that holds this text alone (`as`).
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` for a text with U+0000.
    package func filled(with text: String, isList: Bool = false) throws(DBusError) -> DBusMessage {
        guard !text.containsNUL, text.utf8.count < DBusValueLimits.bodyBytes / 2 else {
            return try filled(isList ? [.array([.string(text)], of: "s")] : [.string(text)])
        }
        let copy = try message.copy()
        var iterator = DBusMessageIter()
        dbus_message_iter_init_append(copy.pointer, &iterator)
        let isWritten =
            isList
            ? writeContainer(CDBUS_TYPE_ARRAY, "s", to: &iterator) { writeText(text, CDBUS_TYPE_STRING, to: &$0) }
            : writeText(text, CDBUS_TYPE_STRING, to: &iterator)
        guard isWritten else { throw DBusMessage.outOfMemory(ConnectionCore.attempt(message)) }
        return copy
    }
}

/// Appends one value; false when memory ran out, the only failure left after ``DBusValueLimits``.
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
    /// The body.
    ///
    /// - Throws: ``DBusError/Code/malformed`` for a type that this library does not take (file descriptors). libdbus has
    ///   checked form, depth and UTF-8 before.
    public func arguments() throws(DBusError) -> [DBusValue] {
        var iterator = DBusMessageIter()
        guard dbus_message_iter_init(pointer, &iterator) != 0 else { return [] }
        return try readAll(&iterator)
    }

    /// The first argument where it is a string, without reading the others.
    public var firstString: String? {
        var iterator = DBusMessageIter()
        guard dbus_message_iter_init(pointer, &iterator) != 0,
            dbus_message_iter_get_arg_type(&iterator) == CDBUS_TYPE_STRING
        else { return nil }
        return readText(&iterator)
    }
}

private func readAll(_ iterator: inout DBusMessageIter) throws(DBusError) -> [DBusValue] {
    var values: [DBusValue] = []
    while dbus_message_iter_get_arg_type(&iterator) != CDBUS_TYPE_INVALID {
        values.append(try read(&iterator))
        dbus_message_iter_next(&iterator)
    }
    return values
}

private func read(_ iterator: inout DBusMessageIter) throws(DBusError) -> DBusValue {
    switch dbus_message_iter_get_arg_type(&iterator) {
    case CDBUS_TYPE_BYTE: return .byte(readBasic(&iterator, 0))
    case CDBUS_TYPE_BOOLEAN: return .boolean(readBasic(&iterator, dbus_bool_t(0)) != 0)
    case CDBUS_TYPE_INT16: return .int16(readBasic(&iterator, 0))
    case CDBUS_TYPE_UINT16: return .uint16(readBasic(&iterator, 0))
    case CDBUS_TYPE_INT32: return .int32(readBasic(&iterator, 0))
    case CDBUS_TYPE_UINT32: return .uint32(readBasic(&iterator, 0))
    case CDBUS_TYPE_INT64: return .int64(readBasic(&iterator, 0))
    case CDBUS_TYPE_UINT64: return .uint64(readBasic(&iterator, 0))
    case CDBUS_TYPE_DOUBLE: return .double(readBasic(&iterator, 0))
    case CDBUS_TYPE_STRING: return .string(readText(&iterator))
    case CDBUS_TYPE_OBJECT_PATH: return .objectPath(readText(&iterator))
    case CDBUS_TYPE_SIGNATURE: return .signature(readText(&iterator))
    case CDBUS_TYPE_ARRAY: return try readArray(&iterator)
    case CDBUS_TYPE_STRUCT:
        var inner = recurse(&iterator)
        return .structure(try readAll(&inner))
    case CDBUS_TYPE_VARIANT:
        var inner = recurse(&iterator)
        return .variant(try read(&inner))
    case let type:
        throw DBusError(
            .malformed,
            message: "an argument has the type “\(Character(UnicodeScalar(UInt8(truncatingIfNeeded: type))))”",
            attempted: "read a message",
            remedy: "send values, not descriptors"
        )
    }
}

private func readArray(_ iterator: inout DBusMessageIter) throws(DBusError) -> DBusValue {
    let elementType = dbus_message_iter_get_element_type(&iterator)
    var inner = recurse(&iterator)
    if elementType == CDBUS_TYPE_BYTE {
        var start: UnsafePointer<UInt8>?
        var count: CInt = 0
        dbus_message_iter_get_fixed_array(&inner, &start, &count)
        return .bytes(Array(UnsafeBufferPointer(start: start, count: Int(count))))
    }
    let type = signature(&inner)
    guard elementType == CDBUS_TYPE_DICT_ENTRY else { return .array(try readAll(&inner), of: type) }
    // “{sv}”: a key is one character, as it is a basic type.
    let key = String(type.dropFirst().prefix(1))
    let value = String(type.dropFirst(2).dropLast())
    var entries: [DBusValue.DictionaryEntry] = []
    while dbus_message_iter_get_arg_type(&inner) != CDBUS_TYPE_INVALID {
        var pair = recurse(&inner)
        let entryKey = try read(&pair)
        dbus_message_iter_next(&pair)
        entries.append(DBusValue.DictionaryEntry(entryKey, try read(&pair)))
        dbus_message_iter_next(&inner)
    }
    return .dictionary(entries, key: key, value: value)
}

private func recurse(_ iterator: inout DBusMessageIter) -> DBusMessageIter {
    var inner = DBusMessageIter()
    dbus_message_iter_recurse(&iterator, &inner)
    return inner
}

private func readBasic<Value: BitwiseCopyable>(_ iterator: inout DBusMessageIter, _ initial: Value) -> Value {
    var value = initial
    dbus_message_iter_get_basic(&iterator, &value)
    return value
}

private func readText(_ iterator: inout DBusMessageIter) -> String {
    var start: UnsafePointer<CChar>?
    dbus_message_iter_get_basic(&iterator, &start)
    return text(start) ?? ""
}

private func signature(_ iterator: inout DBusMessageIter) -> String {
    guard let start = dbus_message_iter_get_signature(&iterator) else { return "" }
    defer { dbus_free(start) }
    return String(cString: start)
}
