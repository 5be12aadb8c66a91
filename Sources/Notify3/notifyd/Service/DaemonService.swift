import Basics
package import DBus
import Glibc
import NotifyCenter

/// notifyd on a bus. Passes events of the bus and of the file system to the pure state, and carries out the resulting
/// actions.
///
/// An actor on the connection's reading thread, so that it handles calls and signals in the bus's order. Lives as long
/// as its process.
package actor DaemonService {
    package struct Options: Sendable {
        package var bus: Bus
        /// The configuration's file; `nil` for the machine's.
        package var configuration: String?

        package init(bus: Bus, configuration: String? = nil) {
            self.bus = bus
            self.configuration = configuration
        }
    }

    nonisolated let connection: DBusConnection
    private nonisolated let executor: ReadingThread
    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    let configurationSource: ConfigurationSource
    var configurationInForce: NotifyConfiguration
    let center: DarwinNotifyCenter
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

    /// Starts the service. On return it owns its name and answers calls, and has asked the processes for their
    /// registrations.
    ///
    /// - Parameter ended: Called when the bus is lost. The next process that needs notifyd starts another one.
    /// - Throws: ``DBusError``, for instance `nameTaken` if another notifyd serves this bus; ``ConfigurationFileError``
    ///   if the configuration's file cannot be used.
    package static func start(
        _ options: Options,
        ended: @escaping @Sendable () -> Void
    ) async throws -> DaemonService {
        let source = ConfigurationSource(asked: options.configuration)
        let configuration = try source.load()
        let service = DaemonService(try DBusConnection.open(options.bus), source, configuration)
        try await service.begin(ended)
        return service
    }

    private init(
        _ connection: DBusConnection,
        _ source: ConfigurationSource,
        _ configuration: NotifyConfiguration
    ) {
        self.connection = connection
        unread = UnreadAnswerGuard(connection)
        executor = ReadingThread(connection)
        configurationSource = source
        center = DarwinNotifyCenter(connection: connection)
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
            guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
                arguments.count == 3, let name = arguments[0].stringValue, name.hasPrefix(":"),
                arguments[2].stringValue == ""
            else { return }
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

    private func keep(_ tokens: [Observation], _ lease: MatchRuleLease) {
        self.tokens = tokens
        self.lease = lease
    }

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
    package func reload() {
        let configuration: NotifyConfiguration
        do throws(ConfigurationFileError) {
            configuration = try configurationSource.load()
        } catch {
            return Diagnostics.write("\(error)")
        }
        configurationInForce = configuration
        state.configure(configuration)
        // Even if the configuration is the same: notifyd may have gained access to a directory.
        watchConfigured()
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
