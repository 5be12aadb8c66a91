import CDBus
import Glibc

/// One D-Bus message. Move-only: libdbus gets the message back at the end of the owner's life.
public struct DBusMessage: ~Copyable, @unchecked Sendable {
    // Unchecked: one owner at a time, and libdbus counts references atomically.
    let pointer: OpaquePointer

    /// Takes over one reference.
    init(adopting pointer: OpaquePointer) { self.pointer = pointer }

    deinit {
        // Otherwise the message is left as it is: libdbus's lock may never be free.
        if !ForkedChild.isTorn { onLibdbus { dbus_message_unref(pointer) } }
    }

    /// A second owner of the same message, which nobody changes any more.
    func sharedReference() -> DBusMessage { DBusMessage(adopting: dbus_message_ref(pointer)) }

    /// The same content as a message of its own, which gets a serial of its own when it is sent.
    package func copy() throws(DBusError) -> DBusMessage {
        try DBusMessage.adopt(onLibdbus { dbus_message_copy(pointer) }, "copy a message")
    }

    /// A copy that goes from this path to this one receiver.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` for a path or a bus name that D-Bus does not take.
    package func readdressed(from path: String, to destination: String) throws(DBusError) -> DBusMessage {
        let attempted = "readdress a message"
        try Self.check(path, "object path", dbus_validate_path, attempted)
        try Self.check(destination, "bus name", dbus_validate_bus_name, attempted)
        let copy = try copy()
        guard dbus_message_set_path(copy.pointer, path) != 0,
            dbus_message_set_destination(copy.pointer, destination) != 0
        else { throw Self.outOfMemory(attempted) }
        return copy
    }

    /// This message, or a copy where it was sent before: a call needs a serial of its own.
    consuming func unsent() throws(DBusError) -> DBusMessage {
        if dbus_message_get_serial(pointer) != 0 { return try copy() }
        return self
    }

    /// What a message is for.
    public enum Kind: Sendable, Hashable {
        case methodCall
        case methodReturn
        case error
        case signal
        /// A type that this version does not know, to be ignored as the D-Bus specification asks.
        case unknown
    }

    /// What the message is for.
    public var kind: Kind {
        switch dbus_message_get_type(pointer) {
        case DBUS_MESSAGE_TYPE_METHOD_CALL: .methodCall
        case DBUS_MESSAGE_TYPE_METHOD_RETURN: .methodReturn
        case DBUS_MESSAGE_TYPE_ERROR: .error
        case DBUS_MESSAGE_TYPE_SIGNAL: .signal
        default: .unknown
        }
    }

    /// The unique name of the connection that sent it, as the bus (not the sender) says.
    public var sender: String? { text(dbus_message_get_sender(pointer)) }
    /// Whom it goes to.
    var destination: String? { text(dbus_message_get_destination(pointer)) }
    /// The object path.
    public var path: String? { text(dbus_message_get_path(pointer)) }
    /// The interface.
    public var interface: String? { text(dbus_message_get_interface(pointer)) }
    /// The method or signal within the interface.
    public var member: String? { text(dbus_message_get_member(pointer)) }
    /// Whether it is for this connection alone. Others arrive because a match rule asks for them.
    public var isDirected: Bool { dbus_message_get_destination(pointer) != nil }
    /// The name of an error reply.
    public var errorName: String? { text(dbus_message_get_error_name(pointer)) }
    /// The body's signature.
    public var signature: String { text(dbus_message_get_signature(pointer)) ?? "" }
    /// Whether it answers a call, well or by an error.
    var isAnswer: Bool { [.methodReturn, .error].contains(kind) }
    /// The serial of the call that this answers; 0 where it answers none.
    var replySerial: UInt32 { dbus_message_get_reply_serial(pointer) }
    /// Whether the caller is ready to wait while a person is asked for a password.
    package var allowsInteraction: Bool { dbus_message_get_allow_interactive_authorization(pointer) != 0 }
    /// Whether a method call waits for an answer.
    package var expectsReply: Bool { dbus_message_get_no_reply(pointer) == 0 }

    /// Whether this is the signal `member` from the bus itself; nobody else can send in the bus's name.
    public func isBusSignal(_ member: StaticString) -> Bool {
        isSignal(sender: "org.freedesktop.DBus", interface: "org.freedesktop.DBus", member: member)
    }

    private func isSignal(sender: StaticString, interface: StaticString, member: StaticString) -> Bool {
        dbus_message_is_signal(pointer, cString(interface), cString(member)) != 0
            && dbus_message_has_sender(pointer, cString(sender)) != 0
    }

    /// Whether path and member are these. Compares without making strings: it is asked for every signal.
    public func has(path: StaticString, member: StaticString) -> Bool {
        dbus_message_has_path(pointer, cString(path)) != 0 && dbus_message_has_member(pointer, cString(member)) != 0
    }

    /// Whether this is the member.
    package func has(member: StaticString) -> Bool { dbus_message_has_member(pointer, cString(member)) != 0 }

    /// Whether this is the path. Compares without a copy of the message's, which may be as long as the largest message.
    package func has(path: String) -> Bool { dbus_message_has_path(pointer, path) != 0 }

    /// Whether the body has this signature; compares without making strings.
    public func has(signature: StaticString) -> Bool {
        dbus_message_has_signature(pointer, cString(signature)) != 0
    }

    /// Whether the body begins with these types. The header says so, and nothing of the body is read.
    package func has(signaturePrefix prefix: StaticString) -> Bool {
        strncmp(dbus_message_get_signature(pointer), cString(prefix), prefix.utf8CodeUnitCount) == 0
    }

