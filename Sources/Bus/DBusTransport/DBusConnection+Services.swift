import Glibc
import Synchronization

/// How a bus name is asked for.
public struct BusNameOptions: OptionSet, Sendable {
    /// The bits, as the D-Bus specification numbers them.
    public let rawValue: UInt32

    /// The options with these bits of the D-Bus specification.
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Another connection may take the name over.
    public static let allowReplacement = BusNameOptions(rawValue: 1)
    /// Takes the name over from an owner that allows it.
    public static let replaceExisting = BusNameOptions(rawValue: 2)
    /// Fails at once instead of waiting in the queue for the name. Without it, the request succeeds by queueing.
    public static let doNotQueue = BusNameOptions(rawValue: 4)
}

extension DBusConnection {
    // MARK: Names

    /// Owns a bus name until ``releaseName(_:)``, across restarts of the bus.
    ///
    /// - Throws: ``DBusError/Code/nameTaken`` with `.doNotQueue` where another owns it; ``DBusError/Code/refused`` where the
    ///   bus's policy forbids it, or `name` is not a bus name; otherwise as ``call(_:timeout:)``, but a task that is cancelled waits all the same.
    public func requestName(_ name: String, options: BusNameOptions = [.doNotQueue]) async throws(DBusError) {
        let core = core
        try await core.connectAside("own the bus name \(name)")
        let error = await withCheckedContinuation { continuation in
            let request = core.state.withLock { $0.names.request(name, options) }
            core.send(request) { continuation.resume(returning: $0) }
        }
        if let error { throw error }
    }

    /// Gives a bus name back.
    ///
    /// - Throws: as ``call(_:timeout:)``; the name is given up all the same.
    public func releaseName(_ name: String) async throws(DBusError) {
        try core.checkProcess("give the bus name \(name) back")
        core.state.withLock { $0.names.release(name) }
        _ = try await callBus("ReleaseName", [.string(name)])
    }

    /// The unique name of a bus name's owner; `nil` where nobody owns it.
    ///
    /// - Throws: as ``call(_:timeout:)``.
    public func owner(of name: String) async throws(DBusError) -> String? {
        do throws(DBusError) {
            return try await callBus("GetNameOwner", [.string(name)]).first?.stringValue
        } catch {
            guard error.name == "org.freedesktop.DBus.Error.NameHasNoOwner" else { throw error }
            return nil
        }
    }

    /// The identifier of the bus's address, which each run of a bus makes anew, so that it tells apart connections of two buses that have one
    /// name; `nil` where there is no bus. A bus has one for each address that it listens on.
    package var busIdentifier: String? { core.connectedSocket?.busIdentifier }

    /// Calls a method of the bus itself.
    ///
    /// - Throws: as ``call(_:timeout:)``.
    package func callBus(_ member: StaticString, _ arguments: [DBusValue] = []) async throws(DBusError) -> [DBusValue] {
        try await call(try .busCall(member, arguments))
    }

    // MARK: Objects

    /// Serves an object until the token ends, across restarts of the bus. Calls run in tasks of their own, unless their
    /// method wants them in order. A call that names no method of the object, has another signature, is larger than its method takes, or
    /// goes over a limit is refused before its body is read.
    ///
    /// - Parameters:
    ///   - limits: how much work callers may have the object do at once.
    ///   - admit: decides on each call that keeps the limits; `nil` takes all. For limits of the service's own, for instance by user.
    /// - Throws: ``DBusError/Code/invalidArgument`` where this connection serves one at `path` already, or `path` is not an object path
    ///   or over 4096 bytes; ``DBusError/Code/noResources``.
    public func export(
        _ interfaces: [DBusInterface],
        at path: String,
        limits: CallLimits = CallLimits(),
        admit: CallAdmission.Decision? = nil
    ) throws(DBusError) -> Observation {
        try core.checkProcess("serve \(path)")
        // A signal that is never sent, for its check of the path.
        _ = try DBusMessage.signal(path: path, interface: "org.freedesktop.DBus", member: "Check")
        guard path.utf8.count <= ObjectTable.longestPath else {
            throw DBusError(.invalidArgument, message: "the path is too long", attempted: "serve \(path.prefix(80))…")
        }
        try core.startReading()
        let object = ServedObject(interfaces, limits, admit)
        guard core.state.withLock({ $0.objects.insert(object, at: path) }) else {
            throw DBusError(.invalidArgument, message: "it is taken by another object", attempted: "serve \(path)")
        }
        let core = core
        return Observation { [weak core] in core?.discard { $0.objects.remove(path) } }
    }

    /// Has `scheduler` decide on all calls to this connection, for as long as somebody else keeps it.
    package func schedule(by scheduler: any CallScheduler) {
        guard !core.isForeign else { return }
        core.state.withLock { $0.scheduler = scheduler }
    }

    // MARK: Peers

    /// Who is behind a connection, by the bus's word and not its own.
    public struct PeerCredentials: Sendable, Hashable {
        /// The effective user.
        public let userID: UInt32
        /// The effective group and the supplementary ones, in no order. If the bus does not tell them: the groups in which the
        /// machine lists the user, which are looked up each time, perhaps by way of a network.
        public var groupIDs: [UInt32] { toldGroups.isEmpty ? UserGroups.of(userID) : toldGroups }
        private let toldGroups: [UInt32]
        /// The process; `nil` where the bus cannot tell.
        public let processID: UInt32?
        /// The label of the security module that confines the process, as the kernel gave it to the bus; `nil` where there is none.
        public let securityLabel: String?
        /// The program's file; `nil` where this process may not see it. A hint, and no proof: a process may hand its connection on
        /// to a child, and run another program itself.
        public internal(set) var executable: String?
        /// The process by a descriptor of the kernel's (pidfd), which never means another process, as a number may; `nil` where the bus
        /// gives none (dbus-daemon before 1.15.8, dbus-broker before 35).
        package let process: DBusDescriptor?

