package import DBus
import Glibc

/// The center that a notification belongs to. The raw value is the prefix of the interfaces of its names.
package enum WireKind: String, Sendable, CaseIterable {
    case darwin = "org.notifycenter.Darwin1"
    case distributed = "org.notifycenter.Distributed1"

    /// The raw value in the form for libdbus and for comparisons of bytes.
    var prefix: StaticString {
        switch self {
        case .darwin: "org.notifycenter.Darwin1"
        case .distributed: "org.notifycenter.Distributed1"
        }
    }

    /// The center that an interface belongs to; `nil` for any other interface.
    package init?(interface: String) {
        let kind = Self.allCases.first {
            interface == $0.rawValue || interface.utf8.starts(with: "\($0.rawValue).".utf8)
        }
        guard let kind else { return nil }
        self = kind
    }
}

/// A notification in its wire form: the signal `Posted` on `/org/notifycenter`, with the escaped name in the interface
/// (``InterfaceName``) and these arguments. All but the first are optional:
///
/// 1. `s`: the true name
/// 2. `s`: the object; empty means none, unless ``Flags/hasObject`` is set
/// 3. `u`: ``Flags``
/// 4. `a{sv}`: the userInfo (``PayloadCoding``); empty means none, unless ``Flags/hasUserInfo`` is set
///
/// A tool that posts needs only the name. The Darwin center reads the name, and the flag that says how it is escaped.
struct WireNotification: Sendable {
    struct Flags: OptionSet, Sendable {
        let rawValue: UInt32

        /// The bit of CoreFoundation's `kCFNotificationDeliverImmediately`.
        static let deliverImmediately = Flags(rawValue: 1 << 0)
        /// There is an object, even if it is the empty text.
        static let hasObject = Flags(rawValue: 1 << 8)
        /// There is a userInfo, even if it is empty (CF-U6).
        static let hasUserInfo = Flags(rawValue: 1 << 9)
        /// In name and object, `\0` stands for U+0000 and `\\` for a backslash. Set if either contains U+0000.
        static let escapesNUL = Flags(rawValue: 1 << 10)
    }

    static let path: StaticString = "/org/notifycenter"
    static let member: StaticString = "Posted"

    let name: NotificationName
    var object: NotificationObject?
    var userInfo: UserInfo?
    let sender: String?
    /// Whether suspended observers get it too (CF-P5).
    var deliversImmediately = false
    /// The size, as ``NotificationSize`` counts it.
    var bytes = NotificationSize().bytes

    /// The source under which a suspended observer coalesces.
    var source: NotificationSource { NotificationSource(name: name, object: object) }
}

// MARK: - Sending

extension WireNotification {
    /// Makes the message of a post.
    ///
    /// - Throws: ``DBusError/Code/tooLarge``, and ``DBusError/Code/invalidArgument`` for a userInfo that is nested too
    ///   deep or holds a date that is NaN or infinite.
    static func message(
        _ kind: WireKind,
        name: NotificationName,
        object: String? = nil,
        userInfo: UserInfo? = nil,
        deliverImmediately: Bool = false
    ) throws(DBusError) -> DBusMessage {
        var flags: Flags = deliverImmediately ? .deliverImmediately : []
        if object != nil { flags.insert(.hasObject) }
        if userInfo != nil { flags.insert(.hasUserInfo) }
        var texts = (name.rawValue, object ?? "")
        if texts.0.utf8.contains(0) || texts.1.utf8.contains(0) {
            flags.insert(.escapesNUL)
            texts = (escaped(texts.0), escaped(texts.1))
        }
        var arguments: [DBusValue] = [.string(texts.0)]
        if !flags.isEmpty { arguments += [.string(texts.1), .uint32(flags.rawValue)] }
        do throws(FormError) {
            var size = NotificationSize()
            try size.add(texts.0.utf8.count)
            try size.add(texts.1.utf8.count)
            if let userInfo { arguments.append(try PayloadCoding.encode(userInfo, size: &size)) }
        } catch {
            throw refusal(error)
        }
        return try DBusMessage.signal(
            path: path,
            validInterface: InterfaceName(name, prefix: kind.prefix).description,
            member: member,
            arguments: arguments
        )
    }

