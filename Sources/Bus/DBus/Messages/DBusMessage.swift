import CDBus
import Glibc

/// A D-Bus message. Move-only: its deallocation releases the message to libdbus.
public struct DBusMessage: ~Copyable, @unchecked Sendable {
    // Unchecked: there is one owner at a time, and libdbus counts references atomically.
    let pointer: OpaquePointer

    init(adopting pointer: OpaquePointer) { self.pointer = pointer }

    deinit {
        // In a torn child the message leaks: libdbus's lock may never be free.
        if !ForkedChild.isTorn { onLibdbus { dbus_message_unref(pointer) } }
    }

    /// Returns a second owner of the same message, which must not be changed from now on.
    package func sharedReference() -> DBusMessage { DBusMessage(adopting: dbus_message_ref(pointer)) }

    /// Returns a new message with the same content. It gets a new serial when it is sent.
    public func copy() throws(DBusError) -> DBusMessage {
        try DBusMessage.adopt(onLibdbus { dbus_message_copy(pointer) }, "copy a message")
    }

    /// Returns a copy with this path and destination.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` for a path or a bus name that D-Bus does not accept.
    public func readdressed(from path: String, to destination: String) throws(DBusError) -> DBusMessage {
        let attempted = "readdress a message"
        try Self.check(path, "object path", dbus_validate_path, attempted)
        try Self.check(destination, "bus name", dbus_validate_bus_name, attempted)
        let copy = try copy()
        guard dbus_message_set_path(copy.pointer, path) != 0,
            dbus_message_set_destination(copy.pointer, destination) != 0
        else { throw Self.outOfMemory(attempted) }
        return copy
    }

    /// Returns this message, or a copy if it was sent before: each call needs a new serial.
    consuming func unsent() throws(DBusError) -> DBusMessage { serial == 0 ? self : try copy() }

    /// 0 before the message is sent.
    var serial: UInt32 { dbus_message_get_serial(pointer) }

    func setSerial(_ serial: UInt32) { dbus_message_set_serial(pointer, serial) }

    /// The type of a message, with its number in the D-Bus specification.
    public enum Kind: CInt, Sendable {
        /// A type that this version does not know; ignored as the D-Bus specification requires.
        case unknown = 0
        case methodCall = 1
        case methodReturn = 2
        case error = 3
        case signal = 4
    }

    /// The type of the message.
    public var kind: Kind { Kind(rawValue: dbus_message_get_type(pointer)) ?? .unknown }

    /// The unique name of the sending connection. Set by the bus, not by the sender.
    public var sender: String? { text(dbus_message_get_sender(pointer)) }
    /// The object path.
    public var path: String? { text(dbus_message_get_path(pointer)) }
    /// The interface.
    public var interface: String? { text(dbus_message_get_interface(pointer)) }
    /// The method or signal within the interface.
    public var member: String? { text(dbus_message_get_member(pointer)) }
    /// Whether the message is for this connection alone. Other messages arrive because of a match rule.
    public var isDirected: Bool { dbus_message_get_destination(pointer) != nil }
    /// The name of an error reply.
    public var errorName: String? { text(dbus_message_get_error_name(pointer)) }
    /// The body's signature.
    public var signature: String { text(dbus_message_get_signature(pointer)) ?? "" }
    /// The serial of the call that this responds to; 0 if there is none.
    var replySerial: UInt32 { dbus_message_get_reply_serial(pointer) }
    /// Whether the caller accepts that a user is asked for a password during the call.
    public var allowsInteraction: Bool { dbus_message_get_allow_interactive_authorization(pointer) != 0 }
    public var expectsReply: Bool { dbus_message_get_no_reply(pointer) == 0 }

    /// Whether this is the signal `member` from the bus itself. No other peer can send under the bus's name.
    public func isBusSignal(_ member: StaticString) -> Bool {
        let bus: StaticString = "org.freedesktop.DBus"
        return dbus_message_is_signal(pointer, cString(bus), cString(member)) != 0
            && dbus_message_has_sender(pointer, cString(bus)) != 0
    }

