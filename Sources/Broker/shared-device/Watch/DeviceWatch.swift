import DBusTransport
import DeviceView
import FoundationEssentials
import SharedDevice
import Synchronization

/// Follows the broker: each question waits for a change, so that an answer is there when there is something to show.
final class DeviceWatch: Sendable {
    /// How long a question waits for a change. After a little more without an answer the broker counts as gone.
    private static let patience = 10.0
    /// Between two questions to a broker that does not answer, or does not want to.
    private static let pause = Duration.seconds(1)

    private struct State {
        var view = DeviceView()
        var message: String?
    }

    private let broker: BrokerAdministration
    private let onChange: @Sendable () -> Void
    private let state = Locked(State())

    /// - Parameter onChange: called on any thread after each answer.
    init(_ broker: BrokerAdministration, onChange: @escaping @Sendable () -> Void) {
        self.broker = broker
        self.onChange = onChange
    }

    var view: DeviceView { state.withLock { $0.view } }
    /// Why the last sign-out was not done; `nil` if it was.
    var message: String? { state.withLock { $0.message } }

    /// Somebody has seen the message.
    func dismissMessage() { state.withLock { $0.message = nil } }

    /// Asks from here on, until the program ends.
    func start(withLog: Bool) {
        Task { await followDevice() }
        if withLog { Task { await followLog() } }
    }

    private func change(_ body: @Sendable (inout State) -> Void) {
        state.withLock { body(&$0) }
        onChange()
    }

    private func followDevice() async {
        var known: UInt64?
        while true {
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
                try? await Task.sleep(for: Self.pause)
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
                try? await Task.sleep(for: Self.pause)
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