    private static func refusal(_ error: FormError) -> DBusError {
        switch error {
        case .tooDeep, .malformed:
            DBusError(
                .invalidArgument,
                message: "the userInfo is nested more than \(PayloadCoding.maximumDepth) arrays and dictionaries deep",
                attempted: "post a notification",
                remedy: "flatten it"
            )
        case .noDate:
            DBusError(
                .invalidArgument,
                message: "the userInfo holds a date that is NaN or infinite",
                attempted: "post a notification",
                remedy: "leave the date out, or send the number"
            )
        case .tooLarge:
            DBusError(
                .tooLarge,
                message:
                    "the notification is over \(NotificationSize.maximum) bytes, which is more than receivers take",
                attempted: "post a notification",
                remedy: "put the data in a file and send its name"
            )
        }
    }

    private static func escaped(_ text: String) -> String {
        text.unicodeScalars.reduce(into: "") { result, scalar in
            switch scalar {
            case "\0": result += "\\0"
            case "\\": result += "\\\\"
            default: result.unicodeScalars.append(scalar)
            }
        }
    }
}

// MARK: - Receiving

extension WireNotification {
    /// The name and interface of the last notification. Most notifications of a process repeat the last name, which is
    /// then neither copied into a string nor escaped again. The strings are at most as large as one notification.
    struct LastName {
        let name: NotificationName
        let interface: String
    }

    enum Reception {
        case notification(WireNotification)
        /// The message is not a notification of this center.
        case foreign
        /// The message breaks the form above, or exceeds the limit. It is counted and otherwise ignored: any process
        /// may send.
        case refused(FormError)
    }

    /// Reads an arriving message. It first checks the interface and the signature, which are in the header. The size of
    /// each value is checked before the value is copied.
    ///
    /// - Parameter route: decides which posts count, and knows the posters of relayed posts; `nil` if none are relayed.
    static func receive(
        _ message: borrowing DBusMessage,
        kind: WireKind,
        last: inout LastName?,
        route: PostRoute? = nil
    ) -> Reception {
        guard message.withInterface({ InterfaceName.hasPrefix($0, kind.prefix) }) else { return .foreign }
        let sender: String?
        if message.has(path: path, member: member) {
            if let route, !route.takes(message) { return .foreign }
            sender = message.sender
        } else {
            guard message.has(member: member), let poster = route?.poster(ofRelayed: message) else { return .foreign }
            sender = poster
        }
        do throws(FormError) {
            // The signature of almost every post.
            if message.has(signature: "s") { return .notification(try readName(message, sender, kind, &last)) }
            guard hasSignature(message, kind) else { throw .malformed }
            return .notification(try readAll(message, sender, kind, &last))
        } catch {
            return .refused(error)
        }
    }

    private static func hasSignature(_ message: borrowing DBusMessage, _ kind: WireKind) -> Bool {
        if kind == .darwin { return message.has(signaturePrefix: "s") }
        return message.has(signature: "ss") || message.has(signature: "ssu")
            || message.has(signaturePrefix: "ssua{s") || message.has(signaturePrefix: "ssua(ayv)")
            || message.has(signaturePrefix: "ssuv")
    }

    private static func readName(
        _ message: borrowing DBusMessage,
        _ sender: String?,
        _ kind: WireKind,
        _ last: inout LastName?
    ) throws(FormError) -> WireNotification {
        var size = NotificationSize()
        guard let name = message.reader.text else { throw .malformed }
        try size.add(name.count)
        let genuine = try genuineName(name, false, of: message, kind, &last)
        return WireNotification(name: genuine, sender: sender, bytes: size.bytes)
    }

    private static func readAll(
        _ message: borrowing DBusMessage,
        _ sender: String?,
        _ kind: WireKind,
        _ last: inout LastName?
    ) throws(FormError) -> WireNotification {
        var (reader, size) = (message.reader, NotificationSize())
        guard let name = reader.text else { throw .malformed }
        try size.add(name.count)
        reader.next()
        var object = kind == .distributed ? reader.text : nil
        try size.add(object?.count ?? 0)
        reader.next()
        var flags: Flags = []
        if message.has(signaturePrefix: "ssu"), case .unsigned(let bits)? = reader.number {
            flags = Flags(rawValue: UInt32(truncatingIfNeeded: bits))
        }
        if object?.isEmpty == true, !flags.contains(.hasObject) { object = nil }
        let escapes = flags.contains(.escapesNUL)
        var notification = WireNotification(
            name: try genuineName(name, escapes, of: message, kind, &last),
            object: object.map { NotificationObject(text: text($0, escapes)) },
            sender: sender
        )
        guard kind == .distributed else { return notification }
        notification.deliversImmediately = flags.contains(.deliverImmediately)
        reader.next()
        if reader.kind != .end {
            let userInfo = try PayloadCoding.decodeUserInfo(reader, size: &size)
            if !userInfo.isEmpty || flags.contains(.hasUserInfo) { notification.userInfo = userInfo }
        }
        notification.bytes = size.bytes
        return notification
    }

