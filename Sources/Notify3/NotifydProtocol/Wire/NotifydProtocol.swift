package import DBusTransport

/// The messages between the library and notifyd: the D-Bus service `org.notifycenter.Notifyd1`.
///
/// notifyd knows the registrations only from the processes, and asks them again whenever it starts. So it may end at any time, and does not
/// have to run while nobody needs it. A process tells notifyd when it registers its first token of a name, when it cancels the last, and when
/// notifyd asks by the signal `Tell`. It does not wait for an answer, and does not start notifyd.
///
/// | method | caller | |
/// | --- | --- | --- |
/// | `Enter(as names) → s` | library | has registrations of these names; notifyd's unique bus name |
/// | `Leave(as names)` | library | has no registrations of these names any more |
/// | `Report(t inquiry, a{sv})` | library | ``ProcessReport``, the answer to a `Tell` |
/// | `Post(s name) → s` | anyone | posts for a caller who may be gone soon; notifyd's unique bus name, empty if it may not |
/// | `SetState(s name, t value, t time)` | library | enters the name, too; the newest time wins |
/// | `GetState(s name) → t` | anyone | |
/// | `SuspendProcess(u pid)`, `ResumeProcess(u pid)` | anyone | |
/// | `Monitor(i token, s name, s path, u flags) → s` | library | enters the name, too; notifyd's unique bus name |
/// | `Unmonitor(i token)` | library | |
/// | `List() → aa{sv} names, aa{sv} processes` | anyone | ``NameListing``, ``ProcessListing``, freshly asked of everyone |
/// | `Status() → s` | anyone | the same for people, with notifyd's own figures |
///
/// | signal | to | |
/// | --- | --- | --- |
/// | `Tell(t inquiry, b detailed)` | all | report; each registration, if it is detailed |
/// | `Suspend()`, `Resume()` | one process | hold back all deliveries; counted |
/// | `Changed(i token)` | one process | the path that the token monitors changed |
///
/// Receivers accept `Tell` if it is sent to all; they get it by a match rule with notifyd's name as the sender. They accept the other signals from
/// the unique name that notifyd gave in an answer, or from which it sent its last `Tell`.
package enum NotifydProtocol {
    package static let busName = "org.notifycenter.Notifyd1"
    package static let path = "/org/notifycenter/Notifyd"
    package static let interface = "org.notifycenter.Notifyd1"
    package static let errorPrefix = "org.notifycenter.Notifyd1.Error."

    package enum Method: String, Sendable {
        case enter = "Enter"
        case leave = "Leave"
        case report = "Report"
        case post = "Post"
        case setState = "SetState"
        case getState = "GetState"
        case suspendProcess = "SuspendProcess"
        case resumeProcess = "ResumeProcess"
        case monitor = "Monitor"
        case unmonitor = "Unmonitor"
        case list = "List"
        case status = "Status"
    }

    package enum Signal: String, Sendable {
        case tell = "Tell"
        case suspend = "Suspend"
        case resume = "Resume"
        case changed = "Changed"
    }

    /// Why notifyd refuses a call. The name of the D-Bus error, after ``errorPrefix``.
    package enum ErrorName: String, Sendable {
        /// The caller may not do this to the name, the process or the path.
        case notAuthorized = "NotAuthorized"
        /// There is no such process, or it has no registrations.
        case noSuchProcess = "NoSuchProcess"
        /// The path is not absolute, or the token monitors another one.
        case invalidRequest = "InvalidRequest"
        /// The caller has notifyd keep more than one process may, or the machine grants no more of it.
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

    /// A signal of notifyd's.
    package static func signal(
        _ signal: Signal,
        _ arguments: [DBusValue] = [],
        to destination: String? = nil
    ) throws(DBusError) -> DBusMessage {
        try .signal(
            path: path,
            interface: interface,
            member: signal.rawValue,
            arguments: arguments,
            destination: destination
        )
    }

    /// Asks the bus for `Tell`.
    package static let tellRule = MatchRule(
        signalFrom: busName,
        path: path,
        interface: interface,
        member: Signal.tell.rawValue
    )

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

    /// A dictionary of the protocol that lacks a field or has one of another type.
    package struct FieldError: Error {
        package let field: String

        package init(_ field: String) { self.field = field }
    }
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
