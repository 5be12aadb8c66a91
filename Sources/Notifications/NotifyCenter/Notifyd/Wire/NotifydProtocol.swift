package import DBus

/// The messages between the library and notifyd: the D-Bus service `org.notifycenter.Notifyd1`.
///
/// notifyd knows registrations only from the processes, which report everything to it whenever it starts. It may
/// therefore end at any time, and need not run while it is not needed. A process tells notifyd when it registers its
/// first token of a name, and when it cancels the last. It does not wait for a response, and does not start notifyd.
/// The bus reports when notifyd comes and goes (`NameOwnerChanged`).
///
/// | method | caller | | | --- | --- | --- | | `Enter(as names)` | library | has registrations of these names | |
/// `Leave(as names)` | library | no longer has registrations of these names | | `Report(t round, u suspensions, a(…)
/// names)` | library | ``ProcessReport``: to a new notifyd with round 0, and in response to a `Tell` | | `Post(s name)`
/// | anyone | posts a reserved name for a caller who may post it | | `SetState(s name, t value, t time)` | library |
/// also enters the name; the newest time wins | | `GetState(s name) → t` | anyone | | | `SuspendProcess(u pid)`,
/// `ResumeProcess(u pid)` | anyone | only the process's own user, or root | | `List(t cursor) → a(…) names, a(…)
/// processes, t cursor` | anyone | ``ListPage``: the processes of the caller's user; for root, all | | `Status() → s` |
/// anyone | notifyd's own figures, for people | | `Relay(as interfaces)` | library, in a sandbox | sends it the posts
/// on these interfaces; responds once it does | | `EndRelay(as interfaces)` | library, in a sandbox | |
///
/// | signal, to one process | |
/// | --- | --- |
/// | `Tell(t round)` | report, with each registration |
/// | `Suspend()`, `Resume()` | hold back all deliveries; counted |
/// | `Keep(a(stt) states)` | report these states, whose setters are gone, to the next notifyd |
///
/// Receivers accept signals, and posts of reserved names, only from the connection that owns notifyd's name.
///
/// A relayed post is the posted signal, sent by notifyd to one process, with a path that names the poster
/// (``relayPath(ofPostsBy:)``). An interface is that of one name, or ``WireKind`` for all names of a center.
///
/// notifyd does not relay these posts:
/// - the receiver's own posts and notifyd's own posts: both pass the sandbox's proxy
/// - posts of names that the receiver may not register
/// - posts of reserved names by other processes: only notifyd may post such names
package enum NotifydProtocol {
    package static let busName = "org.notifycenter.Notifyd1"
    package static let path = "/org/notifycenter/Notifyd"
    package static let interface = "org.notifycenter.Notifyd1"
    package static let errorPrefix = "org.notifycenter.Notifyd1.Error."
    /// Each process with registrations queues for this name. A process in the queue when notifyd starts has something
    /// to report. The name's owner has no special role, and the name is never called.
    package static let clientsBusName = "org.notifycenter.Notifyd1.Clients"

    package enum Method: String, Sendable {
        case enter = "Enter"
        case leave = "Leave"
        case report = "Report"
        case post = "Post"
        case setState = "SetState"
        case getState = "GetState"
        case suspendProcess = "SuspendProcess"
        case resumeProcess = "ResumeProcess"
        case list = "List"
        case status = "Status"
        case relay = "Relay"
        case endRelay = "EndRelay"
    }

    package enum Signal: String, Sendable {
        case tell = "Tell"
        case suspend = "Suspend"
        case resume = "Resume"
        case keep = "Keep"
    }

    /// The reason why notifyd refuses a call. The raw value follows ``errorPrefix`` in the name of the D-Bus error.
    package enum ErrorName: String, Sendable {
        /// The caller may not do this to the name or the process.
        case notAuthorized = "NotAuthorized"
        /// The process does not exist, or has no registrations.
        case noSuchProcess = "NoSuchProcess"
        /// A report without a request.
        case invalidRequest = "InvalidRequest"
        /// A limit of the caller or its user is reached: stored data, pending data, unread messages, or the length of a
        /// posted name. Also: a process that is to be suspended does not read.
        case limitsExceeded = "LimitsExceeded"
    }

    package static func call(
        _ method: Method,
        _ arguments: [DBusValue] = [],
        options: DBusMessage.CallOptions = []
    ) throws(DBusError) -> DBusMessage {
        try .methodCall(
            destination: busName,
            path: path,
            interface: interface,
            member: method.rawValue,
            arguments: arguments,
            options: options
        )
    }

    /// Makes a template, for frequent calls.
    package static func template(
        _ method: Method,
        options: DBusMessage.CallOptions = []
    ) -> Result<MessageTemplate, DBusError> {
        Result { () throws(DBusError) in MessageTemplate(try call(method, options: options)) }
    }

    package static func signal(
        _ signal: Signal,
        _ arguments: [DBusValue] = [],
        to destination: String
    ) throws(DBusError) -> DBusMessage {
        try .signal(
            path: path,
            interface: interface,
            member: signal.rawValue,
            arguments: arguments,
            destination: destination
        )
    }

    /// The rule with which the bus reports when notifyd comes and goes.
    package static let ownerRule = MatchRule(
        signalFrom: "org.freedesktop.DBus",
        interface: "org.freedesktop.DBus",
        member: "NameOwnerChanged",
        argument0: busName
    )

    /// Makes the call that asks the bus for notifyd's unique name.
    package static func ownerQuestion() throws(DBusError) -> DBusMessage {
        try busCall("GetNameOwner", [.string(busName)])
    }

    /// Makes a call to the bus itself about one of these names.
    package static func busCall(_ member: String, _ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        try .methodCall(
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: member,
            arguments: arguments
        )
    }

    /// Returns the reason of notifyd's refusal; `nil` for an error from another sender.
    package static func refusal(_ error: DBusError) -> ErrorName? {
        guard let name = error.name, name.hasPrefix(errorPrefix) else { return nil }
        return ErrorName(rawValue: String(name.dropFirst(errorPrefix.count)))
    }

    /// Whether the error says that notifyd does not respond on this bus, while the bus itself does.
    package static func isAbsent(_ error: DBusError) -> Bool { absenceErrors.contains(error.name ?? "") }

    private static let absenceErrors: Set = [
        // notifyd does not run, is not installed, or does not start.
        "org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.ServiceUnknown",
        "org.freedesktop.DBus.Error.Spawn.ExecFailed", "org.freedesktop.DBus.Error.Spawn.ChildExited",
        "org.freedesktop.DBus.Error.Spawn.ChildSignaled", "org.freedesktop.DBus.Error.Spawn.Failed",
        // notifyd ended before it responded.
        "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Disconnected",
        // The bus's policy denies this caller access to notifyd.
        "org.freedesktop.DBus.Error.AccessDenied",
    ]
}

