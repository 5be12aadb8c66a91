import Basics
import DBus
import DBusService
import Glibc
import NotifyCenter
import Synchronization

/// notifyd on a bus. Passes events of the bus and of the file system to the pure state, and carries out the resulting
/// actions.
///
/// An actor on the connection's reading thread, so that it handles calls and signals in the bus's order. Lives as long
/// as its process.
actor DaemonService {
    nonisolated let connection: DBusConnection
    private nonisolated let executor: ReadingThread
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// The file that the command line names; `nil` for the machine's file.
    private let configurationFile: String?
    var configurationInForce: NotifyConfiguration
    let center: BusCenter
    var state: DaemonState
    var figures = Figures()
    var arrivals = Arrivals<IncomingWork>()
    var relays = RelayTable<MatchRuleLease, RelayedPost>()
    /// Whether ``endPauses()`` runs within a second.
    var willEndPauses = false
    var posts = WaitingPosts<RelayedPost>()
    var rounds = Rounds<ListWaiter>()
    nonisolated let unread: UnreadAnswerGuard
    /// The watched paths of the configuration. A number is never reused.
    var configuredMonitors: [UInt64: NotifyConfiguration.Monitor] = [:]
    var lastMonitor: UInt64 = 0
    /// `nil` until the first path is watched.
    var paths: PathWatcher?
    private var tokens: [Observation] = []
    private var lease: MatchRuleLease?

    /// Starts the service. On return it owns its bus name, takes calls, and waits for the reports of the processes that
    /// had registrations before.
    ///
    /// - Parameter ended: Called when the bus is lost. The next process that needs notifyd starts another one.
    /// - Throws: ``DBusError``, for instance `nameTaken` if another notifyd serves this bus; ``ConfigurationFileError``
    ///   if the configuration's file cannot be used.
    static func start(
        on bus: Bus,
        _ configurationFile: String?,
        ended: @escaping @Sendable () -> Void
    ) async throws -> DaemonService {
        let configuration = try load(configurationFile)
        let service = DaemonService(try DBusConnection.open(bus), configurationFile, configuration)
        try await service.begin(ended)
        return service
    }

    private init(_ connection: DBusConnection, _ configurationFile: String?, _ configuration: NotifyConfiguration) {
        self.connection = connection
        unread = UnreadAnswerGuard(connection)
        executor = ReadingThread(connection)
        self.configurationFile = configurationFile
        center = DarwinNotifyCenter(connection: connection).center
        state = DaemonState(process: UInt32(getpid()), user: geteuid(), configuration: configuration)
        configurationInForce = configuration
    }

    private nonisolated func begin(_ ended: @escaping @Sendable () -> Void) async throws {
        let lost = try connection.onEvent { event in
            if case .lost = event { ended() }
        }
        let posts = connection.onSignal { message in
            self.assumeIsolated { $0.relay(message) }
        }
        let signals = connection.onSignal { message in
            guard let (name, owner) = message.ownerChange(), name.hasPrefix(":"), owner.isEmpty else { return }
            self.assumeIsolated { $0.gone(name) }
        }
        // An empty new owner: matches only connections that end.
        let lease = try await connection.addMatch(
            MatchRule(
                signalFrom: "org.freedesktop.DBus",
                interface: "org.freedesktop.DBus",
                member: "NameOwnerChanged",
                argument2: ""
            )
        )
        let object = try connection.export(
            [DaemonInterface.interface(self)],
            at: NotifydProtocol.path,
            limits: Limits.calls
        )
        connection.schedule(by: self)
        await keep([lost, posts, signals, object], lease)
        await watchConfigured()
        try await connection.requestName(NotifydProtocol.busName)
        await gather()
    }

    private func keep(_ tokens: [Observation], _ lease: MatchRuleLease) { (self.tokens, self.lease) = (tokens, lease) }

    /// Waits for the reports of all processes that had registrations before. The bus has told them of this notifyd.
    private func gather() {
        do throws(DBusError) {
            let queue = try NotifydProtocol.busCall("ListQueuedOwners", [.string(NotifydProtocol.clientsBusName)])
            connection.call(queue) { answer in
                // An error means that the queue is empty.
                let queued = (try? answer.get())?.first?.stringsValue ?? []
                self.assumeIsolated { $0.arrivals.awaiting(Set(queued)) }
            }
        } catch {
            Diagnostics.write("\(error)")
        }
        after(Self.patience) { $0.arrivals.gathered() }
    }

    /// Runs `body` on the reading thread after a delay.
    func after(_ time: Duration, _ body: @escaping @Sendable (isolated DaemonService) -> Void) {
        // Not higher: a thread whose priority is above the others needs privileges.
        Task(priority: .medium) {
            // This task is never cancelled, so the sleep ends in time.
            try? await Task.sleep(for: time)
            body(self)
        }
    }

    /// Reads the configuration again. Existing registrations stay, even if the new configuration forbids them. If the
    /// file cannot be used, the previous configuration stays in force.
    func reload() {
        do throws(ConfigurationFileError) {
            configurationInForce = try Self.load(configurationFile)
        } catch {
            return Diagnostics.write("\(error)")
        }
        state.configure(configurationInForce)
        // Even if the configuration is the same: notifyd may have gained access to a directory.
        watchConfigured()
    }

    /// Reads a configuration, and reports its errors. If the machine's file is missing, the configuration is empty.
    ///
    /// - Throws: If the file cannot be used. It must not be ignored then, because it may reserve any name.
    private static func load(_ file: String?) throws(ConfigurationFileError) -> NotifyConfiguration {
        do throws(ConfigurationFileError) {
            let path = file ?? ConfigurationFile.ofMachine
            let (configuration, errors) = ConfigurationParser.parse(try ConfigurationFile.read(path))
            for error in errors { Diagnostics.write("\(path), \(error)") }
            return configuration
        } catch {
            guard error.reason == .missing, file == nil else { throw error }
            return NotifyConfiguration()
        }
    }

    func perform(_ actions: [DaemonState.Action]) {
        for action in actions {
            switch action {
            case .suspend(let connection, let times):
                // `Limits.suspensions` bounds the number.
                for _ in 0..<times { send(.suspend, to: connection) }
            case .resume(let connection): send(.resume, to: connection)
            case .keep(let connection, let names):
                // A connection that does not read would not report the states either.
                if reads(connection) { send(.keep, [names.keptStates], to: connection) }
            }
        }
    }

    func send(_ signal: NotifydProtocol.Signal, _ arguments: [DBusValue] = [], to connection: String) {
        do throws(DBusError) {
            let message = try NotifydProtocol.signal(signal, arguments, to: connection)
            try self.connection.send(message)
            sent(message.size, to: connection)
        } catch {
            Diagnostics.write("\(error)")
        }
    }
}

