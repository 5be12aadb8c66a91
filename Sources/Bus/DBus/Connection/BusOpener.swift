import Basics
import CDBus
import CLinux
import Glibc
import Synchronization

/// Opens the connections of one ``ConnectionCore``, each on a separate thread: `connect` blocks while the backlog of a
/// stopped bus is full, and libdbus sets no timeout. A caller gives up at its deadline, and the thread discards its
/// late connection. The next caller waits for that thread, so that abandoned attempts do not accumulate.
final class BusOpener: Sendable {
    /// The last abandoned attempt, if it may still be in progress.
    private let leftBehind = PosixLocked<BusOpening?>(nil)

    /// Opens a connection that the bus has not admitted yet.
    ///
    /// - Throws: ``DBusError/Code/noBus``; ``DBusError/Code/noResources`` if the system grants no descriptor.
    func open(
        _ address: String,
        by deadline: ContinuousClock.Instant,
        meanwhile other: BusSocket.OtherWork?,
        _ attempted: String
    ) throws(DBusError) -> OpaquePointer {
        // The program that such an address starts would inherit the signal mask of another thread. It has no backlog.
        if BusAddress.startsProgram(address) { return try BusOpening.open(address, attempted) }
        if let earlier = leftBehind.withLock({ $0 }) {
            _ = try earlier.wait(by: deadline, other, attempted)
            leftBehind.withLock { if $0 === earlier { $0 = nil } }
        }
        let opening = try BusOpening(attempted)
        guard QuietThread.start("dbus-open", { opening.run(address, attempted) }) != nil else {
            return try BusOpening.open(address, attempted)
        }
        do throws(DBusError) {
            guard let opened = try opening.wait(by: deadline, other, attempted) else { throw .disconnected(attempted) }
            return try opened.get()
        } catch {
            if !opening.hasEnded { leftBehind.withLock { $0 = opening } }
            throw error
        }
    }

    var hasLeftBehind: Bool { leftBehind.withLock { $0.map { !$0.hasEnded } ?? false } }
}

private final class BusOpening: Sendable {
    private struct State {
        var hasEnded = false
        /// Whether the waiter has given up.
        var isAbandoned = false
        /// The result until it is taken.
        var result: Result<Connection, DBusError>?
    }

    /// A libdbus connection with one owner at a time.
    private struct Connection: @unchecked Sendable {
        // Unchecked: the lock of the state passes it from the opening thread to the waiter.
        let pointer: OpaquePointer
    }

    private let state = PosixLocked(State())
    /// Readable once the attempt has ended.
    private let ended: EventDescriptor

    init(_ attempted: String) throws(DBusError) {
        do { ended = try EventDescriptor(attempted) } catch { throw DBusError(error) }
    }

    static func open(_ address: String, _ attempted: String) throws(DBusError) -> OpaquePointer {
        var error = CDBus.DBusError()
        dbus_error_init(&error)
        defer { dbus_error_free(&error) }
        let address = BusAddress.connectable(address)
        let open = {
            CLinux_holdOffFork(CLINUX_CONNECT)
            defer { CLinux_allowFork(CLINUX_CONNECT) }
            return StandardDescriptors.leavingFree { dbus_connection_open_private(address, &error) }
        }
        // libdbus does not reap the program that it starts for `unixexec:`.
        let connection = BusAddress.startsProgram(address) ? ProgramStart.collectingChildren(of: open) : open()
        guard let connection else {
            throw .notOpened(text(error.message) ?? "unknown error", name: text(error.name), attempted)
        }
        return connection
    }

    func run(_ address: String, _ attempted: String) {
        let result = Result { () throws(DBusError) in Connection(pointer: try Self.open(address, attempted)) }
        let isWanted = state.withLock { state in
            state.hasEnded = true
            if !state.isAbandoned { state.result = result }
            return !state.isAbandoned
        }
        if !isWanted, case .success(let connection) = result { BusSocket.discard(connection.pointer) }
        ended.signal()
    }

    var hasEnded: Bool { state.withLock { $0.hasEnded } }

    /// Waits for the end of the attempt, and discards the result if it throws: ``DBusError/Code/noBus`` at the
    /// deadline, ``DBusError/Code/closed`` if the connection is not needed any more.
    ///
    /// - Returns: `nil` for a caller that waits for an abandoned attempt.
    func wait(
        by deadline: ContinuousClock.Instant,
        _ other: BusSocket.OtherWork?,
        _ attempted: String
    ) throws(DBusError) -> Result<OpaquePointer, DBusError>? {
        var isWanted = true
        while true {
            let isLate = !isWanted || ContinuousClock.now >= deadline
            let before = state.withLock { state in
                defer { state.result = nil }
                if isLate { state.isAbandoned = true }
                return state
            }
            switch before.result {
            case .success(let connection):
                if isWanted { return .success(connection.pointer) }
                BusSocket.discard(connection.pointer)
                throw .closed(attempted)
            case .failure(let error): return .failure(error)
            case nil: if before.hasEnded { return nil }
            }
            if isLate { throw isWanted ? .stoppedBus("taken this connection", attempted) : .closed(attempted) }
            isWanted = other.whileWaiting(for: CShort(POLLIN), of: ended.descriptor, until: deadline) != nil
        }
    }
}

