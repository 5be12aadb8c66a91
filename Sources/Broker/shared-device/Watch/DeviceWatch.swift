import Basics
import CommandParts
import DBus
import FoundationEssentials
@_spi(Extensions) import SharedDevice
import Synchronization

/// Follows the broker with requests that wait for a change.
final class DeviceWatch: Sendable {
    /// How long a request waits for a change, in seconds. Shortly after that, the broker counts as gone.
    private static let patience = 10.0
    /// The pause after a failed request to a running broker.
    fileprivate static let pause = Duration.seconds(1)

    private struct State {
        var view = DeviceView()
        var message: String?
    }

    private let broker: BrokerAdministration
    private let presence: BrokerPresence
    private let onChange: @Sendable () -> Void
    private let state = Locked(State())

    /// - Parameter onChange: Called on any thread after each response.
    init(_ broker: BrokerAdministration, onChange: @escaping @Sendable () -> Void) {
        self.broker = broker
        presence = BrokerPresence(broker.connection)
        self.onChange = onChange
    }

    var view: DeviceView { state.withLock { $0.view } }
    /// Why the last sign-out failed; `nil` if it succeeded.
    var message: String? { state.withLock { $0.message } }

    func dismissMessage() { state.withLock { $0.message = nil } }

    /// Starts to follow the broker until the program ends.
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
                // A broker of another version may respond at once, despite `wait`.
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
                await presence.wait(after: generation)
            }
        }
    }

    /// - Returns: `nil` if the broker no longer keeps the round, or if the round comes from a later version.
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
                // An observer who loses the right also loses the data. When the right returns, it starts over.
                if error.code == .notPermitted { newest = nil }
                await presence.wait(after: generation)
            }
        }
    }

    private func ask(
        _ method: BrokerProtocol.Method,
        _ fields: BrokerProtocol.Fields
    ) async throws(SharedDeviceError) -> BrokerProtocol.Fields {
        try await broker.call(method, fields, timeout: .seconds(Self.patience + 5))
    }

    /// Ends this session, and no other. A failure becomes the ``message``.
    func signOut(_ session: UInt64) {
        Task {
            do throws(SharedDeviceError) {
                let reason = DBusValue.string("shared-device watch")
                let question = ["session": .uint64(session), "reason": reason]
                _ = try await broker.call(.signOutAnyone, question, attempted: "sign out")
            } catch {
                // The session was ended by another request, which the screen shows.
                guard error.code != .noCurrentAccount, error.code != .currentAccountMismatch else { return }
                change { $0.message = "not signed out: \(error.message)" }
            }
        }
    }
}

/// Whether the broker's name has an owner. While it has none, callers wait here, without sending requests.
private final class BrokerPresence: Sendable {
    private struct State {
        /// `nil` if the bus does not announce owners.
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

    /// Begins to listen. If the bus refuses, callers retry after a pause instead.
    func start() async {
        let owner = NameOwner(of: BrokerProtocol.busName, on: connection) { [weak self] in self?.set($0 != nil) }
        self.owner.withLock { $0 = owner }
        do throws(DBusError) {
            try await owner.start()
            // Repeat if an announcement arrived in between, because it is newer.
            var isThere: Bool
            repeat {
                isThere = owner.current != nil
                set(isThere)
            } while isThere != (owner.current != nil)
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

    /// Waits after a failed request: for an owner, or for a pause if there is one, or if that is unknown. If the owner
    /// has changed since `generation`, this returns at once. The next request may start the broker.
    func wait(after generation: UInt64) async {
        guard state.withLock({ $0.isThere == false }) else {
            try? await Task.sleep(for: DeviceWatch.pause)
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
