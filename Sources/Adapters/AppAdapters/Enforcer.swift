import Basics
package import DBus
package import DeviceConfiguration
import FoundationEssentials
import Glibc
@_spi(Extensions) package import SharedDevice
import Synchronization

/// Stops apps whose cleanup is overdue and deletes their data for them.
///
/// The broker names the apps; only the manifests say what to stop and delete. Everything is repeated after a crash: the
/// broker hands an app over again until it has the report. Until then it refuses the app's calls and every sign-in.
package final class Enforcer: Sendable {
    /// A point at which tests intervene.
    package enum Checkpoint: Sendable, Equatable {
        case handedOver
        case cleaning(Adapter.Checkpoint)
        case reported
    }

    private struct Overdue: Sendable {
        let app: String
        let user: UInt32
        let sessions: DBusValue
        let connections: [String]

        init?(_ value: DBusValue) {
            guard let fields = value.fieldsValue, let app = fields["app"]?.stringValue,
                let user = fields["user"]?.unsignedValue.flatMap({ UInt32(exactly: $0) }),
                let sessions = fields["sessions"], let connections = fields["connections"]?.stringsValue
            else { return nil }
            self.app = app
            self.user = user
            self.sessions = sessions
            self.connections = connections
        }

        var key: Key { Key(app: app, user: user) }
    }

    private struct Key: Hashable {
        let app: String
        let user: UInt32
    }

    private let broker: BrokerAdministration
    private let manifests = Locked<[AppManifest]>([])
    /// The apps whose enforcement is in flight, and whether the broker has the report. Each is enforced once at a time:
    /// the broker may have responded before it received the report. It hands an app that is still overdue over later.
    private let underWay = Locked<[Key: Bool]>([:])
    private let mark: @Sendable (String) -> String
    private let log: @Sendable (String) -> Void
    private let checkpoint: @Sendable (Checkpoint) -> Void

    /// How long the broker may hold a request, in seconds. Shorter while apps are in flight, because the broker does
    /// not hand those over again.
    private static let (wait, waitUnderWay) = (60.0, 5.0)
    private static let answerPatience = Duration.seconds(90)
    private static let pause = Duration.seconds(1)
    /// The number of attempts to stop an app that leaves a process behind.
    private static let rounds = 3

    /// - Parameters:
    ///   - mark: maps an app to the directory of its adapter's record, which marks the processes of its command.
    ///   - log: takes a line for the administrator.
    /// - Throws: ``SharedDeviceError``; `brokerUnavailable` if there is no such bus.
    package init(
        bus: Bus,
        mark: @escaping @Sendable (String) -> String,
        log: @escaping @Sendable (String) -> Void,
        checkpoint: @escaping @Sendable (Checkpoint) -> Void = { _ in }
    ) throws(SharedDeviceError) {
        broker = try BrokerAdministration(bus: bus)
        self.mark = mark
        self.log = log
        self.checkpoint = checkpoint
    }

    /// Enforces until the bus is lost or the broker rejects this process. In both cases the process must exit: the
    /// broker no longer relies on it. A process that the broker could not identify at its first call stays
    /// unidentified, and its cleanups in flight block every sign-in while its connection is open.
    package func run(_ updates: AsyncStream<AppManifests>) async {
        let (ends, end) = AsyncStream.makeStream(of: String.self)
        let observation = try? broker.connection.onEvent { if case .lost = $0 { end.yield("the bus is lost") } }
        let working = Task {
            var first = updates.makeAsyncIterator()
            if let first = await first.next() { use(first) }
            async let following: Void = follow(updates)
            await serve { end.yield($0) }
            await following
        }
        for await reason in ends {
            log(reason)
            break
        }
        working.cancel()
        withExtendedLifetime(observation) {}
    }

    private func follow(_ updates: AsyncStream<AppManifests>) async { for await update in updates { use(update) } }

    private func use(_ update: AppManifests) {
        for problem in update.problems { log("\(problem)") }
        manifests.withLock { $0 = update.manifests }
    }

    /// Asks the broker for overdue apps even while others are in flight, so that a deletion stuck in a file system does
    /// not delay other apps. Calls `refused` if the broker does not accept this process as the enforcement.
    private func serve(_ refused: (String) -> Void) async {
        await withDiscardingTaskGroup { group in
            var isFirst = true
            while !Task.isCancelled {
                do throws(SharedDeviceError) {
                    let wait = underWay.withLock { $0.isEmpty } ? Self.wait : Self.waitUnderWay
                    let elements = try await askOverdue(waiting: isFirst ? 0 : wait)
                    // An earlier process may have exited after its report and before it started the app.
                    if isFirst, elements.isEmpty { await startUnits() }
                    isFirst = false
                    let begun = elements.compactMap(Overdue.init).filter { one in
                        underWay.withLock { underWay in
                            guard underWay[one.key] == nil else { return false }
                            underWay[one.key] = false
                            return true
                        }
                    }
                    for one in begun {
                        group.addTask {
                            await self.enforce(one)
                            self.underWay.withLock { $0[one.key] = nil }
                        }
                    }
                    // A broker that sends unusable elements would send them again at once.
                    if begun.isEmpty, !elements.isEmpty { try? await Task.sleep(for: Self.pause) }
                } catch {
                    if error.code == .notPermitted { return refused("\(error)") }
                    log("\(error)")
                    try? await Task.sleep(for: Self.pause)
                }
            }
        }
    }

    private func askOverdue(waiting seconds: Double) async throws(SharedDeviceError) -> [DBusValue] {
        let unreported = underWay.withLock { $0.filter { !$0.value }.keys }.map { key in
            DBusValue.fields(["app": .string(key.app), "user": .uint32(key.user)])
        }
        let answer = try await broker.call(
            .getOverdue,
            ["wait": .double(seconds), "underWay": .array(unreported, of: "a{sv}")],
            attempted: "ask for overdue cleanups",
            timeout: Self.answerPatience
        )
        return answer["overdue"]?.elementsValue ?? []
    }

    // MARK: One app

    private func enforce(_ overdue: Overdue) async {
        checkpoint(.handedOver)
        log("\(overdue.app) of user \(overdue.user) is late with its cleanup")
        do throws(AdapterFailure) {
            let cleanup = try cleanup(of: overdue)
            try await enforce(overdue, cleanup)
            if cleanup.startsAgain { try await cleanup.program(mark: mark(overdue.app)).start() }
        } catch {
            log("\(error)")
            await report(overdue, ["problem": .string(error.description)])
        }
    }

    private func cleanup(of overdue: Overdue) throws(AdapterFailure) -> AppCleanup {
        let manifest = manifests.withLock { $0 }.first { $0.identifier == overdue.app }
        guard let cleanup = manifest?.cleanup, cleanup.user.number == overdue.user else {
            throw AdapterFailure(
                "enforce the cleanup of \(overdue.app): no manifest has “cleanup” for it and user \(overdue.user)",
                remedy: "Put its manifest back, or waive the cleanup: shared-device apps waive"
            )
        }
        guard geteuid() == 0 || geteuid() == overdue.user else {
            let failure =
                "enforce the cleanup of \(overdue.app): "
                + "the enforcement runs as user \(geteuid()), and the app's manifest names user \(overdue.user)"
            throw AdapterFailure(failure, remedy: "Run the enforcement as root")
        }
        return cleanup
    }

    private func enforce(_ overdue: Overdue, _ cleanup: AppCleanup) async throws(AdapterFailure) {
        var connections = overdue.connections
        for _ in 0..<Self.rounds {
            let connected = ConnectedProcesses(
                connection: broker.connection,
                names: connections,
                user: cleanup.user.number,
                hasAdapter: cleanup.cleaner == .adapter
            )
            // Ends an adapter's process first, because a stuck adapter must not restart its program. Without an
            // adapter, the app's program is stopped first: it may exit by itself, whereas a process with a connection
            // is killed.
            let program = cleanup.program(mark: mark(overdue.app))
            let parts: [any ProgramControl] =
                cleanup.cleaner == .adapter ? [connected, program] : [program, connected]
            let adapter = Adapter(
                cleanup,
                program: ProgramParts(name: cleanup.program.description, parts: parts),
                stateDirectory: mark(overdue.app),
                log: log,
                checkpoint: { self.checkpoint(.cleaning($0)) }
            )
            let text = try await adapter.cleanUp()
            try await retireFormer(of: overdue.app, cleanup)
            guard let answer = await report(overdue, ["detail": .string(text)]) else { return }
            connections = answer["connections"]?.stringsValue ?? []
            checkpoint(.reported)
            if connections.isEmpty { return }
        }
        throw AdapterFailure(
            "enforce the cleanup of \(overdue.app): "
                + "its processes are still on the bus: \(connections.joined(separator: ", "))",
            remedy: "See busctl status NAME; let one unit run the app, and name it in the manifest"
        )
    }

    /// Stops and deletes the targets of earlier manifests that the app's adapter had not finished.
    private func retireFormer(of app: String, _ cleanup: AppCleanup) async throws(AdapterFailure) {
        let mark = self.mark(app)
        let named = NamedCleanups(stateDirectory: mark)
        for former in try await onSystemThread(named.read) where !cleanup.includes(former) {
            try await Adapter(former, stateDirectory: mark, log: log).retire()
        }
    }

    /// - Returns: the response; `nil` if the broker rejects the report. It then hands the app over again if the cleanup
    ///   is still overdue.
    @discardableResult
    private func report(_ overdue: Overdue, _ result: BrokerProtocol.Fields) async -> BrokerProtocol.Fields? {
        let fields: BrokerProtocol.Fields = [
            "app": .string(overdue.app), "user": .uint32(overdue.user), "sessions": overdue.sessions,
        ]
        do throws(SharedDeviceError) {
            let answer = try await broker.call(
                .reportEnforcement,
                fields.merging(result) { $1 },
                attempted: "report the enforced cleanup of \(overdue.app)"
            )
            if answer["connections"] == nil { underWay.withLock { $0[overdue.key] = true } }
            return answer
        } catch {
            log("\(error)")
            return nil
        }
    }

    /// Starts the units whose manifest says to start them always.
    private func startUnits() async {
        for manifest in manifests.withLock({ $0 }) {
            guard let cleanup = manifest.cleanup, cleanup.startsAgain else { continue }
            do throws(AdapterFailure) {
                try await cleanup.program(mark: mark(manifest.identifier)).start()
            } catch {
                log("\(error)")
            }
        }
    }
}

extension AppCleanup {
    /// Whether the enforcement restarts the app. An adapter restarts its program itself.
    fileprivate var startsAgain: Bool { cleaner == .app && start == .always }
}
