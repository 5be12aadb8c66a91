package import DBusTransport
import Glibc
import NotifyCenter
import NotifydProtocol

/// notifyd on a bus. It hands events of the bus and of the file system to the pure state, and carries out the resulting actions.
///
/// An actor on the connection's reading thread: calls and signals are handled in the bus's order. It lives as long as its process.
package actor DaemonService {
    /// The options of the command line.
    package struct Options: Sendable {
        package var bus: Bus
        /// The configuration's file; `nil` for that of the machine.
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
    let center: DarwinNotifyCenter
    var state: DaemonState
    var figures = Figures()
    /// The first inquiry. Reports that answer it have the facts from before this notifyd.
    let firstInquiry: UInt64
    var inquiries: Inquiries<CheckedContinuation<Listings, Never>>
    /// How many lists each connection waits for.
    var listsUnderWay: [String: Int] = [:]
    /// Arrivals from the bus that have not been carried out yet.
    var arrivals = ArrivalOrder<IncomingWork>()
    /// By the connection about which the bus is asked.
    var identifications: [String: Task<Void, Never>] = [:]
    /// Calls that wait until all processes have reported; `nil` from then on.
    var untilGathered: [IncomingWork]? = []
    /// The watched paths of the configuration.
    var configuredMonitors: [UInt64: NotifyConfiguration.Monitor] = [:]
    /// Calls of Monitor that wait for their watch.
    var monitorReplies: [UInt64: CallReply] = [:]
    /// Watches that are being made, and the continuation that waits for the last of them.
    var watchesBeingMade: Set<UInt64> = []
    var untilWatched: CheckedContinuation<Void, Never>?
    /// Watches that are tried again.
    var watchesToRetry: Set<UInt64> = []
    /// Made for the first path, because inotify instances are few; without one, everything else works.
    var paths: PathWatcher?
    private var tokens: [Observation] = []
    private var lease: MatchRuleLease?

    /// Starts the service. On return it owns its name and answers, and has asked the processes for their registrations.
    ///
    /// - Parameter ended: called when the bus is lost. The next process that needs notifyd starts another one.
    /// - Throws: ``DBusError``, among them `nameTaken` where another one serves this bus; ``ConfigurationFileError`` where
    ///   the file that is asked for cannot be used.
    package static func start(
        _ options: Options,
        ended: @escaping @Sendable () -> Void
    ) async throws -> DaemonService {
        let source = ConfigurationSource(asked: options.configuration)
        let configuration = try source.load(isFirst: true)
        let service = DaemonService(try DBusConnection.open(options.bus), source, configuration ?? .init())
        try await service.begin(ended)
        return service
    }

    private init(
        _ connection: DBusConnection,
        _ source: ConfigurationSource,
        _ configuration: NotifyConfiguration
    ) {
        self.connection = connection
        executor = ReadingThread(connection)
        configurationSource = source
        center = DarwinNotifyCenter(connection: connection)
        state = DaemonState(process: UInt32(getpid()), user: geteuid(), configuration: configuration)
        firstInquiry = BootClock.now
        inquiries = Inquiries(first: firstInquiry)
        configurationInForce = configuration
    }

    /// The configuration in force.
    var configurationInForce: NotifyConfiguration

    private nonisolated func begin(_ ended: @escaping @Sendable () -> Void) async throws {
        let lost = try connection.onEvent { event in
            if case .lost = event { ended() }
        }
        let signals = connection.onSignal { message in
            guard message.isBusSignal("NameOwnerChanged"), let arguments = try? message.arguments(),
                arguments.count == 3, let name = arguments[0].stringValue, name.hasPrefix(":"),
                arguments[2].stringValue == ""
            else { return }
            self.assumeIsolated { $0.gone(name) }
        }
        let lease = try await connection.addMatch(
            MatchRule(signalFrom: "org.freedesktop.DBus", interface: "org.freedesktop.DBus", member: "NameOwnerChanged")
        )
        let object = try connection.export(
            [DaemonInterface.interface(self)],
            at: NotifydProtocol.path,
            limits: await state.limits.calls
        )
        await keep([lost, signals, object], lease)
        await watchConfigured()
        try await connection.requestName(NotifydProtocol.busName)
        try await ask()
    }

    private func keep(_ tokens: [Observation], _ lease: MatchRuleLease) {
        self.tokens = tokens
        self.lease = lease
    }

    /// Asks all processes what they have. Callers that want to read wait meanwhile.
    private func ask() throws {
        try connection.send(NotifydProtocol.signal(.tell, [.uint64(firstInquiry), .boolean(false)]))
        Task {
            await gather()
            gathered()
        }
    }

    /// Carries out the actions of the state.
    func perform(_ actions: [DaemonState.Action]) {
        for action in actions {
            switch action {
            case .watch(let id, let path, let flags, let client):
                watch(PathWish(id: id, path: path, flags: flags, client: client))
            case .unwatch(let id): paths?.remove(id)
            case .suspend(let connection, let times):
                // The number is bounded, see Limits.
                for _ in 0..<times { send(.suspend, to: connection) }
            case .resume(let connection): send(.resume, to: connection)
            case .tell(let connection, let token): send(.changed, [.int32(token)], to: connection)
            }
        }
    }

    private func send(_ signal: NotifydProtocol.Signal, _ arguments: [DBusValue] = [], to connection: String) {
        do throws(DBusError) {
            try self.connection.send(NotifydProtocol.signal(signal, arguments, to: connection))
        } catch {
            Diagnostics.write("\(error)")
        }
    }
}

/// Runs an actor on a connection's reading thread: calls and signals reach it at once and in the bus's order, and nothing in it
/// needs a lock.
final class ReadingThread: SerialExecutor {
    private let connection: DBusConnection

    init(_ connection: DBusConnection) { self.connection = connection }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        connection.perform { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func checkIsolated() {
        // Only a mistake in this code can bring another thread here, not a message.
        precondition(connection.isOnReadingThread)
    }
}