/// Runs an actor on a connection's reading thread. Calls and signals reach the actor at once and in the bus's order,
/// and the actor needs no lock.
final class ReadingThread: SerialExecutor {
    private let connection: DBusConnection

    init(_ connection: DBusConnection) { self.connection = connection }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        connection.perform { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func checkIsolated() {
        // Only a mistake in this code can bring another thread here; a message cannot.
        precondition(connection.isOnReadingThread)
    }
}

extension DaemonService {
    /// Queues a call. Its turn comes after all arrivals are sorted.
    func receive(_ work: IncomingWork) {
        figures.calls[work.method, default: 0] += 1
        let (bytes, user) = (work.reply.callBytes, user(of: work.sender))
        arrivals.called(work, work.method.kind, bytes: bytes, by: work.sender, user: user)
    }

    func gone(_ connection: String) {
        arrivals.departed(connection)
        // Lists stop waiting for it now, not only at the turn of its departure.
        rounds.gone(connection)
        proceedRounds()
    }

    /// Carries out steps and sends relayed posts for a moment. Returns the time of the next turn; `nil` if nothing
    /// waits.
    func proceed() -> ContinuousClock.Instant? {
        var now = work { now in
            let step = arrivals.next(now: now, user: { user(of: $0) }, limits: { state.limits(ofUser: $0) })
            guard let step else { return false }
            carryOut(step)
            return true
        }
        now = work(since: now) { now in
            guard let (post, receiver) = posts.next(now: now, pace: { state.limits(ofUser: $0).pace }) else {
                return false
            }
            send(post, to: receiver)
            return true
        }
        let times = [
            arrivals.timeOfNext(now: now), posts.timeOfNext(now: now),
            unread.askBus { Diagnostics.write("\($0); notifyd ends, and the bus starts it again at the next call") },
        ]
        return times.compactMap(\.self).min()
    }