    /// Returns the name, if the interface belongs to it: otherwise a process that may not post a name could send it
    /// under another name's interface (architecture, D1).
    private static func genuineName(
        _ bytes: UnsafeBufferPointer<UInt8>,
        _ escapes: Bool,
        of message: borrowing DBusMessage,
        _ kind: WireKind,
        _ last: inout LastName?
    ) throws(FormError) -> NotificationName {
        if !escapes, let last, last.name.rawValue.hasUTF8(bytes), message.withInterface({ last.interface.hasUTF8($0) })
        {
            return last.name
        }
        let name = NotificationName(text(bytes, escapes))
        guard message.withInterface({ InterfaceName.isInterface($0, of: name, prefix: kind.prefix) }) else {
            throw .malformed
        }
        if !escapes { last = LastName(name: name, interface: message.interface ?? "") }
        return name
    }

    private static func text(_ bytes: UnsafeBufferPointer<UInt8>, _ escapes: Bool) -> String {
        let text = String(decoding: bytes, as: UTF8.self)
        return escapes ? unescaped(text) : text
    }

    private static func unescaped(_ text: String) -> String {
        var result = ""
        var isEscape = false
        for scalar in text.unicodeScalars {
            if isEscape {
                result.unicodeScalars.append(scalar == "0" ? "\0" : scalar)
                isEscape = false
            } else if scalar == "\\" {
                isEscape = true
            } else {
                result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}

// For notify(3) and notifyd, which keep their own registrations.

extension DarwinNotification {
    /// Reads a signal; `nil` if it is not a post of the Darwin center or is malformed.
    package init?(_ message: borrowing DBusMessage) { self.init(message, route: nil) }

    init?(_ message: borrowing DBusMessage, route: PostRoute?) {
        var last: WireNotification.LastName?
        let reception = WireNotification.receive(message, kind: .darwin, last: &last, route: route)
        guard case .notification(let notification) = reception else { return nil }
        self.init(name: notification.name, sender: notification.sender)
    }

    /// Returns the name of an interface; `nil` if the interface does not contain it.
    package static func name(of interface: String) -> NotificationName? {
        InterfaceName.name(of: interface, prefix: WireKind.darwin.prefix)
    }
}

extension MatchRule {
    /// Returns the rule for the posts of one interface, or of all interfaces if `interface` is the prefix of a center.
    package static func posts(on interface: String) -> MatchRule {
        WireKind(rawValue: interface) == nil
            ? MatchRule(path: "\(WireNotification.path)", interface: interface) : .allPosts
    }

    /// Returns the rule for the posts of a name of the Darwin center, with `sender` only of that bus name's owner.
    package static func darwinPosts(of name: NotificationName, from sender: String? = nil) -> MatchRule {
        let interface = InterfaceName(name, prefix: WireKind.darwin.prefix).description
        return MatchRule(signalFrom: sender, path: "\(WireNotification.path)", interface: interface)
    }

    /// The rule for every post of every center.
    package static let allPosts = MatchRule(path: "\(WireNotification.path)", member: "\(WireNotification.member)")
}

/// The D-Bus interface that carries a notification's name (architecture, D1).
///
/// The escaped name is the tail of the interface. The bus can then find receivers by hash, and its policy can refer to
/// names. Letters stay as they are, and so do digits and dots where D-Bus allows them, and underscores before a letter,
/// a digit or the end. Any other byte becomes `__` and two hexadecimal digits. `SHARED_MODE_CURRENT_ACCOUNT_CHANGED`
/// and `com.example.Menu_opened` stay unchanged; `my-app` becomes `my__2dapp`. The escape is injective. The empty name
/// is `__`. A name that does not fit into D-Bus's 255 bytes is `__h` and a digest. The receiver always compares the
/// true names, and so distinguishes names with the same digest.
struct InterfaceName: Hashable, CustomStringConvertible {
    let description: String

    /// D-Bus specification, "Valid Names".
    private static let maximumLength = 255

    /// - Parameter prefix: a valid interface name. The tail follows it after a dot.
    init(_ name: NotificationName, prefix: StaticString) {
        // Escaping never shortens a name: a name that is already too long is not escaped first.
        guard name.rawValue.utf8.count <= Self.maximumLength else {
            description = "\(prefix).__h\(Self.digest(name.rawValue))"
            return
        }
        let tail = Self.isPlain(name.rawValue) ? name.rawValue : Self.escaped(name.rawValue)
        let full = "\(prefix).\(tail)"
        description = full.utf8.count <= Self.maximumLength ? full : "\(prefix).__h\(Self.digest(name.rawValue))"
    }

    /// Whether `interface` is the interface of `name`. No strings are allocated for names that need no escape.
    static func isInterface(
        _ interface: UnsafeBufferPointer<UInt8>,
        of name: NotificationName,
        prefix: StaticString
    ) -> Bool {
        var text = name.rawValue
        let head = prefix.utf8CodeUnitCount + 1
        guard isPlain(text), head + text.utf8.count <= maximumLength else {
            return InterfaceName(name, prefix: prefix).description.utf8.elementsEqual(interface)
        }
        return interface.count == head + text.utf8.count && hasPrefix(interface, prefix)
            && text.withUTF8 { tail in interface[head...].elementsEqual(tail) }
    }

    /// Whether `interface` begins with `prefix` and a dot.
    static func hasPrefix(_ interface: UnsafeBufferPointer<UInt8>, _ prefix: StaticString) -> Bool {
        let count = prefix.utf8CodeUnitCount
        guard interface.count > count, interface[count] == UInt8(ascii: "."), let start = interface.baseAddress else {
            return false
        }
        return memcmp(start, prefix.utf8Start, count) == 0
    }

    /// Returns the name of an interface; `nil` if the interface has the name's digest or is not the interface of a
    /// name.
    static func name(of interface: String, prefix: StaticString) -> NotificationName? {
        let head = "\(prefix)."
        guard interface.utf8.starts(with: head.utf8) else { return nil }
        var (bytes, rest) = ([UInt8](), Array(interface.utf8.dropFirst(head.utf8.count))[...])
        if rest.elementsEqual("__".utf8) { rest = [] }
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "_"), rest.first == byte else {
                bytes.append(byte)
                continue
            }
            guard let escaped = UInt8(String(decoding: rest.dropFirst().prefix(2), as: UTF8.self), radix: 16) else {
                return nil
            }
            bytes.append(escaped)
            rest = rest.dropFirst(3)
        }
        let name = NotificationName(String(decoding: bytes, as: UTF8.self))
        return InterfaceName(name, prefix: prefix).description == interface ? name : nil
    }

    /// Whether a name needs no escape.
    private static func isPlain(_ name: String) -> Bool {
        var name = name
        return name.withUTF8 { bytes in
            var startsElement = true
            for index in bytes.indices {
                let next = index + 1 < bytes.count ? bytes[index + 1] : nil
                guard isPlain(bytes[index], next: next, startsElement: startsElement) else { return false }
                startsElement = bytes[index] == UInt8(ascii: ".")
            }
            return !bytes.isEmpty
        }
    }

    private static func escaped(_ name: String) -> String {
        guard !name.isEmpty else { return "__" }
        let bytes = Array(name.utf8)
        var output: [UInt8] = []
        output.reserveCapacity(bytes.count + 16)
        var startsElement = true
        for (index, byte) in bytes.enumerated() {
            let next = index + 1 < bytes.count ? bytes[index + 1] : nil
            if isPlain(byte, next: next, startsElement: startsElement) {
                output.append(byte)
                startsElement = byte == UInt8(ascii: ".")
            } else {
                output += [UInt8(ascii: "_"), UInt8(ascii: "_"), hexadecimal(byte >> 4), hexadecimal(byte & 15)]
                startsElement = false
            }
        }
        return String(decoding: output, as: UTF8.self)
    }

    /// Whether a byte needs no escape. An underscore needs none before a letter, a digit or the end, because two
    /// underscores begin an escape. A dot needs none between two elements.
    private static func isPlain(_ byte: UInt8, next: UInt8?, startsElement: Bool) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"): !startsElement
        case UInt8(ascii: "."): !startsElement && next != nil
        case UInt8(ascii: "_"): next.map(isAlphanumeric) ?? true
        default: false
        }
    }

    private static func isAlphanumeric(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: false
        }
    }

    private static func hexadecimal(_ digit: UInt8) -> UInt8 {
        digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
    }

    /// FNV-1a, 64 bits: enough to spread names over the bus's hash table. It is not a cryptographic hash.
    private static func digest(_ name: String) -> String {
        let hash = name.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        let digits = String(hash, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}
