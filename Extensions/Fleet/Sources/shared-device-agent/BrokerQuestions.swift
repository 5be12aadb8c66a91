import Basics
import DBus
import Fleet
import FoundationEssentials
@_spi(Extensions) import SharedDevice

/// The agent's calls to the device's broker: it only reads and signs out (FL-8).
struct BrokerQuestions: Sendable {
    /// How long the broker may hold a request, in seconds.
    private static let wait = 50.0
    private static let patience = Duration.seconds(75)

    let broker: BrokerAdministration

    /// The device's state, at once if its revision differs from the known one, otherwise after a change.
    func view(after known: UInt64?) async throws(SharedDeviceError) -> (view: DeviceView, revision: UInt64?) {
        var request: BrokerProtocol.Fields = [:]
        if let known { (request["revision"], request["wait"]) = (.uint64(known), .double(Self.wait)) }
        let status = try await broker.call(.getStatus, request, attempted: "ask the broker", timeout: Self.patience)
        guard let epoch = status["epoch"]?.unsignedValue, let mode = status["mode"]?.stringValue else {
            throw SharedDeviceError(.brokerFailed, attempted: "ask the broker", message: "its response lacks “epoch”")
        }
        var rounds: [DeviceReport.Round] = []
        var room = Room()
        // The newest first, because its steps are the most useful.
        for session in Self.sessions(status).reversed() {
            if let report = try await round(of: session) { rounds.insert(room.take(report), at: 0) }
        }
        let view = DeviceView(
            mode: mode,
            epoch: epoch,
            isSignedIn: status["account"] != nil,
            rounds: rounds,
            // Brokers before version 2 do not send it.
            isStored: status["isStored"]?.booleanValue ?? true
        )
        return (view, status["revision"]?.unsignedValue)
    }

    /// The sessions with pending cleanups and the newest ended session, in ascending order.
    private static func sessions(_ status: BrokerProtocol.Fields) -> [UInt64] {
        let owed = (status["apps"]?.elementsValue ?? []).compactMap { $0.fieldsValue?["owes"]?.elementsValue }
        var sessions = Set(owed.joined().compactMap(\.unsignedValue))
        if let newest = status["rounds"]?.elementsValue?.compactMap(\.unsignedValue).max() { sessions.insert(newest) }
        let sorted = sessions.sorted()
        // An order has just ended the newest session.
        return sorted.prefix(DeviceReport.mostRounds - 1) + sorted.dropFirst(DeviceReport.mostRounds - 1).suffix(1)
    }

    private func round(of session: UInt64) async throws(SharedDeviceError) -> CleanupReport? {
        let answer = try await broker.call(
            .getRound,
            ["administration": .boolean(true), "session": .uint64(session)],
            attempted: "ask the broker for the round of session \(session)"
        )
        guard answer["round"] != nil else { return nil }
        do throws(BrokerProtocol.Malformed) {
            return try CleanupReport(answer["round"])
        } catch {
            throw SharedDeviceError(
                .brokerFailed,
                attempted: "read the round of session \(session)",
                message: "its response lacks “\(error.field)”"
            )
        }
    }

    /// The remaining room of a report, to stay within the size of a message.
    private struct Room {
        var debts = DeviceReport.mostDebts
        var (steps, stepBytes) = (DeviceReport.mostSteps, DeviceReport.mostStepBytes)

        mutating func take(_ report: CleanupReport) -> DeviceReport.Round {
            let owing = report.owing
            let waived = report.apps.count { $0.progress == .waived }
            let enforced = report.apps.count { $0.progress == .enforced }
            let told = owing.prefix(debts)
            debts -= told.count
            var steps: [DeviceReport.Round.Step] = []
            for app in owing + report.apps.filter(\.progress.isSettled) {
                let step = DeviceReport.Round.Step(
                    app: DeviceReport.name(app.identifier),
                    progress: app.progress.rawValue,
                    told: Self.milliseconds(app.toldAfter),
                    begun: Self.milliseconds(app.begunAfter),
                    finished: Self.milliseconds(app.finishedAfter)
                )
                guard self.steps > 0, step.size <= stepBytes else { continue }
                (self.steps, stepBytes) = (self.steps - 1, stepBytes - step.size)
                steps.append(step)
            }
            var round = DeviceReport.Round(
                session: report.session,
                finished: UInt64(report.apps.count - owing.count - waived - enforced),
                owing: told.map { .init(app: DeviceReport.name($0.identifier), progress: $0.progress.rawValue) }
            )
            (round.waived, round.enforced) = (UInt64(waived), UInt64(enforced))
            (round.more, round.steps) = (UInt64(owing.count - told.count), steps)
            round.ended = report.endedAt.timeIntervalSince1970
            return round
        }

        private static func milliseconds(_ seconds: Double?) -> UInt64? {
            seconds.flatMap { (0...1e9).contains($0) ? UInt64(($0 * 1000).rounded()) : nil }
        }
    }

    /// Ends this session, and no other.
    func signOut(_ session: UInt64, reason: String) async -> AgentEvent.SignOutAnswer {
        do throws(SharedDeviceError) {
            let answer = try await broker.call(
                .signOutAnyone,
                ["session": .uint64(session), "reason": .string(reason)],
                attempted: "sign session \(session) out"
            )
            return answer["stored"]?.booleanValue == false ? .endedUnstored : .ended
        } catch {
            switch error.code {
            case .noCurrentAccount, .currentAccountMismatch: return .overAlready
            case .notPermitted:
                return .refused("\(error.message); name the agent's user in “operators” of the managed configuration")
            default: return .failed("\(error)")
            }
        }
    }
}