    /// Whether the message has this path and member. Compares without making strings: it runs for every signal.
    public func has(path: StaticString, member: StaticString) -> Bool {
        dbus_message_has_path(pointer, cString(path)) != 0 && dbus_message_has_member(pointer, cString(member)) != 0
    }

    public func has(member: StaticString) -> Bool { dbus_message_has_member(pointer, cString(member)) != 0 }

    /// Whether the message has this path. Does not copy the message's path, which may fill the largest message.
    public func has(path: String) -> Bool { dbus_message_has_path(pointer, path) != 0 }

    /// Whether the body has this signature. Compares without making strings.
    public func has(signature: StaticString) -> Bool { dbus_message_has_signature(pointer, cString(signature)) != 0 }

    /// Whether the body begins with these types. Reads only the header.
    public func has(signaturePrefix prefix: StaticString) -> Bool {
        strncmp(dbus_message_get_signature(pointer), cString(prefix), prefix.utf8CodeUnitCount) == 0
    }

    /// Calls `body` with the bytes of the interface's name, or with an empty buffer if the message has no interface.
    public func withInterface<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        guard let start = dbus_message_get_interface(pointer) else {
            return body(UnsafeBufferPointer(start: nil, count: 0))
        }
        let bytes = UnsafeRawPointer(start).assumingMemoryBound(to: UInt8.self)
        return body(UnsafeBufferPointer(start: bytes, count: strlen(start)))
    }
}

func cString(_ literal: StaticString) -> UnsafePointer<CChar> {
    UnsafeRawPointer(literal.utf8Start).assumingMemoryBound(to: CChar.self)
}

// MARK: - Making

extension DBusMessage {
    /// Returns a signal.
    ///
    /// - Parameter destination: the bus name of the only receiver; `nil` for all peers with a match rule for the
    ///   signal.
    /// - Throws: ``DBusError/Code/invalidArgument`` for names or values that D-Bus does not accept,
    ///   ``DBusError/Code/tooLarge``.
    public static func signal(
        path: String,
        interface: String,
        member: String,
        arguments: [DBusValue] = [],
        destination: String? = nil
    ) throws(DBusError) -> DBusMessage {
        func attempted() -> String { "make the signal \(interface).\(member)" }
        try check(path, "object path", dbus_validate_path, attempted())
        try check(interface, "interface", dbus_validate_interface, attempted())
        try check(member, "member", dbus_validate_member, attempted())
        let message = try adopt(onLibdbus { dbus_message_new_signal(path, interface, member) }, attempted())
        if let destination {
            try check(destination, "bus name", dbus_validate_bus_name, attempted())
            guard dbus_message_set_destination(message.pointer, destination) != 0 else {
                throw outOfMemory(attempted())
            }
        }
        try message.append(arguments, attempted: attempted())
        return message
    }

    /// Returns a signal whose path, interface and member are known to be valid. A post does not check them again.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` for values that D-Bus does not accept, ``DBusError/Code/tooLarge``.
    public static func signal(
        path: StaticString,
        validInterface interface: String,
        member: StaticString,
        arguments: [DBusValue]
    ) throws(DBusError) -> DBusMessage {
        func attempted() -> String { "make the signal \(interface).\(member)" }
        // `withCString`, because passing a String as a C string copies it to the heap first.
        let pointer = interface.withCString { name in
            onLibdbus { dbus_message_new_signal(cString(path), name, cString(member)) }
        }
        let message = try adopt(pointer, attempted())
        try message.append(arguments, attempted: attempted())
        return message
    }

    /// The options of a method call.
    public struct CallOptions: OptionSet, Sendable {
        /// The bits.
        public let rawValue: UInt8

        /// Creates the options with these bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// Does not start a service that is not running.
        public static let noAutoStart = CallOptions(rawValue: 1)
        /// Requests no response, not even an error: for ``DBusConnection/send(_:)``.
        public static let noReply = CallOptions(rawValue: 2)
    }

