import Basics
package import DBus
import NotifyCenter
import notify

/// The exit statuses of notifyutil and notify-center: the numbers of sysexits.h, except that notifyutil has Darwin's
/// status for a wrong command line.
package enum ExitStatus: CInt {
    case done = 0
    /// The command line of notifyutil is wrong; nothing was done.
    case usage = 1
    /// The bus, or notifyd where it is needed, cannot be reached (EX_UNAVAILABLE).
    case unavailable = 69
    /// Something else failed (EX_SOFTWARE).
    case failed = 70
    /// The output cannot be written (EX_IOERR).
    case unwritable = 74
    /// The name is another user's, or reserved (EX_NOPERM).
    case notAuthorized = 77

    /// The exit status after a call of notify(3) with this status.
    package init(status: UInt32) {
        self =
            switch CInt(truncatingIfNeeded: status) {
            case NOTIFY_STATUS_OK: .done
            case NOTIFY_STATUS_SERVER_NOT_FOUND: .unavailable
            case NOTIFY_STATUS_NOT_AUTHORIZED: .notAuthorized
            default: .failed
            }
    }
}

/// A failed operation: the line of Darwin's tool, and the reason.
package struct Failure: Error {
    /// The name with which Darwin's line begins; `nil` if Darwin's tool has no such operation.
    package let name: String?
    /// The status of notify(3).
    package let status: UInt32
    /// The reason and the remedy, as a sentence for standard error.
    package let explanation: String

    /// Makes the failure of a function of notify(3) that has just returned `status`. `name` was its argument.
    ///
    /// - Parameter reason: The reason of `NOTIFY_STATUS_FAILED` without an error of the bus; `nil` for a limit of the
    ///   process.
    package init(_ attempted: String, _ name: String? = nil, status: UInt32, reason: String? = nil) {
        (self.name, self.status) = (name, status)
        let attempted = [attempted, name?.visible].compactMap(\.self).joined(separator: " ")
        let text = Self.text(status, StatusCause.take(of: status), reason)
        explanation = "could not \(attempted): \(text)"
    }

    /// Makes the failure of an operation for which Darwin's tool has no line. The error names the operation.
    package init(_ error: DBusError) { (name, status, explanation) = (nil, error.notifyStatus, "\(error)") }

    private static func text(_ status: UInt32, _ cause: DBusError?, _ reason: String?) -> String {
        switch CInt(truncatingIfNeeded: status) {
        case NOTIFY_STATUS_NOT_AUTHORIZED:
            return "the name belongs to another user, or is reserved; run this as its owner or "
                + "as root, or change /etc/notify.conf"
        case NOTIFY_STATUS_INVALID_SIGNAL: return "there is no such signal; kill -l lists all signals"
        case NOTIFY_STATUS_INVALID_NAME: return "this is not a valid name"
        case NOTIFY_STATUS_SERVER_NOT_FOUND where cause?.isOfMissingService ?? false:
            return "no notifyd runs on this bus, and the bus cannot start it; start it, or install its service file "
                + "(notifyd(8))"
        default: break
        }
        if let cause { return "\(cause)" }
        guard CInt(truncatingIfNeeded: status) == NOTIFY_STATUS_FAILED else {
            return "notify(3) returned status \(status); see its manual page"
        }
        return reason ?? "the process has no descriptors or memory left (ulimit -a), or cannot read the access rules "
            + "(/etc/notify.conf)"
    }
}

extension DBusError {
    /// The status of notify(3) with the same meaning.
    fileprivate var notifyStatus: UInt32 {
        let status: CInt =
            switch code {
            case .noBus, .disconnected, .closed, .timedOut: NOTIFY_STATUS_SERVER_NOT_FOUND
            case .refused where isOfMissingService: NOTIFY_STATUS_SERVER_NOT_FOUND
            case .refused where name == "org.freedesktop.DBus.Error.AccessDenied": NOTIFY_STATUS_NOT_AUTHORIZED
            default: NOTIFY_STATUS_FAILED
            }
        return UInt32(status)
    }

    /// Whether the called bus name has no owner, and the bus could not start a service for it.
    package var isOfMissingService: Bool {
        guard let name else { return false }
        return name == "org.freedesktop.DBus.Error.ServiceUnknown"
            || name == "org.freedesktop.DBus.Error.NameHasNoOwner"
            || name.hasPrefix("org.freedesktop.DBus.Error.Spawn.")
    }
}
