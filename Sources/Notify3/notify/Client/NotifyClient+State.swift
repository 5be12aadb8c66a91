import DBusTransport
import Glibc
import NotifyCenter
import NotifydProtocol
import Synchronization

extension NotifyClient {
    /// Sets the state of the token's name.
    func setState(_ token: CInt, _ value: UInt64) throws(NotifyStatus) {
        let name = try registration(token).name
        let state = StateReport(value: value, time: Self.now)
        guard NameScope(name.rawValue) != .process else { return withTable { $0.setState(state, of: name) } }
        guard !ProcessState.isDisabled else { throw .disabled }
        try authorize(.write, name)
        // Remembered before notifyd is asked, which may end right after it has said that it is done.
        let before = withTable { $0.exchangeState(state, of: name) }
        do throws(NotifyStatus) {
            _ = try call(.setState, [.string(name.rawValue), .uint64(state.value), .uint64(state.time)])
        } catch {
            withTable { $0.restoreState(before, of: name, from: state) }
            throw error
        }
        leaveIfUnregistered(name)
    }

    /// Reads the state of the token's name.
    func state(_ token: CInt) throws(NotifyStatus) -> UInt64 {
        let name = try registration(token).name
        guard NameScope(name.rawValue) != .process else { return withTable { $0.state(of: name) } }
        guard !ProcessState.isDisabled else { throw .disabled }
        let sent = postsSent.load(ordering: .acquiring)
        let answer = try call(.getState, [.string(name.rawValue)])
        sawPosts(until: sent)
        guard let value = answer.first?.unsignedValue else { throw .failed }
        return value
    }

    /// Has notifyd fire the token when the path changes.
    func monitor(_ token: CInt, _ path: String, _ flags: UInt32) throws(NotifyStatus) {
        let name = try registration(token).name
        guard NameScope(name.rawValue) != .process, path.utf8.first == UInt8(ascii: "/") else { throw .invalidRequest }
        guard !ProcessState.isDisabled else { throw .disabled }
        let monitor = MonitorReport(token: token, path: path, flags: flags)
        // Before notifyd is asked, so that the first change finds its registration.
        guard withTable({ $0.addMonitor(monitor) }) else { throw .invalidRequest }
        do throws(NotifyStatus) {
            let arguments: [DBusValue] = [.int32(token), .string(name.rawValue), .string(path), .uint32(flags)]
            link.answered(by: try call(.monitor, arguments).first?.stringValue)
            // Cancelled meanwhile, it has told notifyd too early.
            if withTable({ $0[token] == nil }) { link.unmonitor(token) }
            leaveIfUnregistered(name)
        } catch {
            withTable { $0.removeMonitor(of: token) }
            // Where no answer came, notifyd may have begun.
            link.unmonitor(token)
            throw error
        }
    }

    /// Asks notifyd, which the bus starts if it is not running.
    func call(_ method: NotifydProtocol.Method, _ arguments: [DBusValue] = []) throws(NotifyStatus) -> [DBusValue] {
        ProcessState.isOnBus()
        link.settle()
        return try NotifyStatus.onBus { () throws(DBusError) in
            let connection = try Self.connection()
            return try connection.callAndWait(try NotifydProtocol.call(method, arguments))
        }
    }

    /// Nanoseconds of the boot clock, by which all processes of the machine agree whose value is the newest.
    private static var now: UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