    /// Returns a method call.
    ///
    /// - Throws: as ``signal(path:interface:member:arguments:destination:)``.
    public static func methodCall(
        destination: String,
        path: String,
        interface: String,
        member: String,
        arguments: [DBusValue] = [],
        options: CallOptions = []
    ) throws(DBusError) -> DBusMessage {
        func attempted() -> String { "call \(interface).\(member) of \(destination)" }
        try check(destination, "bus name", dbus_validate_bus_name, attempted())
        try check(path, "object path", dbus_validate_path, attempted())
        try check(interface, "interface", dbus_validate_interface, attempted())
        try check(member, "member", dbus_validate_member, attempted())
        let message = try adopt(
            onLibdbus { dbus_message_new_method_call(destination, path, interface, member) },
            attempted()
        )
        dbus_message_set_auto_start(message.pointer, options.contains(.noAutoStart) ? 0 : 1)
        dbus_message_set_no_reply(message.pointer, options.contains(.noReply) ? 1 : 0)
        try message.append(arguments, attempted: attempted())
        return message
    }

    package func reply(_ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        let message = try DBusMessage.adopt(
            onLibdbus { dbus_message_new_method_return(pointer) },
            "respond to \(member ?? "a call")"
        )
        try message.append(arguments, attempted: "respond to \(member ?? "a call")")
        return message
    }

    /// Returns a response template with these values, for ``reply(copying:)``.
    package static func answerToNobody(_ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        let message = try adopt(onLibdbus { dbus_message_new(DBUS_MESSAGE_TYPE_METHOD_RETURN) }, "prepare a response")
        dbus_message_set_no_reply(message.pointer, 1)
        try message.append(arguments, attempted: "prepare a response")
        return message
    }

    /// Returns the response to this method call, with the values of a template.
    package func reply(copying answer: borrowing DBusMessage) throws(DBusError) -> DBusMessage {
        let copy = try answer.copy()
        guard dbus_message_set_reply_serial(copy.pointer, dbus_message_get_serial(pointer)) != 0,
            dbus_message_set_destination(copy.pointer, dbus_message_get_sender(pointer)) != 0
        else { throw Self.outOfMemory("respond to \(member ?? "a call")") }
        return copy
    }

    package func errorReply(
        name: String,
        message: String,
        details: [String: DBusValue] = [:]
    ) throws(DBusError) -> DBusMessage {
        let attempted = "respond to \(member ?? "a call") with an error"
        let valid = !name.containsNUL && dbus_validate_error_name(name, nil) != 0
        let reply = try DBusMessage.adopt(
            onLibdbus { dbus_message_new_error(pointer, valid ? name : "org.freedesktop.DBus.Error.Failed", nil) },
            attempted
        )
        let text = DBusValue.string(message.filter { $0 != "\0" })
        try reply.append(details.isEmpty ? [text] : [text, .fields(details)], attempted: attempted)
        return reply
    }

    private static func check(
        _ text: String,
        _ what: String,
        _ validate: (UnsafePointer<CChar>?, UnsafeMutablePointer<CDBus.DBusError>?) -> dbus_bool_t,
        _ attempted: @autoclosure () -> String
    ) throws(DBusError) {
        guard !text.containsNUL, text.withCString({ validate($0, nil) }) != 0 else {
            throw DBusError(.invalidArgument, message: "“\(text)” is no valid \(what)", attempted: attempted())
        }
    }

    private static func adopt(
        _ pointer: OpaquePointer?,
        _ attempted: @autoclosure () -> String
    ) throws(DBusError) -> DBusMessage {
        guard let pointer else { throw outOfMemory(attempted()) }
        return DBusMessage(adopting: pointer)
    }

    static func outOfMemory(_ attempted: String) -> DBusError {
        DBusError(.noResources, message: "out of memory", attempted: attempted)
    }
}

// MARK: - Calls of the bus itself