    private func carryOut(_ step: Arrivals<IncomingWork>.Step) {
        switch step {
        case .identify(let connection):
            self.connection.askCredentials(of: connection) { answer in
                self.assumeIsolated { $0.identified(connection, answer) }
            }
        case .call(let work, of: _): carryOut(work)
        case .superseded(let work): work.succeed()
        case .refuse(let work): refuse(work, Self.tooMuchWaits)
        case .refuseUnknown(let work):
            refuse(work, Refusal(.notAuthorized, "the bus does not identify the caller; connect again"))
        case .askToReport(let connection): send(.tell, [.uint64(0)], to: connection)
        case .departure(of: let connection):
            state.gone(connection)
            relays.gone(connection)
            unread.gone(connection)
        }
        perform(state.takeHandovers())
    }

    func user(of connection: String) -> UInt32? { state.users[connection] }

    private func identified(_ connection: String, _ answer: Result<DBusConnection.PeerCredentials, DBusError>) {
        switch answer {
        case .success(let credentials):
            perform(state.arrived(connection, Identity(credentials)))
            arrivals.identified(connection)
        case .failure: arrivals.failedToIdentify(connection)
        }
    }

    private func refuse(_ work: IncomingWork, _ refusal: Refusal) {
        figures.refusals += 1
        work.refuse(refusal)
    }

    /// The transport has checked the signature. Sizes are checked before anything is copied.
    private func carryOut(_ work: IncomingWork) {
        guard let identity = state.clients[work.sender]?.identity else { return }
        let limits = state.limits(ofUser: identity.user)
        guard isWanted(work) else {
            return refuse(work, Refusal(.invalidRequest, "notifyd has not asked for a report; wait for Tell"))
        }
        do {
            if let values = try carryOut(work, identity, limits) { work.succeed(values) }
        } catch let refusal as Refusal {
            refuse(work, refusal)
        } catch {
            // An argument exceeds the limits.
            let isPost = work.method == .post
            refuse(work, isPost ? limits.refusalOfPost : Limits.refusal("a call", limits.connection))
        }
    }

    /// Returns whether to read a call. A report costs more than any other call, so notifyd reads only the first report
    /// of a connection, and reports that a round waits for.
    private func isWanted(_ work: IncomingWork) -> Bool {
        guard work.method == .report, state.clients[work.sender]?.hasReported == true else { return true }
        var arguments = ArgumentReader(work.reply.arguments)
        return rounds.awaits(work.sender, in: arguments.unsigned())
    }

    /// Returns the values of the response; `nil` if the response follows later.
    ///
    /// - Throws: ``Refusal``; ``ArgumentReader/TooMuch`` at the first argument that exceeds the caller's limits, before
    ///   anything is done.
    private func carryOut(_ work: IncomingWork, _ identity: Identity, _ limits: Limits) throws -> [DBusValue]? {
        let (sender, limit) = (work.sender, limits.connection)
        var arguments = ArgumentReader(work.reply.arguments)
        switch work.method {
        case .enter: figures.refusals += try state.enter(sender, arguments.names(limit)).count
        case .leave: state.leave(sender, try arguments.names(limit))
        case .report:
            let (round, report) = (arguments.unsigned(), try ProcessReport(&arguments, limit: limit))
            // A refused report ends the wait for it, too.
            defer {
                rounds.reported(sender, in: round)
                proceedRounds()
            }
            figures.refusals += try state.reported(sender, report, now: BootClock.now).count
        case .post: try post(arguments.text(limit: limits.postedName), identity)
        case .setState:
            let name = try arguments.text(limit: limit.bytes)
            let report = StateReport(value: arguments.unsigned(), time: arguments.unsigned())
            try state.setState(sender, name, report, now: BootClock.now)
        case .getState: return [.uint64(try state.state(of: arguments.text(limit: limit.bytes), for: identity))]
        case .suspendProcess: perform(try state.suspendProcess(arguments.process(), by: identity, silent: silent))
        case .resumeProcess: perform(try state.resumeProcess(arguments.process(), by: identity, silent: silent))
        case .list:
            try list(work, identity, arguments.unsigned())
            return nil
        case .status: return [.string(statusText(in: state.scope(of: identity)))]
        case .relay:
            try relay(arguments.names(limit), work, identity)
            return nil
        case .endRelay: for interface in try arguments.names(limit) { relays.end(interface, for: sender) }
        }
        return []
    }

