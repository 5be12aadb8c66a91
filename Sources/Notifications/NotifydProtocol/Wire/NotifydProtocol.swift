package import DBusTransport

/// The messages between the library and notifyd: the D-Bus service `org.notifycenter.Notifyd1`.
///
/// notifyd knows the registrations only from the processes, which tell it everything whenever it starts. So it may end at any time, and does
/// not have to run while nobody needs it. A process tells notifyd when it registers its first token of a name, and when it cancels the last. It
/// does not wait for an answer, and does not start notifyd. The bus tells it when notifyd comes and goes (`NameOwnerChanged`).
///
/// | method | caller | |
/// | --- | --- | --- |
/// | `Enter(as names)` | library | has registrations of these names |
/// | `Leave(as names)` | library | has no registrations of these names any more |
/// | `Report(t round, u suspensions, a(…) names)` | library | ``ProcessReport``: to a new notifyd with round 0, and the answer to a `Tell` |
/// | `Post(s name)` | anyone | posts a reserved name for a caller who may post it |
/// | `SetState(s name, t value, t time)` | library | enters the name, too; the newest time wins |
/// | `GetState(s name) → t` | anyone | |
/// | `SuspendProcess(u pid)`, `ResumeProcess(u pid)` | anyone | of the process's own user, or root |
/// | `List(t cursor) → a(…) names, a(…) processes, t cursor` | anyone | ``ListPage``: the caller's own processes, for root all |
/// | `Status() → s` | anyone | notifyd's own figures, for people |
/// | `Relay(as interfaces)` | library, in a sandbox | sends it the posts on these interfaces; answers once it does |
/// | `EndRelay(as interfaces)` | library, in a sandbox | |
///
/// | signal, to one process | |
/// | --- | --- |
/// | `Tell(t round)` | report, with each registration |
/// | `Suspend()`, `Resume()` | hold back all deliveries; counted |
/// | `Keep(a(stt) states)` | report these states, whose setters are gone, to the next notifyd |
///
/// Receivers accept signals, and posts of reserved names, from the connection that owns notifyd's name.
///
/// A relayed post is the signal as it was posted, but from notifyd, to one process, and from a path that names the
/// poster (``relayPath(ofPostsBy:)``). An interface is that of one name, or ``RelayedCenter`` for all names of a
/// center. These posts are not relayed: those of the receiver; notifyd's own, which pass the sandbox's proxy; those of
/// names that the receiver may not register; and those of reserved names, which only notifyd may post.
package enum NotifydProtocol {
    package static let busName = "org.notifycenter.Notifyd1"
    package static let path = "/org/notifycenter/Notifyd"
    package static let interface = "org.notifycenter.Notifyd1"
    package static let errorPrefix = "org.notifycenter.Notifyd1.Error."
    /// Each process with registrations queues for this name, and nobody calls it: who is in the queue when notifyd starts has something to
    /// report. To own it means nothing.
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

    /// Why notifyd refuses a call. The name of the D-Bus error, after ``errorPrefix``.
    package enum ErrorName: String, Sendable {
        /// The caller may not do this to the name or the process.
        case notAuthorized = "NotAuthorized"
        /// There is no such process, or it has no registrations.
        case noSuchProcess = "NoSuchProcess"
        /// A report that nobody has asked for.
        case invalidRequest = "InvalidRequest"
        /// A limit of the caller or its user is reached: what notifyd keeps, what waits, what is unread, the length of a posted name; or a
        /// process that is to be suspended does not read.
        case limitsExceeded = "LimitsExceeded"
    }

    /// A call of a method.
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

    /// For calls that are made often.
    package static func template(
        _ method: Method,
        options: DBusMessage.CallOptions = []
    ) -> Result<MessageTemplate, DBusError> {
        Result { () throws(DBusError) in MessageTemplate(try call(method, options: options)) }
    }

    /// A signal of notifyd's to one process.
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

    /// Asks the bus to say when notifyd comes and goes.
    package static let ownerRule = MatchRule(
        signalFrom: "org.freedesktop.DBus",
        interface: "org.freedesktop.DBus",
        member: "NameOwnerChanged",
        argument0: busName
    )

    /// A call to the bus itself about one of these names.
    package static func busCall(_ member: String, _ arguments: [DBusValue]) throws(DBusError) -> DBusMessage {
        try .methodCall(
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: member,
            arguments: arguments
        )
    }

    /// Why notifyd refused; `nil` for an error of anybody else.
    package static func refusal(_ error: DBusError) -> ErrorName? {
        guard let name = error.name, name.hasPrefix(errorPrefix) else { return nil }
        return ErrorName(rawValue: String(name.dropFirst(errorPrefix.count)))
    }

    /// Whether an error says that no notifyd answers on this bus, though the bus does.
    package static func isAbsent(_ error: DBusError) -> Bool {
        absenceErrors.contains(error.name ?? "")
    }

    private static let absenceErrors: Set = [
        // notifyd does not run, is not installed, or does not start.
        "org.freedesktop.DBus.Error.NameHasNoOwner",
        "org.freedesktop.DBus.Error.ServiceUnknown",
        "org.freedesktop.DBus.Error.Spawn.ExecFailed",
        "org.freedesktop.DBus.Error.Spawn.ChildExited",
        "org.freedesktop.DBus.Error.Spawn.ChildSignaled",
        "org.freedesktop.DBus.Error.Spawn.Failed",
        // It ended before it answered.
        "org.freedesktop.DBus.Error.NoReply",
        "org.freedesktop.DBus.Error.Disconnected",
        // The bus's policy keeps notifyd from this caller.
        "org.freedesktop.DBus.Error.AccessDenied",
    ]
}

/// How a registration is notified, in the words of notifyutil.
package enum RegistrationKind: String, Sendable, Hashable, CaseIterable {
    /// Not at all; `notify_check` reads it in the process.
    case check
    /// Not at all; Darwin's server answers its `notify_check`.
    case plain
    /// A block on a queue.
    case dispatch
    /// A signal to the process.
    case signal
    /// A descriptor to read tokens from.
    case file
    /// The same by the name of a Mach port.
    case port
}
