package import DBusTransport

/// Which center a notification belongs to, as the wire tells it.
enum WireKind: Sendable {
    case darwin
    case distributed

    /// What the interfaces of this center's names begin with.
    var prefix: StaticString {
        switch self {
        case .darwin: "org.notifycenter.Darwin1"
        case .distributed: "org.notifycenter.Distributed1"
        }
    }
}

/// A notification as it travels: the signal `Posted` on `/org/notifycenter`, with the escaped name in the interface
/// (``InterfaceName``) and these arguments, of which all but the first may be left out:
///
/// 1. `s`: the true name
/// 2. `s`: the object; empty for none, unless ``Flags/hasObject`` says otherwise
/// 3. `u`: ``Flags``
/// 4. `a{sv}`: the userInfo (``PayloadCoding``); empty for none, unless ``Flags/hasUserInfo`` says otherwise
///
/// A tool that posts needs the name alone.
struct WireNotification: Sendable {
    struct Flags: OptionSet, Sendable {
        let rawValue: UInt32

        /// CoreFoundation's `kCFNotificationDeliverImmediately`, in its place.
        static let deliverImmediately = Flags(rawValue: 1 << 0)
        /// The object is given, though it may be the empty text.
        static let hasObject = Flags(rawValue: 1 << 8)
        /// The userInfo is given, though it may be empty (CF-U6).
        static let hasUserInfo = Flags(rawValue: 1 << 9)
        /// In name and object `\0` stands for U+0000 and `\\` for a backslash, because one of them holds a U+0000.
        static let escapesNUL = Flags(rawValue: 1 << 10)
    }

    static let path: StaticString = "/org/notifycenter"
    static let member: StaticString = "Posted"

    let kind: WireKind
    let name: NotificationName
    let object: NotificationObject?
    let userInfo: UserInfo?
    let sender: String?
    /// Whether suspended observers get it too (CF-P5).
    var deliversImmediately = false

    /// What a suspended observer keeps one of.
    var source: NotificationSource { NotificationSource(name: name, object: object) }

    // MARK: Sending

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
        if let userInfo { arguments.append(try PayloadCoding.encode(userInfo)) }
        return try DBusMessage.signal(
            path: "\(path)",
            interface: InterfaceName(name, prefix: kind.prefix).description,
            member: "\(member)",
            arguments: arguments
        )
    }

    /// Sends what is posted under `name`.
    static func rule(_ kind: WireKind, name: NotificationName) -> MatchRule {
        MatchRule(path: "\(path)", interface: InterfaceName(name, prefix: kind.prefix).description)
    }

    /// Sends every notification of every center.
    static let broadRule = MatchRule(path: "\(path)", member: "\(member)")

    // MARK: Receiving

    enum Reception {
        case notification(WireNotification)
        /// Not a notification of this center.
        case foreign
        /// One that breaks the form above. It is counted and otherwise ignored: anybody may send.
        case malformed
    }

    static func receive(_ message: borrowing DBusMessage, kind: WireKind) -> Reception {
        guard message.has(path: path, member: member),
            message.withInterface({ InterfaceName.hasPrefix($0, kind.prefix) })
        else { return .foreign }
        guard let notification = parse(message, kind: kind) else { return .malformed }
        // Who may not post a name must not get it in through the interface of another (architecture, D1).
        let isGenuine = message.withInterface {
            InterfaceName.isInterface($0, of: notification.name, prefix: kind.prefix)
        }
        return isGenuine ? .notification(notification) : .malformed
    }

    private static func parse(_ message: borrowing DBusMessage, kind: WireKind) -> WireNotification? {
        let sender = message.sender
        if message.has(signature: "s"), let name = message.firstString {
            return WireNotification(
                kind: kind,
                name: NotificationName(name),
                object: nil,
                userInfo: nil,
                sender: sender
            )
        }
        guard let arguments = try? message.arguments(), case .string(let name)? = arguments.first else { return nil }
        var object = ""
        if arguments.count > 1 {
            guard case .string(let text) = arguments[1] else { return nil }
            object = text
        }
        var flags: Flags = []
        if arguments.count > 2 {
            guard case .uint32(let bits) = arguments[2] else { return nil }
            flags = Flags(rawValue: bits)
        }
        var userInfo: UserInfo?
        if arguments.count > 3 {
            guard let decoded = PayloadCoding.decodeUserInfo(arguments[3]) else { return nil }
            userInfo = decoded.isEmpty && !flags.contains(.hasUserInfo) ? nil : decoded
        }
        let escapes = flags.contains(.escapesNUL)
        let hasObject = flags.contains(.hasObject) || !object.isEmpty
        return WireNotification(
            kind: kind,
            name: NotificationName(escapes ? unescaped(name) : name),
            object: hasObject ? NotificationObject(text: escapes ? unescaped(object) : object) : nil,
            userInfo: userInfo,
            sender: sender,
            deliversImmediately: flags.contains(.deliverImmediately)
        )
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

/// Where notifications come from in the sense of coalescing: one name and one object (CF-S4).
struct NotificationSource: Hashable, Sendable {
    let name: NotificationName
    let object: NotificationObject?
}

/// What notify(3) needs of the wire form: it keeps its own registrations.
package enum DarwinSignal {
    /// Sends the posts of a name.
    package static func rule(_ name: NotificationName) -> MatchRule { WireNotification.rule(.darwin, name: name) }

    /// Sends all posts of all names, where the bus grants no more rules.
    package static var ruleForAllNames: MatchRule { WireNotification.broadRule }

    /// The name that a signal posts; `nil` for any other signal, and for one that breaks the form.
    package static func name(_ message: borrowing DBusMessage) -> NotificationName? {
        guard case .notification(let notification) = WireNotification.receive(message, kind: .darwin) else { return nil }
        return notification.name
    }
}
