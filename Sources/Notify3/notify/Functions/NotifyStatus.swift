import Basics
import CNotify
package import DBus
import NotifyCenter
import Synchronization

/// The status that a function returns, as an error within the library.
struct NotifyStatus: Error, Equatable {
    let code: UInt32

    private init(_ code: CInt) { self.code = UInt32(code) }

    static let invalidName = NotifyStatus(NOTIFY_STATUS_INVALID_NAME)
    static let invalidToken = NotifyStatus(NOTIFY_STATUS_INVALID_TOKEN)
    static let invalidPort = NotifyStatus(NOTIFY_STATUS_INVALID_PORT)
    static let invalidFile = NotifyStatus(NOTIFY_STATUS_INVALID_FILE)
    static let invalidSignal = NotifyStatus(NOTIFY_STATUS_INVALID_SIGNAL)
    static let invalidRequest = NotifyStatus(NOTIFY_STATUS_INVALID_REQUEST)
    static let notAuthorized = NotifyStatus(NOTIFY_STATUS_NOT_AUTHORIZED)
    static let disabled = NotifyStatus(NOTIFY_STATUS_OPT_DISABLE)
    static let serverNotFound = NotifyStatus(NOTIFY_STATUS_SERVER_NOT_FOUND)
    static let nullInput = NotifyStatus(NOTIFY_STATUS_NULL_INPUT)
    static let failed = NotifyStatus(NOTIFY_STATUS_FAILED)

    /// The status for an error of the bus, or for a refusal by notifyd.
    init(_ error: DBusError) {
        switch error.code {
        case .noBus, .disconnected, .closed, .timedOut: self = .serverNotFound
        case .refused:
            switch NotifydProtocol.refusal(error) {
            case .notAuthorized: self = .notAuthorized
            case .noSuchProcess, .invalidRequest: self = .invalidRequest
            case .limitsExceeded: self = .failed
            case nil: self = NotifydProtocol.isAbsent(error) ? .serverNotFound : .failed
            }
        default: self = .failed
        }
        StatusCause.note(error, behind: code)
    }

    /// Returns the status of an operation.
    static func of(_ body: () throws(NotifyStatus) -> Void) -> UInt32 {
        do throws(NotifyStatus) {
            try body()
            return UInt32(NOTIFY_STATUS_OK)
        } catch {
            return error.code
        }
    }
}

/// The bus's error behind a status, for the commands of this package: the status does not contain the remedy.
package enum StatusCause {
    private static let isKept = Atomic<Bool>(false)
    private static let last = Locked<(error: DBusError, status: UInt32)?>(nil)

    /// Keeps the errors from now on. Only for programs that do not fork: a child could wait for the lock forever.
    package static func keep() { isKept.store(true, ordering: .relaxed) }

    fileprivate static func note(_ error: DBusError, behind status: UInt32) {
        if isKept.load(ordering: .relaxed) { last.withLock { $0 = (error, status) } }
    }

    /// Returns the error behind a status that a function has just returned, once; `nil` if the bus did not cause it.
    package static func take(of status: UInt32) -> DBusError? {
        guard let last = last.withLock({ $0.take() }), last.status == status else { return nil }
        return last.error
    }
}

extension NotifyStatus {
    static func onBus<Value>(_ body: () throws(DBusError) -> Value) throws(NotifyStatus) -> Value {
        do throws(DBusError) { return try body() } catch { throw NotifyStatus(error) }
    }
}