extension DBusError {
    /// libdbus could not open a connection. It has the same names for exhausted resources and for the limits of a bus.
    static func notOpened(_ message: String, name: String?, _ attempted: String) -> DBusError {
        switch name {
        case "org.freedesktop.DBus.Error.LimitsExceeded", "org.freedesktop.DBus.Error.NoMemory":
            let remedy = "raise the limits of open files and of memory (ulimit -n, ulimit -v)"
            return DBusError(.noResources, name: name, message: message, attempted: attempted, remedy: remedy)
        default: return .noBus(message, name: name, attempted)
        }
    }

    static func noBus(_ message: String, name: String? = nil, _ attempted: String) -> DBusError {
        let remedy =
            name == "org.freedesktop.DBus.Error.LimitsExceeded"
            ? "end other programs of this user, or raise the bus's limit (max_connections_per_user)"
            : "check that the bus runs and that this user may connect to it"
        return DBusError(.noBus, name: name, message: message, attempted: attempted, remedy: remedy)
    }

    /// The bus ended the connection before its first use.
    static func notAdmitted(_ message: String, _ attempted: String) -> DBusError {
        guard isMappedUser else { return .noBus(message, attempted) }
        let message = "\(message); this process is in a user namespace, and outside of it its user is not \(geteuid())"
        let remedy = "map the user to itself, as unshare --map-current-user and podman run --userns=keep-id do"
        return DBusError(.noBus, message: message, attempted: attempted, remedy: remedy)
    }

    /// Whether this process's user has a different number outside its user namespace. The process authenticates to the
    /// bus with the inner number, but the kernel reports the outer number to the bus.
    private static var isMappedUser: Bool {
        guard let map = ProcFile.lines("/proc/self/uid_map") else { return false }
        let user = Int64(geteuid())
        let range = map.first { $0.count == 3 && user >= $0[0] && user - $0[0] < $0[2] }
        return range.map { $0[0] != $0[1] } ?? true
    }

    /// - Parameter what: a past participle: the step that the bus did not complete.
    static func stoppedBus(_ what: String, _ attempted: String) -> DBusError {
        let remedy = "find out why the bus daemon is stopped, or refuses this user"
        return DBusError(.noBus, message: "the bus has not \(what) in time", attempted: attempted, remedy: remedy)
    }
}

/// The parts of a D-Bus address that matter here.
enum BusAddress {
    /// Whether libdbus starts a program to connect to the address.
    static func startsProgram(_ address: String) -> Bool { strstr(address, "unixexec:") != nil }

    private static let autolaunch = "autolaunch:"

    /// The address that libdbus gets: without `autolaunch:`, which would start another bus, and without `guid=`, the
    /// identifier of one run of a bus: with it, a connection would not come back after a restart. It proves nothing,
    /// because the bus itself states it.
    static func connectable(_ address: String) -> String {
        // In bytes and loops, because the types of a search cost a short program a fifth of its instructions.
        var kept: [UInt8] = []
        for entry in address.utf8.split(separator: UInt8(ascii: ";")) where !entry.starts(with: autolaunch.utf8) {
            if !kept.isEmpty { kept.append(UInt8(ascii: ";")) }
            guard let colon = entry.firstIndex(of: UInt8(ascii: ":")) else {
                kept += entry
                continue
            }
            kept += entry[...colon]
            let begin = kept.count
            for pair in entry[entry.index(after: colon)...].split(separator: UInt8(ascii: ","))
            where !pair.starts(with: "guid=".utf8) {
                if kept.count > begin { kept.append(UInt8(ascii: ",")) }
                kept += pair
            }
        }
        return String(decoding: kept, as: UTF8.self)
    }

    /// Checks that this process may use the address: it has only characters of an address, more than `autolaunch:`, and
    /// starts no program that would get more rights than the user has.
    ///
    /// - Throws: ``DBusError/Code/invalidArgument``.
    static func check(_ address: String, _ attempted: String) throws(DBusError) {
        func refused(_ message: String, _ remedy: String) -> DBusError {
            DBusError(.invalidArgument, message: message, attempted: attempted, remedy: remedy)
        }
        // Beyond ASCII, a mark after a colon would hide the colon from the checks here, and not from libdbus.
        guard address.utf8.allSatisfy({ (1..<0x80).contains($0) }) else {
            throw refused(
                "the address holds U+0000 or characters beyond ASCII",
                "write the bytes of such characters as %xx"
            )
        }
        guard !connectable(address).isEmpty else {
            throw refused(
                "the address names no running bus, and this library starts none",
                "run the program under dbus-run-session, or name the bus's socket (unix:path=/run/my/bus)"
            )
        }
        guard ProcessEnvironment.isIgnored, startsProgram(address) else { return }
        throw refused(
            "a process with more rights than its user starts no program to reach a bus",
            "name the bus's socket, for instance unix:path=/run/my/bus"
        )
    }
}