    private func post(_ name: String, _ identity: Identity) throws(Refusal) {
        try state.checkPost(name, by: identity)
        do throws(DBusError) {
            try post(name)
        } catch {
            throw Refusal(.limitsExceeded, "\(error)")
        }
    }

    /// Posts for a caller, or for the configuration.
    func post(_ name: String) throws(DBusError) {
        try center.post(NotificationName(name))
        unread.sentToAll()
    }
}

extension ArgumentReader {
    fileprivate mutating func process() -> UInt32 { UInt32(truncatingIfNeeded: unsigned()) }

    fileprivate mutating func names(_ limit: Amount) throws(TooMuch) -> [String] {
        var rest = limit
        return try elements { element throws(TooMuch) in
            let name = try element.text(limit: rest.bytes)
            rest = rest - Amount(names: 1, bytes: name.utf8.count)
            guard rest.names >= 0, rest.bytes >= 0 else { throw TooMuch() }
            return name
        }
    }
}

/// A waiter for a round of reports.
enum ListWaiter: Sendable {
    case caller(IncomingWork)
    /// The file of the long status.
    case statusFile
}

extension DaemonService {
    /// How long notifyd waits for processes that do not report because they are stopped.
    static let patience = Duration.seconds(1)

    // MARK: Lists

    /// Handles `List`. The first page waits for fresh reports of the processes in it; the other pages use the same
    /// reports.
    func list(_ work: IncomingWork, _ identity: Identity, _ cursor: UInt64) throws(Refusal) {
        guard cursor == 0 else { return answer(work, cursor) }
        try state.beginList(work.sender)
        rounds.want(.caller(work), state.scope(of: identity))
        proceedRounds()
    }

    func proceedRounds() {
        while true {
            for waiter in rounds.finish() {
                switch waiter {
                case .caller(let work):
                    state.endList(work.sender)
                    answer(work, 0)
                case .statusFile: writeStatus(details: true)
                }
            }
            // A round asks only connections that read notifyd's messages. Other connections would not report.
            let begun = rounds.begin { state.connections(in: $0).filter(reads) }
            for (number, awaited) in begun {
                for connection in awaited { send(.tell, [.uint64(number)], to: connection) }
                after(Self.patience) { service in
                    service.rounds.expire(number)
                    service.proceedRounds()
                }
            }
            if begun.allSatisfy({ !$0.awaited.isEmpty }) { return }
        }
    }

    private func answer(_ work: IncomingWork, _ cursor: UInt64) {
        guard let identity = state.clients[work.sender]?.identity else { return }
        work.succeed(state.page(cursor, for: identity).values)
    }

    // MARK: Status

    /// Returns the status with the figures that this caller may know.
    func statusText(in scope: DaemonState.Scope) -> String {
        StatusText(
            process: UInt32(getpid()),
            bus: "\(connection.bus)",
            configuration: configurationFile ?? ConfigurationFile.ofMachine,
            reservations: configurationInForce.rules.reservations.count,
            figures: scope == .all || scope == .user(geteuid()) ? figures : nil,
            paths: paths?.figures ?? PathWatcher.Figures(),
            counts: state.counts(in: scope)
        )
        .text
    }

    /// Writes the status to the file of this process (Rules, a.15): the short one, or the one with all names and
    /// processes.
    func writeStatus(isLong: Bool) {
        guard isLong else { return writeStatus(details: false) }
        rounds.want(.statusFile, .all)
        proceedRounds()
    }

    private func writeStatus(details: Bool) {
        var text = statusText(in: .all)
        if details {
            var list = state.page(0, for: Identity(user: 0))
            while list.cursor != 0 { list.add(state.page(list.cursor, for: Identity(user: 0))) }
            text += list.text
        }
        do throws(Problem) {
            try StatusFile.write(text)
        } catch {
            Diagnostics.write("\(error)")
        }
    }
}

// Admission of calls, before notifyd reads their arguments. It takes a call if the user has room for the call and the
// caller reads the responses.
extension DaemonService: CallScheduler {
    static let tooMuchWaits = Refusal(
        .limitsExceeded,
        "the pending calls of this user are too many or too large; wait for responses first"
    )
    private static let tooMuchUnread = Refusal(.limitsExceeded, UnreadAnswerGuard.remedy)

    /// The size in bytes of the largest report that waits while the bus has not identified the caller. notifyd discards
    /// a larger report, and asks for a new one later.
    private static let largeReport = CallAmount.ofStranger.bytes

