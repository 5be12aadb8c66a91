import BrokerCore
import DBus
import DeviceConfiguration
import Foundation
@_spi(Extensions) import SharedDevice

/// The enforcer, which works as `Enforcer` does: it asks for overdue apps, stops their processes, deletes their data
/// and reports. It handles several apps at a time. Any other event may happen between two steps, including the end of
/// the enforcer.
extension World {
    struct EnforcerProcess {
        struct Work {
            let participant: Participant
            let sessions: Set<UInt64>
            var connections: Set<String>
            var stage = Stage.stop
            /// The report that has no response yet.
            var report: UInt64?
            /// When the file system, which delays the deletion, responds again.
            var goesOnAt = Duration.zero

            func canAct(at now: Duration) -> Bool { stage != .waits && goesOnAt <= now }
        }

        enum Stage { case stop, delete, report, waits }

        /// The request for overdue apps that has no response yet.
        var question: UInt64?
        var work: [Work] = []

        /// When to repeat a request to which the broker did not respond.
        var retryAt: Duration?

        func canAsk(at now: Duration) -> Bool { question == nil && retryAt.map { $0 <= now } ?? true }

        /// The next time at which delayed work continues.
        func nextTime(after now: Duration) -> Duration? {
            ([retryAt].compactMap { $0 } + work.map(\.goesOnAt)).filter { $0 > now }.min()
        }

        /// Whether it has a step that does not wait for a response.
        func canAct(at now: Duration) -> Bool { canAsk(at: now) || work.contains { $0.canAct(at: now) } }
    }

    func startEnforcer() {
        guard enforcer == nil, isBusUp else { return }
        note("the enforcement starts")
        slots[Self.enforcer].toApp = []
        enforcer = EnforcerProcess()
    }

    func killEnforcer() {
        guard enforcer != nil else { return }
        note("the enforcement is killed")
        enforcer = nil
        let connection = slots[Self.enforcer].connection
        slots[Self.enforcer].toBroker.append(.left(connection))
        oracle.left(connection)
        unanswered = unanswered.filter { $0.value != Self.enforcer }
        slots[Self.enforcer].toApp = []
        let left = slots[Self.enforcer].toBroker
        connect(Self.enforcer)
        slots[Self.enforcer].toBroker = left
    }

    // MARK: Steps

    func enforcerActs() {
        guard let enforcer, enforcer.canAct(at: now.uptime) else { return }
        let ready = enforcer.work.indices.filter { enforcer.work[$0].canAct(at: now.uptime) }
        if enforcer.canAsk(at: now.uptime), ready.isEmpty || random.chance(30) {
            let underWay = Set(enforcer.work.map(\.participant))
            let patience = Duration.seconds(underWay.isEmpty ? 60 : 5)
            self.enforcer?.question = send(Self.enforcer, .overdue(underWay: underWay, patience: patience))
            return
        }
        guard !ready.isEmpty else { return }
        let index = ready[random.below(ready.count)]
        let work = enforcer.work[index]
        switch work.stage {
        case .stop:
            for index in Setting.apps where slots[index].isRunning && isMeant(index, work) { killApp(index) }
            self.enforcer?.work[index].stage = mutant == .enforcementReportsFirst ? .report : .delete
            if random.chance(20) {
                self.enforcer?.work[index].goesOnAt = now.uptime + .seconds(random.below(90))
                // A broker that restarts at this point must still know of the claim.
                if broker != nil, random.chance(50) {
                    killBroker(isPowerCut: false)
                    startBroker()
                }
            }
        case .delete:
            delete(work)
            self.enforcer?.work[index].stage = .report
        case .report:
            let (app, user) = (work.participant.app, work.participant.user)
            let problem = random.chance(10) ? "the disk is read-only" : nil
            self.enforcer?.work[index].report = send(
                Self.enforcer,
                .enforced(app: app, user: user, sessions: work.sessions, detail: nil, problem: problem)
            )
            self.enforcer?.work[index].stage = .waits
        case .waits: break
        }
    }

    /// Whether the process must be stopped. The app's program is identified by user and file, and processes with the
    /// account by their connections.
    private func isMeant(_ index: Int, _ work: EnforcerProcess.Work) -> Bool {
        slots[index].home.map { homes[$0].participant == work.participant } ?? false
            || work.connections.contains(slots[index].connection)
    }

    private func delete(_ work: EnforcerProcess.Work) {
        for (index, home) in homes.enumerated() where home.participant == work.participant {
            note("the enforcement deletes what home \(index) has: \(home.sessions.sorted())")
            if let broker, broker.device.account != nil, home.sessions.contains(broker.device.epoch) {
                oracle.fail("the data of the present user was deleted", "home \(index), session \(broker.device.epoch)")
            }
            homes[index].data = homes[index].data.map { _ in [] }
        }
    }

    func enforcerReads() {
        guard !slots[Self.enforcer].toApp.isEmpty, var process = enforcer else { return }
        let (number, result): (UInt64, Result<BrokerProtocol.Fields, Refusal>?)
        switch slots[Self.enforcer].toApp.removeFirst() {
        case .reply(let found, let answer): (number, result) = (found & 0xFFFF_FFFF, answer)
        case .failed(let found): (number, result) = (found & 0xFFFF_FFFF, nil)
        case .broadcast, .reconnected: return
        }
        let answer = try? result?.get()
        if number == process.question {
            process.question = nil
            let handed = (answer?["overdue"]?.elementsValue ?? []).compactMap(Self.work)
            let isNews = handed.contains { new in process.work.allSatisfy { $0.participant != new.participant } }
            process.retryAt = answer == nil || !handed.isEmpty && !isNews ? now.uptime + .seconds(1) : nil
            for work in handed {
                if !process.work.contains(where: { $0.participant == work.participant }) { process.work.append(work) }
            }
        } else if let index = process.work.firstIndex(where: { $0.report == number }) {
            let work = process.work[index]
            let left = answer?["connections"]?.stringsValue ?? []
            if mutant == .enforcementReportsFirst { delete(work) }
            if !left.isEmpty {
                process.work[index].report = nil
                process.work[index].connections = Set(left)
                process.work[index].stage = .stop
            } else {
                process.work.remove(at: index)
            }
        }
        enforcer = process
    }

    private static func work(_ value: DBusValue) -> EnforcerProcess.Work? {
        guard let fields = value.fieldsValue, let app = fields["app"]?.stringValue,
            let user = fields["user"]?.unsignedValue,
            let sessions = fields["sessions"]?.elementsValue, let connections = fields["connections"]?.stringsValue
        else { return nil }
        return EnforcerProcess.Work(
            participant: Participant(app: app, user: UInt32(user)),
            sessions: Set(sessions.compactMap(\.unsignedValue)),
            connections: Set(connections)
        )
    }
}