extension DBusMessage {
    static let busName = "org.freedesktop.DBus"

    /// Returns a call to the bus itself. Its names are constants, so it does not validate them.
    package static func busCall(
        _ member: StaticString,
        _ arguments: [DBusValue] = [],
        expectsReply: Bool = true
    ) throws(DBusError) -> DBusMessage {
        guard
            let pointer = onLibdbus({
                dbus_message_new_method_call(
                    "org.freedesktop.DBus",
                    "/org/freedesktop/DBus",
                    "org.freedesktop.DBus",
                    cString(member)
                )
            })
        else { throw outOfMemory("call the bus") }
        let message = DBusMessage(adopting: pointer)
        if !expectsReply { dbus_message_set_no_reply(pointer, 1) }
        try message.append(arguments, attempted: "call \(member) of the bus")
        return message
    }

    /// Whether a reply to this call may come from this sender, as far as the names tell. The bus names the sender of
    /// what it passes on: it is `nil` for the bus itself and for a sandbox's proxy.
    func mayBeAnswered(by sender: String?) -> Bool {
        guard let sender, let destination = dbus_message_get_destination(pointer) else { return true }
        guard destination[0] == CChar(bitPattern: UInt8(ascii: ":")) || strcmp(destination, Self.busName) == 0 else {
            return true
        }
        // The bus itself reports a peer that is gone. No other peer can send under its name.
        return sender == Self.busName || strcmp(destination, sender) == 0
    }
}

// MARK: - Names and texts

public enum BusName {
    /// Whether a program may request this name. Only the bus assigns unique names (“:1.7”).
    public static func isWellKnown(_ name: String) -> Bool {
        !name.hasPrefix(":") && !name.containsNUL && name.withCString { dbus_validate_bus_name($0, nil) } != 0
    }
}

// MARK: - C strings

/// The text at `pointer`; `nil` for NULL.
func text(_ pointer: UnsafePointer<CChar>?) -> String? { pointer.map { String(cString: $0) } }

extension String {
    /// Whether C would see a shorter text.
    var containsNUL: Bool { contains(byte: 0) }

    /// Whether the byte occurs in the UTF-8. Uses `memchr`, because every post calls this several times.
    func contains(byte: UInt8) -> Bool {
        utf8.withContiguousStorageIfAvailable { bytes in
            bytes.baseAddress.map { memchr($0, CInt(byte), bytes.count) != nil } ?? false
        } ?? utf8.contains(byte)
    }
}

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

/// A message that is sent repeatedly with different arguments: a copy needs no check of the names.
public final class MessageTemplate: Sendable {
    private let message: DBusMessage
    /// Made before other threads see the message: the first access to a field makes libdbus cache the positions of all
    /// fields, which would be a race between threads.
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
                ? writeContainer(.array, "s", to: &iterator) { writeText(text, .string, to: &$0) }
                : writeText(text, .string, to: &iterator)
        }
        guard isWritten else { throw DBusMessage.outOfMemory(attempted) }
        return copy
    }
}