/// How a registration is notified, in the terms of notifyutil.
package enum RegistrationKind: String, Sendable, Hashable, CaseIterable {
    /// Not at all; `notify_check` responds within the process.
    case check
    /// Not at all; Darwin's server responds to its `notify_check`.
    case plain
    /// A block on a queue.
    case dispatch
    /// A signal to the process.
    case signal
    /// A descriptor that tokens are read from.
    case file
    /// A descriptor too, found by the name of a Mach port.
    case port
}

extension NotifydProtocol {
    private static let relayPrefix = "/org/notifycenter/relayed/"

    /// Returns the path of a connection's relayed posts. Each byte that is neither a letter nor a digit becomes `_` and
    /// two hexadecimal digits.
    package static func relayPath(ofPostsBy connection: String) -> String {
        connection.utf8.reduce(into: relayPrefix) { path, byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                path.unicodeScalars.append(Unicode.Scalar(byte))
            default: path += byte < 16 ? "_0\(String(byte, radix: 16))" : "_\(String(byte, radix: 16))"
            }
        }
    }

    /// Returns the poster in a relayed post's path; `nil` for any other path.
    package static func poster(ofRelayPath path: String) -> String? {
        guard path.utf8.starts(with: relayPrefix.utf8) else { return nil }
        var (bytes, rest) = ([UInt8](), Array(path.utf8.dropFirst(relayPrefix.utf8.count))[...])
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "_") else {
                bytes.append(byte)
                continue
            }
            guard rest.count >= 2, let escaped = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
            else { return nil }
            bytes.append(escaped)
            rest.removeFirst(2)
        }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }
}
