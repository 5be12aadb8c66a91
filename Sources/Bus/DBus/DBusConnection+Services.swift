import Glibc
import Synchronization

/// The options of a request for a bus name.
public struct BusNameOptions: OptionSet, Sendable {
    /// The bits, as the D-Bus specification numbers them.
    public let rawValue: UInt32

    /// Creates the options with these bits of the D-Bus specification.
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
    /// - Throws: ``DBusError/Code/nameTaken`` with `.doNotQueue` if another connection owns it;
    ///   ``DBusError/Code/refused`` if the bus's policy forbids it, or `name` is not a bus name; otherwise as
    ///   ``call(_:timeout:)``. A cancelled task keeps waiting.
    public func requestName(_ name: String, options: BusNameOptions = [.doNotQueue]) async throws(DBusError) {
        let core = core
        try await core.connectAside("own the bus name \(name)")
        let error = await withCheckedContinuation { continuation in
            let request = core.state.withLock { $0.names.request(name, options) }
            core.send(request) { continuation.resume(returning: $0) }
        }
        if let error { throw error }
    }

    /// Releases a bus name.
    ///
    /// - Throws: as ``call(_:timeout:)``; the name is released even then.
    public func releaseName(_ name: String) async throws(DBusError) {
        try core.checkProcess("give the bus name \(name) back")
        core.state.withLock { $0.names.release(name) }
        _ = try await callBus("ReleaseName", [.string(name)])
    }

    /// Returns the unique name of a bus name's owner; `nil` if it has none.
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

    /// The identifier of the bus's address; `nil` if there is no bus.
    ///
    /// Each run of a bus makes a new identifier, which distinguishes connections with the same name on two buses. A bus
    /// has one identifier for each address that it listens on.
    public var busIdentifier: String? { core.connectedSocket?.busIdentifier }

    /// Calls a method of the bus itself.
    ///
    /// - Throws: as ``call(_:timeout:)``.
    public func callBus(_ member: StaticString, _ arguments: [DBusValue] = []) async throws(DBusError) -> [DBusValue] {
        try await call(try .busCall(member, arguments))
    }

    // MARK: Objects

    /// Serves an object until the returned token is cancelled or released, across restarts of the bus.
    ///
    /// Each call runs in a separate task, unless its method is handled in order. A call is refused before its body is
    /// read if it names no method of the object, has another signature, or exceeds a limit of its method or the object.
    ///
    /// - Parameters:
    ///   - limits: the limits on the calls that the object serves at once.
    ///   - admit: decides on each call within the limits, for instance to apply limits by user; `nil` takes all.
    /// - Throws: ``DBusError/Code/invalidArgument`` if this connection already serves an object at `path`, or `path` is
    ///   not an object path or over 4096 bytes; ``DBusError/Code/noResources``.
    public func export(
        _ interfaces: [DBusInterface],
        at path: String,
        limits: CallLimits = CallLimits(),
        admit: CallAdmission.Decision? = nil
    ) throws(DBusError) -> Observation {
        try core.checkProcess("serve \(path)")
        // Never sent: making it checks the path.
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

    /// Lets `scheduler` decide on all calls to this connection. Holds it weakly.
    public func schedule(by scheduler: any CallScheduler) {
        guard !core.isForeign else { return }
        core.state.withLock { $0.scheduler = scheduler }
    }

    // MARK: Peers

    /// The identity of the process behind a connection. The bus vouches for it.
    public struct PeerCredentials: Sendable, Hashable {
        /// The effective user.
        public let userID: UInt32
        /// The effective group and the supplementary groups, in no order.
        ///
        /// If the bus does not report them, these are the user's groups in the machine's user database. They are then
        /// looked up at each access, perhaps over a network.
        public var groupIDs: [UInt32] { toldGroups.isEmpty ? UserGroups.of(userID) : toldGroups }
        private let toldGroups: [UInt32]
        /// The process ID; `nil` if the bus does not report it.
        public let processID: UInt32?
        /// The label from the security module that confines the process, as the kernel reported it to the bus; `nil` if
        /// there is none.
        public let securityLabel: String?
        /// The program's file; `nil` if this process may not see it. A hint and no proof: a process may pass its
        /// connection on to a child, and run another program itself.
        public internal(set) var executable: String?
        /// A descriptor of the process (pidfd), which unlike a process ID never means another process. `nil` if the bus
        /// gives none (dbus-daemon before 1.15.8, dbus-broker before 35).
        public let process: DBusDescriptor?

        /// Whether everything read through `processID` so far concerns the peer: the process has not ended, so its ID
        /// cannot have been reused. `nil` if only a second request to the bus can tell.
        public var isRunning: Bool? {
            guard let process else { return nil }
            // Readable once the process has ended.
            var watched = pollfd(fd: process.number, events: Int16(POLLIN), revents: 0)
            return poll(&watched, 1, 0) == 0
        }
    }

    /// Asks the bus for the identity of the process behind `name`.
    ///
    /// A process ID may be reused after its process ends. The executable therefore counts only if the process still
    /// runs after the lookup, according to its descriptor. A bus without descriptors is asked a second time: while the
    /// connection exists, so does its process, unless it passed the connection on to a child.
    ///
    /// - Throws: as ``call(_:timeout:)``; ``DBusError/Code/refused`` if the peer is gone.
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

    /// Asks once, for uses in which a wrong program does no harm: the process may have ended, and its ID been reused.
    ///
    /// - Throws: as ``credentials(of:)``.
    public func firstCredentials(of name: String) async throws(DBusError) -> PeerCredentials {
        var credentials = try await rawCredentials(of: name)
        credentials.executable = credentials.processID.flatMap(executable)
        return credentials
    }

    /// Asks once, without the program. `answered` is called on the reading thread, in the bus's order with other
    /// messages. If the call cannot be sent, it is called at once on this thread.
    public func askCredentials(
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
    /// Decodes the bus's response to `GetConnectionCredentials`. Ignores other fields: newer buses send more of them.
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

/// The groups that the user database lists for a user.
///
/// Not the groups of the user's process in `/proc`: a connection that was passed on to a child would get the groups of
/// whatever program its first process runs by then.
enum UserGroups {
    /// Empty for an unknown user.
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
            // On failure, `count` is the number of groups.
            guard count > room else { return [entry.pw_gid] }
        }
    }
}
