package import DBusTransport
package import DeviceConfiguration
import FoundationEssentials
import Glibc
package import SharedDevice
import Synchronization

/// Stops apps that are late with their cleanup, and deletes their data in their place.
///
/// The broker says which apps; what to stop and what to delete is the manifests' alone. All of it is done anew after a crash: the broker hands an app
/// over again until it has the report. Meanwhile it refuses the app's own calls and every sign-in.
package final class Enforcer: Sendable {
    /// A place at which tests act.
    package enum Checkpoint: Sendable, Equatable {
        /// The broker has handed an app over.
        case handedOver
        case cleaning(Adapter.Checkpoint)
        /// The broker has the report.
        case reported
    }

    /// An app that is late.
    private struct Overdue: Sendable {
        struct Key: Hashable {
            let app: String
            let user: UInt32
        }

        let app: String
        let user: UInt32
        let sessions: DBusValue
        let connections: [String]

        init?(_ value: DBusValue) {
            guard let fields = value.fieldsValue, let app = fields["app"]?.stringValue,
                let user = fields["user"]?.unsignedValue.flatMap({ UInt32(exactly: $0) }),
                let sessions = fields["sessions"], let connections = fields["connections"]?.stringsValue
            else { return nil }
            (self.app, self.user, self.sessions, self.connections) = (app, user, sessions, connections)
        }

        var key: Key { Key(app: app, user: user) }
    }

    /// The apps that are being stopped and deleted, each once at a time.
    private struct UnderWay {
        /// For each of them whether the broker has its report.
        private var apps: [Overdue.Key: Bool] = [:]

        /// - Returns: whether it is to be begun. An app that is under way is not: the broker hands it over again if that is still due afterwards, and
        ///   whatever it knew before its answer to the report is out of date.
        mutating func begin(_ key: Overdue.Key) -> Bool {
            guard apps[key] == nil else { return false }
            apps[key] = false
            return true
        }

        mutating func reported(_ key: Overdue.Key) { apps[key] = true }
        mutating func end(_ key: Overdue.Key) { apps[key] = nil }

        var isEmpty: Bool { apps.isEmpty }
        var value: DBusValue {
            let unreported = apps.filter { !$0.value }.keys
            return .array(unreported.map { .fields(["app": .string($0.app), "user": .uint32($0.user)]) }, of: "a{sv}")
        }
    }

    private let broker: BrokerAdministration
    private let manifests = Locked<[AppManifest]>([])
    private let underWay = Locked(UnderWay())
    private let mark: @Sendable (String) -> String
    private let log: @Sendable (String) -> Void
    private let checkpoint: @Sendable (Checkpoint) -> Void

    /// How long the broker may leave a question open, in seconds: less while apps are under way, which it does not hand over again meanwhile.
    private static let (wait, waitUnderWay) = (60.0, 5.0)
    /// How long an answer may take altogether.
    private static let answerPatience = Duration.seconds(90)
    private static let pause = Duration.seconds(1)
    /// How often one app is stopped anew because a process of it was left.
    private static let rounds = 3

    /// - Parameters:
    ///   - mark: the directory of the adapter's record of an app, which marks the processes of its command.
    ///   - log: takes a line for the administrator.
    /// - Throws: ``SharedDeviceError``; `brokerUnavailable` where there is no such bus.
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

    /// Enforces until the bus is lost: then the broker counts on nobody's deleting any more, so that the process has to end. It has to end as well where
    /// the broker does not take it for the enforcement: one whose process could not be seen at its first call stays unknown on its connection, and what
    /// it was at keeps everybody out for as long as it is there.
    ///
    /// - Parameter updates: the manifests.
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

    /// Asks for late apps also while some are under way: one whose deletion a file system holds up keeps no other waiting.
    ///
    /// - Parameter refused: is told where the broker does not take this process for the enforcement.
    private func serve(_ refused: (String) -> Void) async {
        await withDiscardingTaskGroup { group in
            var isFirst = true
            while !Task.isCancelled {
                do throws(SharedDeviceError) {
                    let wait = underWay.withLock { $0.isEmpty } ? Self.wait : Self.waitUnderWay
                    let elements = try await askOverdue(waiting: isFirst ? 0 : wait)
                    // An earlier run may have ended between its report and the start.
                    if isFirst, elements.isEmpty { await startUnits() }
                    isFirst = false
                    let begun = elements.compactMap(Overdue.init)
                        .filter { one in underWay.withLock { $0.begin(one.key) } }
                    for one in begun {
                        group.addTask {
                            await self.enforce(one)
                            self.underWay.withLock { $0.end(one.key) }
                        }
                    }
                    // A broker that says what this program cannot take says it again at once.
                    if begun.isEmpty, !elements.isEmpty { try? await Task.sleep(for: Self.pause) }
                } catch {
                    if error.code == .notPermitted { return refused("\(error)") }
                    log("\(error)")
                    try? await Task.sleep(for: Self.pause)
                }
            }
        }
    }

    /// - Returns: the apps that are late and not under way.
    private func askOverdue(waiting seconds: Double) async throws(SharedDeviceError) -> [DBusValue] {
        let answer = try await broker.call(
            .getOverdue,
            ["wait": .double(seconds), "underWay": underWay.withLock { $0.value }],
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
                "enforce the cleanup of",
                overdue.app,
                "no manifest has “cleanup” for it and user \(overdue.user)",
                remedy: "Put its manifest back, or waive the cleanup: shared-device apps waive"
            )
        }
        guard geteuid() == 0 || geteuid() == overdue.user else {
            throw AdapterFailure(
                "enforce the cleanup of",
                overdue.app,
                "this is user \(geteuid()), and its manifest names user \(overdue.user)",
                remedy: "Run the enforcement as root"
            )
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
            // An adapter that hangs must not start its program again, so that its process goes first; an app's program may end by itself.
            let program = cleanup.program(mark: mark(overdue.app))
            let parts: [any ProgramControl] =
                cleanup.cleaner == .adapter ? [connected, program] : [program, connected]
            let adapter = Adapter(
                program: ProgramParts(name: cleanup.program.description, parts: parts),
                start: nil,
                paths: cleanup.delete,
                user: cleanup.user.number,
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
            "enforce the cleanup of",
            overdue.app,
            "processes of it are left on the bus: \(connections.joined(separator: ", "))",
            remedy: "See busctl status NAME; let one unit run the app, and name it in the manifest"
        )
    }

    /// Stops and deletes what the app's adapter had yet to stop and delete of earlier manifests.
    private func retireFormer(of app: String, _ cleanup: AppCleanup) async throws(AdapterFailure) {
        let mark = self.mark(app)
        let named = try await onSystemThread { () throws(AdapterFailure) in
            try NamedCleanups(stateDirectory: mark).read()
        }
        for former in named where !cleanup.includes(former) {
            let adapter = Adapter(
                program: former.program(mark: mark),
                start: nil,
                paths: former.delete,
                user: former.user.number,
                stateDirectory: mark,
                log: log
            )
            try await adapter.retire()
        }
    }

    /// - Returns: the answer; `nil` where the broker does not take the report: it hands the app over once more, if that is due.
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
            if answer["connections"] == nil { underWay.withLock { $0.reported(overdue.key) } }
            return answer
        } catch {
            log("\(error)")
            return nil
        }
    }

    /// Starts the units that are to run always.
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
    /// Whether the enforcement starts the app again. An adapter starts its program itself.
    fileprivate var startsAgain: Bool { cleaner == .app && start == .always }
}