        /// Whether what was read of `processID` up to now is the peer's: its process has not ended, so that its number cannot have passed
        /// to another. `nil` where only a second question to the bus can tell.
        package var isRunning: Bool? {
            guard let process else { return nil }
            // Readable once the process has ended.
            var watched = pollfd(fd: process.number, events: Int16(POLLIN), revents: 0)
            return poll(&watched, 1, 0) == 0
        }
    }

    /// Asks the bus who is behind `name`.
    ///
    /// A process id may pass to another process when its owner ends. The executable therefore counts if the process has not ended
    /// afterwards, by its descriptor. A bus that gives none is asked a second time: a connection that is still there has, as a rule, its
    /// process still, unless that has handed the connection on to a child.
    ///
    /// - Throws: as ``call(_:timeout:)``; ``DBusError/Code/refused`` when the peer is gone.
    public func credentials(of name: String) async throws(DBusError) -> PeerCredentials {
        var credentials = try await rawCredentials(of: name)
        guard let processID = credentials.processID else { return credentials }
        let executable = executable(of: processID)
        let isTheirs: Bool
        if let isRunning = credentials.isRunning {
            isTheirs = isRunning
        } else {
            isTheirs = try await rawCredentials(of: name) == credentials
        }
        credentials.executable = isTheirs ? executable : nil
        return credentials
    }

    /// Asks once, where a wrong program does no harm: the process may have ended, and its id be another's.
    ///
    /// - Throws: as ``credentials(of:)``.
    package func firstCredentials(of name: String) async throws(DBusError) -> PeerCredentials {
        var credentials = try await rawCredentials(of: name)
        credentials.executable = credentials.processID.flatMap(executable)
        return credentials
    }

    /// Asks once, without the program; `answered` hears on the reading thread, in the bus's order with what else arrives. Where the
    /// call cannot be sent, it hears so at once, on this thread.
    package func askCredentials(
        of name: String,
        answered: @escaping @Sendable (Result<PeerCredentials, DBusError>) -> Void
    ) {
        do throws(DBusError) {
            call(try .busCall("GetConnectionCredentials", [.string(name)])) { answer in
                answered(
                    Result { () throws(DBusError) in try PeerCredentials(of: name, answer: try answer.get()) }
                )
            }
        } catch {
            answered(.failure(error))
        }
    }

    private func rawCredentials(of name: String) async throws(DBusError) -> PeerCredentials {
        try PeerCredentials(of: name, answer: try await callBus("GetConnectionCredentials", [.string(name)]))
    }

    private func executable(of processID: UInt32) -> String? {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Int(PATH_MAX)) { buffer in
            let length = buffer.withMemoryRebound(to: CChar.self) { path in
                path.baseAddress.map { readlink("/proc/\(processID)/exe", $0, path.count) } ?? 0
            }
            return length > 0 ? String(decoding: buffer[..<length], as: UTF8.self) : nil
        }
    }
}

extension DBusConnection.PeerCredentials {
    /// Reads the bus's answer to `GetConnectionCredentials`. What it has besides is passed over: each version of the buses says more.
    init(of name: String, answer: [DBusValue]) throws(DBusError) {
        guard let fields = answer.first?.fieldsValue,
            let user = fields["UnixUserID"]?.unsignedValue.flatMap(UInt32.init(exactly:))
        else {
            throw DBusError(.malformed, message: "the bus does not say whose it is", attempted: "identify \(name)")
        }
        var groups: [UInt32] = []
        if case .array(let elements, "u") = fields["UnixGroupIDs"] {
            groups = elements.compactMap { $0.unsignedValue.flatMap(UInt32.init(exactly:)) }
        }
        userID = user
        toldGroups = groups
        processID = fields["ProcessID"]?.unsignedValue.flatMap(UInt32.init(exactly:))
        securityLabel = fields["LinuxSecurityLabel"]?.bytesValue.map {
            String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
        }
        if case .descriptor(let descriptor) = fields["ProcessFD"] { process = descriptor } else { process = nil }
    }
}

/// The groups that the machine has a user in. Not those of the user's process, which `/proc` tells: a connection that is handed on to
/// a child would speak with the groups of whatever program its first process runs by then.
enum UserGroups {
    /// Empty for a user that the machine does not know.
    static func of(_ user: UInt32) -> [UInt32] {
        var (entry, found) = (passwd(), UnsafeMutablePointer<passwd>?.none)
        var buffer = [CChar](repeating: 0, count: 16_384)
        guard getpwuid_r(user, &entry, &buffer, buffer.count, &found) == 0, found != nil else { return [] }
        var count: CInt = 256
        while true {
            var groups = [gid_t](repeating: 0, count: Int(count))
            let room = count
            if getgrouplist(entry.pw_name, entry.pw_gid, &groups, &count) >= 0 {
                return Array(groups.prefix(Int(count)))
            }
            // It says how many there are.
            guard count > room else { return [entry.pw_gid] }
        }
    }
}