    nonisolated func admit(_ call: borrowing MessageHeader) -> CallPermission {
        guard let sender = call.sender else { return .drop }
        let bytes = call.bytes
        let wantsAnswer = call.expectsReply
        let isReport = bytes > Self.largeReport && call.member == NotifydProtocol.Method.report.rawValue
        return assumeIsolated { $0.admit(from: sender, bytes, wantsAnswer: wantsAnswer, isLargeReport: isReport) }
    }

    private func admit(from sender: String, _ bytes: Int, wantsAnswer: Bool, isLargeReport: Bool) -> CallPermission {
        let user = user(of: sender)
        let standing = wantsAnswer ? standing(of: sender, user) : .anything
        if standing == .nothing {
            figures.dropped += 1
            unread.dropped(sender)
            return .drop
        }
        let limit = user.map { state.limits(ofUser: $0).waiting } ?? .ofStranger
        guard arrivals.hasRoom(for: bytes, of: sender, user, limit) else {
            if isLargeReport, user == nil { arrivals.reportedTooMuch(sender) }
            guard wantsAnswer else {
                figures.dropped += 1
                return .drop
            }
            return .refuse(refused(Self.tooMuchWaits))
        }
        return standing == .anything ? .take : .refuse(refused(Self.tooMuchUnread))
    }

    private func refused(_ refusal: Refusal) -> MethodFailure {
        figures.refusals += 1
        return MethodFailure(refusal)
    }

    // MARK: Unread messages

    /// Returns whether a connection reads what notifyd sends to it, as far as notifyd knows.
    func reads(_ connection: String) -> Bool { standing(of: connection, user(of: connection)) == .anything }

    /// The connections that do not read.
    var silent: Set<String> { Set(unread.connections.filter { !reads($0) }) }

    private func standing(of connection: String, _ user: UInt32?) -> UnreadAnswers.Standing {
        unread.standing(of: connection, user, user.map { state.limits(ofUser: $0).unread } ?? .ofStrangers)
    }

    nonisolated func answered(_ caller: String, bytes: Int) {
        if connection.isOnReadingThread { return assumeIsolated { $0.sent(bytes, to: caller) } }
        connection.perform { self.assumeIsolated { $0.sent(bytes, to: caller, isLate: true) } }
    }

    /// Counts bytes that are on their way to a connection.
    func sent(_ bytes: Int, to connection: String, isLate: Bool = false) {
        unread.sent(bytes, to: connection, user(of: connection), isLate: isLate)
    }

    // MARK: Turns

    nonisolated func carryOut() -> ContinuousClock.Instant? { assumeIsolated { $0.proceed() } }
}

/// A post for connections in sandboxes.
final class RelayedPost: Sendable {
    private let message: DBusMessage
    private let path: String
    let bytes: Int

    init(_ message: borrowing DBusMessage, by poster: String, bytes: Int) throws(DBusError) {
        self.message = try message.copy()
        self.bytes = bytes
        path = NotifydProtocol.relayPath(ofPostsBy: poster)
    }

    func message(to connection: String) throws(DBusError) -> DBusMessage {
        try message.readdressed(from: path, to: connection)
    }
}

// Posts that notifyd sends on to processes in sandboxes. Each waits for the turn of its receiver's user. The posts of a
// user have as much room as its calls, and the same pace.
extension DaemonService {
    /// The largest post that is relayed, in bytes. Receivers take no larger one.
    private static let largestPost = 2 << 20
    /// The largest post of the Darwin center, in bytes, that is kept for a receiver without room.
    private static let largestOwedPost = 4 << 10

