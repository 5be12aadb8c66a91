package import DBus

/// The center that a notification belongs to, according to its interface.
enum WireKind: Sendable {
    case darwin
    case distributed

    /// The prefix of the interfaces of this center's names.
    var prefix: StaticString {
        switch self {
        case .darwin: "org.notifycenter.Darwin1"
        case .distributed: "org.notifycenter.Distributed1"
        }
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

    let kind: WireKind
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

    /// Returns the rule with which the bus sends the posts of `name`.
    ///
    /// - Parameter sender: the bus name whose posts are sent; `nil` for all.
    static func rule(_ kind: WireKind, name: NotificationName, from sender: String? = nil) -> MatchRule {
        MatchRule(
            signalFrom: sender,
            path: "\(path)",
            interface: InterfaceName(name, prefix: kind.prefix).description
        )
    }

    /// The rule with which the bus sends every notification of every center.
    static let broadRule = MatchRule(path: "\(path)", member: "\(member)")

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
        return WireNotification(
            kind: kind,
            name: try genuineName(name, false, of: message, kind, &last),
            sender: sender,
            bytes: size.bytes
        )
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
            kind: kind,
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
        if !escapes, let last, last.name.rawValue.hasUTF8(bytes),
            message.withInterface({ last.interface.hasUTF8($0) })
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

/// A post of the Darwin center, for notify(3) and notifyd, which keep their own registrations.
package struct DarwinSignal {
    package let name: NotificationName
    package let sender: String?

    /// Reads a signal; `nil` if it is not a post of the Darwin center or is malformed.
    package init?(_ message: borrowing DBusMessage) { self.init(message, route: nil) }

    init?(_ message: borrowing DBusMessage, route: PostRoute?) {
        var last: WireNotification.LastName?
        guard
            case .notification(let notification) = WireNotification.receive(
                message,
                kind: .darwin,
                last: &last,
                route: route
            )
        else { return nil }
        (name, sender) = (notification.name, notification.sender)
    }

    /// Returns the name of an interface; `nil` if the interface does not contain it.
    package static func name(of interface: String) -> NotificationName? {
        InterfaceName.name(of: interface, prefix: WireKind.darwin.prefix)
    }

    /// Returns the rule with which the bus sends the posts of a name. With `sender`, the bus sends only the posts of
    /// that bus name's owner.
    package static func rule(_ name: NotificationName, from sender: String? = nil) -> MatchRule {
        WireNotification.rule(.darwin, name: name, from: sender)
    }
}

extension MatchRule {
    /// Returns the rule for the posts of one interface, or of all interfaces if `interface` is the prefix of a center.
    package static func posts(on interface: String) -> MatchRule {
        RelayedCenter(rawValue: interface) == nil
            ? MatchRule(path: "\(WireNotification.path)", interface: interface) : WireNotification.broadRule
    }

    package static var allPosts: MatchRule { WireNotification.broadRule }
}