    /// Calls `body` with the bytes of the interface's name, and with none where the message has no interface.
    public func withInterface<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        guard let start = dbus_message_get_interface(pointer) else {
            return body(UnsafeBufferPointer(start: nil, count: 0))
        }
        let bytes = UnsafeRawPointer(start).assumingMemoryBound(to: UInt8.self)
        return body(UnsafeBufferPointer(start: bytes, count: strlen(start)))
    }
}

/// A literal as C takes it.
func cString(_ literal: StaticString) -> UnsafePointer<CChar> {
    UnsafeRawPointer(literal.utf8Start).assumingMemoryBound(to: CChar.self)
}

// MARK: - Making

extension DBusMessage {
    /// A signal.
    ///
    /// - Parameter destination: the only one who gets it, by bus name; `nil` for all whose match rules ask for it.
    /// - Throws: ``DBusError/Code/invalidArgument`` for names or values that D-Bus does not take, ``DBusError/Code/tooLarge``.
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

    /// A signal whose path, interface and member are known to be valid, which a post does not check again.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument`` for values that D-Bus does not take, ``DBusError/Code/tooLarge``.
    package static func signal(
        path: StaticString,
        validInterface interface: String,
        member: StaticString,
        arguments: [DBusValue]
    ) throws(DBusError) -> DBusMessage {
        func attempted() -> String { "make the signal \(interface).\(member)" }
        // By `withCString`: a String that is passed as a C string is copied to the heap first.
        let pointer = interface.withCString { name in
            onLibdbus { dbus_message_new_signal(cString(path), name, cString(member)) }
        }
        let message = try adopt(pointer, attempted())
        try message.append(arguments, attempted: attempted())
        return message
    }

    /// How a method call is made.
    public struct CallOptions: OptionSet, Sendable {
        /// The bits.
        public let rawValue: UInt8

        /// The options with these bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// Does not start a service that is not running.
        public static let noAutoStart = CallOptions(rawValue: 1)
        /// No answer comes, not even an error: for ``DBusConnection/send(_:)``.
        public static let noReply = CallOptions(rawValue: 2)
    }

    /// A method call.
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

    /// The answer to a method call.
    func reply(_ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        let message = try DBusMessage.adopt(
            onLibdbus { dbus_message_new_method_return(pointer) },
            "answer \(member ?? "a call")"
        )
        try message.append(arguments, attempted: "answer \(member ?? "a call")")
        return message
    }

    /// An answer with these values that answers no call yet.
    static func answerToNobody(_ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        let message = try adopt(onLibdbus { dbus_message_new(DBUS_MESSAGE_TYPE_METHOD_RETURN) }, "prepare an answer")
        dbus_message_set_no_reply(message.pointer, 1)
        try message.append(arguments, attempted: "prepare an answer")
        return message
    }

    /// The answer to a method call, with the values of an answer to nobody.
    func reply(copying answer: borrowing DBusMessage) throws(DBusError) -> DBusMessage {
        let copy = try answer.copy()
        guard dbus_message_set_reply_serial(copy.pointer, dbus_message_get_serial(pointer)) != 0,
            dbus_message_set_destination(copy.pointer, dbus_message_get_sender(pointer)) != 0
        else { throw Self.outOfMemory("answer \(member ?? "a call")") }
        return copy
    }

    /// The error answer to a method call.
    func errorReply(
        name: String,
        message: String,
        details: [String: DBusValue] = [:]
    ) throws(DBusError) -> DBusMessage {
        let attempted = "answer \(member ?? "a call") with an error"
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

    /// A call to the bus itself. Its names are constants, so nothing is validated.
    static func busCall(
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

    /// Whether a reply to this call may come from this sender, as far as the names tell.
    func mayBeAnswered(by sender: String?) -> Bool {
        guard let destination = dbus_message_get_destination(pointer) else { return true }
        guard destination[0] == CChar(bitPattern: UInt8(ascii: ":")) || strcmp(destination, Self.busName) == 0 else {
            return true
        }
        guard let sender else { return false }
        return sender == Self.busName || strcmp(destination, sender) == 0
    }

    /// Whether this reply comes from whom the call went to, as far as the names tell.
    func mayAnswer(_ call: borrowing DBusMessage) -> Bool {
        guard let destination = dbus_message_get_destination(call.pointer) else { return true }
        let isUnique = destination[0] == CChar(bitPattern: UInt8(ascii: ":")) || strcmp(destination, Self.busName) == 0
        // The bus itself says that the peer is gone; nobody else can send in its name.
        return !isUnique || dbus_message_has_sender(pointer, destination) != 0
            || dbus_message_has_sender(pointer, Self.busName) != 0
    }
}

// MARK: - Names and texts

/// The form of names on a bus.
package enum BusName {
    /// Whether a program may ask the bus for this name. The bus gives unique names (“:1.7”), nobody asks for them.
    package static func isWellKnown(_ name: String) -> Bool {
        !name.hasPrefix(":") && !name.containsNUL && name.withCString { dbus_validate_bus_name($0, nil) } != 0
    }
}

// MARK: - C strings

/// The text at `pointer`, or `nil` where C says NULL.
func text(_ pointer: UnsafePointer<CChar>?) -> String? {
    pointer.map { String(cString: $0) }
}

extension String {
    /// Whether C would take it for a shorter text.
    var containsNUL: Bool { contains(byte: 0) }

    /// Whether the byte occurs in the UTF-8. By `memchr`, because every post asks it several times.
    func contains(byte: UInt8) -> Bool {
        utf8.withContiguousStorageIfAvailable { bytes in
            bytes.baseAddress.map { memchr($0, CInt(byte), bytes.count) != nil } ?? false
        } ?? utf8.contains(byte)
    }
}