    /// Starts to relay the posts on these interfaces to the caller. Replies when the rules are in force.
    func relay(_ interfaces: [String], _ work: IncomingWork, _ identity: Identity) throws(Refusal) {
        let sender = work.sender
        try relays.check(interfaces, for: sender, of: identity.user)
        for name in interfaces.lazy.compactMap({ DarwinNotification.name(of: $0) }) {
            guard state.rules.allows(.read, name.rawValue, by: identity) else {
                let name = name.rawValue.prefix(200)
                throw Refusal(.notAuthorized, "user \(identity.user) may not register for \(name)")
            }
        }
        let pending = Locked((count: interfaces.count, error: DBusError?.none))
        guard !interfaces.isEmpty else { return work.succeed() }
        let new = interfaces.filter { !relays.has($0, for: sender) }
        for interface in interfaces {
            let lease = connection.keepMatch(.posts(on: interface), fallback: .allPosts) { error in
                let last = pending.withLock { pending in
                    pending.count -= 1
                    pending.error = pending.error ?? error
                    return pending.count == 0 ? pending : nil
                }
                guard let last else { return }
                guard let error = last.error else { return work.succeed() }
                work.refuse(Refusal(.limitsExceeded, "\(error)"))
                self.connection.perform {
                    self.assumeIsolated { service in
                        for interface in new { service.relays.end(interface, for: sender) }
                    }
                }
            }
            relays.begin(interface, lease, for: sender, of: identity.user)
        }
    }

    /// Relays a post that has arrived.
    func relay(_ message: borrowing DBusMessage) {
        // A post with descriptors is not relayed: the descriptors of other processes would use up notifyd's.
        guard !relays.isIdle, !message.isDirected, !message.hasDescriptors, let poster = message.sender,
            poster != connection.uniqueName,
            message.has(path: "/org/notifycenter", member: "Posted"), let interface = message.interface
        else { return }
        let receivers = relays.receivers(of: interface, postedBy: poster)
        guard !receivers.isEmpty else { return }
        let bytes = message.size
        guard bytes <= Self.largestPost else { return }
        var name: String?
        if WireKind(interface: interface) == .darwin {
            // Other processes may not post a reserved name. notifyd's own posts pass the proxy.
            guard let post = DarwinNotification(message), state.rules.isOpen(.write, post.name.rawValue) else { return }
            name = post.name.rawValue
        }
        guard let post = try? RelayedPost(message, by: poster, bytes: bytes) else { return }
        for (receiver, asked) in receivers {
            guard let identity = state.clients[receiver]?.identity,
                name.map({ state.rules.allows(.read, $0, by: identity) }) ?? true
            else { continue }
            offer(post, on: asked, to: receiver, of: identity.user)
        }
    }

    /// Queues a post for its turn. Pauses a receiver without room for the post. If the post is one of the Darwin
    /// center, the receiver gets it after the pause, because no observer may miss the last post of its name.
    private func offer(_ post: RelayedPost, on interface: String, to receiver: String, of user: UInt32) {
        guard state.clients[receiver] != nil else { return }
        let limits = state.limits(ofUser: user)
        if reads(receiver), posts.hasRoom(for: post.bytes, of: user, within: limits.waiting) {
            return posts.append(post, bytes: post.bytes, to: receiver, of: user, pace: limits.pace)
        }
        figures.dropped += 1
        let isOwed = WireKind(interface: interface) == .darwin && post.bytes <= Self.largestOwedPost
        endPausesLater()
        relays.pause(interface, for: receiver, owing: isOwed ? post : nil, bytes: post.bytes)
    }

    private func endPausesLater() {
        guard !willEndPauses else { return }
        willEndPauses = true
        after(.seconds(1)) { service in
            service.willEndPauses = false
            service.endPauses()
            if !service.relays.pauses.isEmpty { service.endPausesLater() }
        }
    }

    /// Ends the pauses of receivers that read, and whose user has at least half of its room free.
    private func endPauses() {
        for pause in relays.pauses {
            guard let user = user(of: pause.connection), reads(pause.connection) else { continue }
            let limit = state.limits(ofUser: user).waiting
            let half = CallAmount(calls: limit.calls / 2, bytes: limit.bytes / 2)
            guard posts.hasRoom(for: 0, of: user, within: half) else { continue }
            let owed = relays.owed(pause)
            let lease = connection.keepMatch(.posts(on: pause.interface), fallback: .allPosts) { _ in
                guard let owed else { return }
                // Sent when the rule is in force, so that it comes after the posts of the pause.
                self.connection.perform {
                    self.assumeIsolated { $0.offer(owed, on: pause.interface, to: pause.connection, of: user) }
                }
            }
            relays.begin(pause.interface, lease, for: pause.connection, of: user)
        }
    }

    func send(_ post: RelayedPost, to connection: String) {
        // The receiver may have disconnected since.
        guard state.clients[connection] != nil else { return }
        do throws(DBusError) {
            try self.connection.send(try post.message(to: connection))
            sent(post.bytes, to: connection)
        } catch {
            Diagnostics.write("\(error)")
        }
    }
}