/// Appends one value. Returns false if memory ran out, the only possible failure after ``DBusValueLimits``.
private func write(_ value: DBusValue, to iterator: inout DBusMessageIter) -> Bool {
    switch value {
    case .byte(let byte): return writeBasic(byte, .byte, to: &iterator)
    case .boolean(let flag): return writeBasic(dbus_bool_t(flag ? 1 : 0), .boolean, to: &iterator)
    case .int16(let number): return writeBasic(number, .int16, to: &iterator)
    case .uint16(let number): return writeBasic(number, .uint16, to: &iterator)
    case .int32(let number): return writeBasic(number, .int32, to: &iterator)
    case .uint32(let number): return writeBasic(number, .uint32, to: &iterator)
    case .int64(let number): return writeBasic(number, .int64, to: &iterator)
    case .uint64(let number): return writeBasic(number, .uint64, to: &iterator)
    case .double(let number): return writeBasic(number, .double, to: &iterator)
    case .string(let text): return writeText(text, .string, to: &iterator)
    case .objectPath(let text): return writeText(text, .objectPath, to: &iterator)
    case .signature(let text): return writeText(text, .signature, to: &iterator)
    case .bytes(let bytes):
        return writeContainer(.array, "y", to: &iterator) { inner in
            bytes.withUnsafeBufferPointer { buffer in
                var start = buffer.baseAddress
                return dbus_message_iter_append_fixed_array(
                    &inner,
                    DBusReader.Kind.byte.rawValue,
                    &start,
                    CInt(buffer.count)
                ) != 0
            }
        }
    case .array(let elements, let type):
        return writeContainer(.array, type, to: &iterator) { inner in elements.allSatisfy { write($0, to: &inner) } }
    case .structure(let members):
        return writeContainer(.structure, nil, to: &iterator) { inner in members.allSatisfy { write($0, to: &inner) } }
    case .dictionary(let entries, let key, let value):
        return writeContainer(.array, "{\(key)\(value)}", to: &iterator) { inner in
            entries.allSatisfy { entry in
                writeContainer(.entry, nil, to: &inner) { pair in
                    write(entry.key, to: &pair) && write(entry.value, to: &pair)
                }
            }
        }
    case .variant(let inner): return writeContainer(.variant, inner.signature, to: &iterator) { write(inner, to: &$0) }
    case .descriptor(let descriptor): return writeBasic(descriptor.number, .descriptor, to: &iterator)
    }
}

private func writeBasic(
    _ value: some BitwiseCopyable,
    _ type: DBusReader.Kind,
    to iterator: inout DBusMessageIter
) -> Bool { withUnsafePointer(to: value) { dbus_message_iter_append_basic(&iterator, type.rawValue, $0) != 0 } }

private func writeText(_ text: String, _ type: DBusReader.Kind, to iterator: inout DBusMessageIter) -> Bool {
    text.withCString { start in
        withUnsafePointer(to: start) { dbus_message_iter_append_basic(&iterator, type.rawValue, $0) != 0 }
    }
}

private func writeContainer(
    _ type: DBusReader.Kind,
    _ signature: String?,
    to iterator: inout DBusMessageIter,
    _ body: (inout DBusMessageIter) -> Bool
) -> Bool {
    var inner = DBusMessageIter()
    guard dbus_message_iter_open_container(&iterator, type.rawValue, signature, &inner) != 0 else { return false }
    guard body(&inner) else {
        dbus_message_iter_abandon_container(&iterator, &inner)
        return false
    }
    return dbus_message_iter_close_container(&iterator, &inner) != 0
}

// MARK: - Reading

extension DBusMessage {
    /// Returns the body's values. libdbus has already checked form, depth and UTF-8.
    ///
    /// - Throws: ``DBusError/Code/malformed`` for an unknown type, for descriptors outside a response, and for a
    ///   descriptor if this process has no number left for it.
    public func arguments() throws(DBusError) -> [DBusValue] {
        guard kind == .methodReturn || !hasDescriptors else {
            throw malformed("the message contains file descriptors", remedy: "send values, not descriptors")
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
            guard descriptors.count == 1 else { throw malformed("the message contains several file descriptors") }
            number = fcntl(descriptors[0], F_DUPFD_CLOEXEC, 3)
        } else {
            // A message that was made here. libdbus returns a duplicate, or -1 if there is no number left.
            number = reader.basic(-1)
        }
        guard number >= 0 else { throw malformed("its file descriptor could not be duplicated") }
        return .descriptor(DBusDescriptor(adopting: number))
    case .other, .end: throw malformed("an argument has the unknown type “\(reader.signature)”")
    }
}

private func malformed(_ message: String, remedy: String? = nil) -> DBusError {
    DBusError(.malformed, message: message, attempted: "read a message", remedy: remedy)
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

private func readText(_ reader: DBusReader) -> String { reader.text.map { String(decoding: $0, as: UTF8.self) } ?? "" }
