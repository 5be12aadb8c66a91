import DBusTransport
import DeviceView
import FoundationEssentials
import SharedDevice
import Synchronization

/// Follows the broker: each question waits for a change, so that an answer is there when there is something to show.
final class DeviceWatch: Sendable {
    /// How long a question waits for a change. After a little more without an answer the broker counts as gone.
    private static let patience = 10.0
    /// Between two questions to a broker that is there and does not answer, or does not want to.
    private static let pause = Duration.seconds(1)

    private struct State {
        var view = DeviceView()
        var message: String?
    }

    private let broker: BrokerAdministration
    private let presence: BrokerPresence
    private let onChange: @Sendable () -> Void
    private let state = Locked(State())

    /// - Parameter onChange: called on any thread after each answer.
    init(_ broker: BrokerAdministration, onChange: @escaping @Sendable () -> Void) {
        self.broker = broker
        presence = BrokerPresence(broker.connection)
        self.onChange = onChange
    }

    var view: DeviceView { state.withLock { $0.view } }
    /// Why the last sign-out was not done; `nil` if it was.
    var message: String? { state.withLock { $0.message } }

    /// Somebody has seen the message.
    func dismissMessage() { state.withLock { $0.message = nil } }

    /// Asks from here on, until the program ends.
    func start(withLog: Bool) {
        Task {
            await presence.start()
            if withLog { Task { await followLog() } }
            await followDevice()
        }
    }

    private func change(_ body: @Sendable (inout State) -> Void) {
        state.withLock { body(&$0) }
        onChange()
    }

    private func followDevice() async {
        var known: UInt64?
        while true {
            let generation = presence.generation
            do throws(SharedDeviceError) {
                var question = known.map { ["revision": DBusValue.uint64($0)] } ?? [:]
                question["wait"] = .double(Self.patience)
                let device = ObservedDevice(try await ask(.getStatus, question))
                let round = await round(device.rounds.last)
                // A broker of another version may answer at once, whatever it was asked to wait for.
                if known == device.revision { try? await Task.sleep(for: Self.pause) }
                known = device.revision
                change { $0.view.take(device, round) }
            } catch {
                known = nil
                switch error.code {
                case .notPermitted: change { $0.view.lose(.denied) }
                case .brokerUnavailable: change { $0.view.lose(.gone) }
                default:
                    change {
                        $0.view.lose(.gone)
                        $0.message = "the broker refuses to say: \(error.message)"
                    }
                }
                await presence.wait(after: generation, otherwise: Self.pause)
            }
        }
    }

    /// - Returns: `nil` for a round that is kept no more, or one of a later version: the rest is shown all the same.
    private func round(_ session: UInt64?) async -> CleanupReport? {
        guard let session,
            let answer = try? await ask(.getRound, ["session": .uint64(session), "administration": .boolean(true)])
        else { return nil }
        return try? CleanupReport(answer["round"])
    }

    private func followLog() async {
        var newest: UInt64?
        while true {
            let generation = presence.generation
            do throws(SharedDeviceError) {
                var question: BrokerProtocol.Fields = ["limit": .uint64(UInt64(DeviceView.mostEntries))]
                if let newest {
                    question["after"] = .uint64(newest)
                    question["wait"] = .double(Self.patience)
                }
                let entries = ObservedEntry.all(try await ask(.getLog, question))
                let hasNews = newest == nil || entries.last.map { $0.sequence != newest } ?? false
                newest = entries.last?.sequence ?? newest ?? 0
                if !entries.isEmpty { change { $0.view.add(entries) } }
                if !hasNews { try? await Task.sleep(for: Self.pause) }
            } catch {
                // Whoever loses the right loses what was shown of it, and begins anew where it comes back.
                if error.code == .notPermitted { newest = nil }
                await presence.wait(after: generation, otherwise: Self.pause)
            }
        }
    }

    private func ask(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields
    ) async throws(SharedDeviceError) -> BrokerProtocol.Fields {
        try await broker.call(method, fields, timeout: .seconds(Self.patience + 5))
    }

    /// Ends this session, and no other; what keeps it from being done is the ``message``.
    func signOut(_ session: UInt64) {
        Task {
            do throws(SharedDeviceError) {
                let question: BrokerProtocol.Fields = [
                    "session": .uint64(session), "reason": .string("shared-device watch"),
                ]
                _ = try await broker.call(.signOutAnyone, question, attempted: "sign out")
            } catch {
                // Somebody else may have done it meanwhile, which the screen shows.
                guard error.code != .noCurrentAccount, error.code != .currentAccountMismatch else { return }
                change { $0.message = "not signed out: \(error.message)" }
            }
        }
    }
}

/// Whether the broker's name has an owner. While it has none, whoever wants to ask waits here until the bus announces one, and asks nobody.
private final class BrokerPresence: Sendable {
    private struct State {
        /// `nil` where the bus does not announce owners.
        var isThere: Bool?
        /// Grows with each announcement.
        var generation: UInt64 = 0
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let connection: DBusConnection
    private let state = Locked(State())
    private let owner = Locked<NameOwner?>(nil)

    init(_ connection: DBusConnection) { self.connection = connection }

    var generation: UInt64 { state.withLock { $0.generation } }

    /// Begins to listen; where the bus does not let it, those who wait ask again after a pause.
    func start() async {
        let owner = NameOwner(of: BrokerProtocol.busName, on: connection) { [weak self] in self?.set($0 != nil) }
        self.owner.withLock { $0 = owner }
        do throws(DBusError) {
            try await owner.start()
            let isThere = owner.current != nil
            // What was announced meanwhile is newer.
            state.withLock { if $0.generation == 0 { $0.isThere = isThere } }
        } catch {
            self.owner.withLock { $0 = nil }
        }
    }

    private func set(_ isThere: Bool) {
        let woken = state.withLock { state in
            state.isThere = isThere
            state.generation += 1
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in woken { continuation.resume() }
    }

    /// After a question that failed.
    ///
    /// - Parameters:
    ///   - generation: from before that question. If the owner has changed since, this returns at once: the next question may also start a broker
    ///     that the bus can start.
    ///   - pause: what is waited where there is an owner, or nobody knows.
    func wait(after generation: UInt64, otherwise pause: Duration) async {
        guard state.withLock({ $0.isThere == false }) else {
            try? await Task.sleep(for: pause)
            return
        }
        await withCheckedContinuation { continuation in
            let hasChanged = state.withLock { state in
                if state.generation != generation { return true }
                state.waiting.append(continuation)
                return false
            }
            if hasChanged { continuation.resume() }
        }
    }
}
