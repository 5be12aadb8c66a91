import Foundation
@_spi(Extensions) import SharedDevice
import Testing
import simulate

@testable import BrokerCore

/// The simulation's numbers, for the random choices of the standard library.
struct SeededGenerator: RandomNumberGenerator {
    private var numbers: SplitMix64

    init(state: UInt64) { numbers = SplitMix64(seed: state) }

    mutating func next() -> UInt64 { numbers.next() }
}

@Suite("Invariants of the cleanup ledger under random sequences of steps")
struct CleanupLedgerPropertyTests {
    private enum Step {
        case begin, end
        case hold(Participant, String)
        case tell(Participant)
        case ask(Participant, String)
        /// A report under the current mark or, with `isBehind`, under the previous one.
        case report(CleanupReport.Progress, Participant, UInt64, String?, isBehind: Bool)
        case disconnected(String)
        case gone(Participant)
        case expire(Double)
        case rename(Participant, Participant)
        case prune
    }

    private let participants = ["a", "b"].flatMap { app in [1, 2].map { Participant(app: app, user: $0) } }
    private let connections = [":1", ":2", ":3"]

    private func step(_ number: UInt64, using generator: inout SeededGenerator) -> Step {
        let one = participants.randomElement(using: &generator) ?? "a"
        let other = participants.randomElement(using: &generator) ?? "b"
        let connection = connections.randomElement(using: &generator) ?? ":1"
        let session = UInt64.random(in: 0...(number + 1), using: &generator)
        let progress = CleanupReport.Progress.allCases.randomElement(using: &generator) ?? .begun
        return switch Int.random(in: 0..<24, using: &generator) {
        case 0..<2: .begin
        case 2..<4: .end
        case 4..<8: .hold(one, connection)
        case 8..<10: .tell(one)
        // A waiver comes from the administrator, not from a process. An app cannot report a waiver.
        case 10..<16:
            .report(
                progress,
                one,
                session,
                progress == .waived ? nil : connection,
                isBehind: Int.random(in: 0..<4, using: &generator) == 0
            )
        case 16: .gone(one)
        case 17: .expire(Double.random(in: 0...50, using: &generator))
        case 18: .rename(one, other)
        case 19..<21: .disconnected(connection)
        case 21..<23: .ask(one, connection)
        default: .prune
        }
    }

    /// The progress of a debt as a rank, which falls only if a process ends or a receipt does not count. A failed
    /// cleanup may begin again, so both have the same rank.
    private func rank(_ progress: CleanupReport.Progress) -> Int {
        switch progress {
        case .owed: 0
        case .told: 1
        case .begun, .failed: 2
        case .finished, .waived, .enforced: 3
        }
    }

    @Test("only a receipt or a waiver settles a debt, and the ledger stays consistent", arguments: 0..<20)
    func invariants(seed: Int) {
        var generator = SeededGenerator(state: UInt64(seed))
        var ledger = CleanupLedger()
        var number: UInt64 = 0
        var isOpen = false
        // The contents of a disk that accepts each change.
        var stored = (sessions: ledger.sessions, parts: ledger.parts)
        for turn in 0..<300 {
            let before = ledger
            let now = Moment.at(Double(turn))
            let step = step(number, using: &generator)
            switch step {
            case .begin:
                guard !isOpen else { continue }
                (number, isOpen) = (number + 1, true)
                ledger.begin(number, account: .ada, at: now)
            case .end:
                guard isOpen else { continue }
                ledger.end(number, at: now)
                (number, isOpen) = (number + 1, false)
            case .hold(let app, let connection): _ = ledger.hold(number, by: app, on: connection)
            case .tell(let app): _ = ledger.tell(app, at: now)
            case .ask(let app, let connection): ledger.ask(app, on: connection)
            case .report(let progress, let app, let session, let connection, let isBehind):
                let mark = (ledger.parts[session]?[app]?.mark ?? 0) &- (isBehind ? 1 : 0)
                _ = ledger.report(progress, of: session, by: app, on: connection, mark: mark, detail: nil, at: now)
            case .disconnected(let connection): _ = ledger.connectionEnded(connection, mark: UInt64(turn + 1))
            case .gone(let app): _ = ledger.processEnded(app)
            case .expire(let timeout): _ = ledger.expire(timeout: .seconds(timeout), at: now)
            case .rename(let old, let new): _ = ledger.rename(old, to: new)
            case .prune: ledger.prune(keeping: 3, namesSince: .distantPast)
            }
            let context = "seed \(seed), turn \(turn): \(step)"
            check(ledger, after: before, step, context)
            if !isConsistent(ledger) {
                Issue.record("the ledger contradicts itself; \(context)")
                return
            }
            var batch = Batch(number: 1)
            batch.add(&ledger)
            ledger.unsaved.saved()
            write(batch, to: &stored)
            if stored.sessions != ledger.sessions || !hasSame(stored.parts, ledger.parts) {
                Issue.record("the changes do not name all that has changed; \(context)")
                return
            }
        }
        #expect(number > 5, "the sequence began several sessions")
    }

    private typealias Parts = [UInt64: [Participant: CleanupLedger.Part]]

    private func write(_ batch: Batch, to stored: inout (sessions: [UInt64: CleanupLedger.Session], parts: Parts)) {
        for (number, session) in batch.sessions {
            stored.sessions[number] = session
            // The store removes a session together with its parts.
            if session == nil { stored.parts[number] = nil }
        }
        for (number, participants) in batch.parts {
            for (participant, part) in participants { stored.parts[number, default: [:]][participant] = part }
        }
    }

    /// Whether both are equal. State that is kept in memory only is ignored.
    private func hasSame(_ stored: Parts, _ parts: Parts) -> Bool {
        func strip(_ parts: Parts) -> Parts {
            parts.mapValues { parts in
                parts.mapValues { part in
                    var part = part
                    part.connections = []
                    part.isReported = false
                    part.reported = []
                    return part
                }
            }.filter { !$0.value.isEmpty }
        }
        return strip(stored) == strip(parts)
    }

    private func check(_ ledger: CleanupLedger, after before: CleanupLedger, _ step: Step, _ context: String) {
        for (number, parts) in before.parts {
            for (app, old) in parts {
                if case .rename(let from, let to) = step, app == from || app == to {
                    let held = [from, to].compactMap { parts[$0] }.filter { $0.progress?.isSettled == false }
                    let new = ledger.parts[number]?[to]
                    let isOwed = new?.progress?.isSettled == false
                    if !held.isEmpty, !isOwed { Issue.record("a rename settled a debt; \(context)") }
                    if held.contains(where: { !$0.connections.isSubset(of: new?.connections ?? []) }) {
                        Issue.record("a rename forgot a process; \(context)")
                    }
                    continue
                }
                let new = ledger.parts[number]?[app]
                guard let progress = old.progress else {
                    if new == nil { Issue.record("a holder was forgotten; \(context)") }
                    continue
                }
                if progress.isSettled {
                    if let new, new.progress != old.progress {
                        Issue.record("a settled debt has changed; \(context)")
                    }
                    continue
                }
                guard let next = new?.progress else {
                    Issue.record("a debt has disappeared; \(context)")
                    continue
                }
                if next.isSettled {
                    if !maySettle(old, step, app, number) {
                        Issue.record("a debt was settled without a report; \(context)")
                    }
                    continue
                }
                if case .gone(app) = step { continue }
                // A process ended without a report, so the other processes must clean up again.
                if case .disconnected(let connection) = step, old.connections.contains(connection) { continue }
                if case .report(.finished, app, number, _, isBehind: true) = step { continue }
                if rank(next) < rank(progress) { Issue.record("progress went back; \(context)") }
            }
        }
    }

    /// Whether this step may settle the debt: a waiver, or the receipt of the last process with the account. The
    /// receipt must have the current mark, which shows that its sender knew of each process that ended before.
    private func maySettle(_ old: CleanupLedger.Part, _ step: Step, _ app: Participant, _ number: UInt64) -> Bool {
        switch step {
        case .report(.waived, app, number, nil, _): true
        case .report(.finished, app, number, let connection?, isBehind: false):
            old.connections.subtracting([connection]).isEmpty
        default: false
        }
    }

    private func isConsistent(_ ledger: CleanupLedger) -> Bool {
        for (number, session) in ledger.sessions {
            let parts = (ledger.parts[number] ?? [:]).values
            let isSettled = parts.allSatisfy { $0.progress?.isSettled == true }
            switch session.outcome {
            case nil:
                guard session.endedAt == nil, session.account != nil, parts.allSatisfy({ $0.progress == nil }) else {
                    return false
                }
            case .complete: guard isSettled, session.account == nil else { return false }
            case .open, .expired:
                guard !isSettled, session.account != nil, parts.allSatisfy({ $0.progress != nil }) else { return false }
            }
        }
        let owed = participants.flatMap { app in ledger.owed(by: app).map { "\(app.app) \(app.user) \($0.epoch)" } }
        let reported = ledger.rounds.flatMap { number in
            (ledger.report(of: number)?.owing ?? []).map { "\($0.identifier) \($0.user ?? 0) \(number)" }
        }
        return owed.sorted() == reported.sorted()
            && ledger.debtors == Set(participants.filter { !ledger.owed(by: $0).isEmpty })
            && ledger.parts.filter { !$0.value.isEmpty }.keys.allSatisfy { ledger.sessions[$0] != nil }
            && ledger.awaited.isSubset(of: ledger.debtors)
            // An app owes a session exactly if at least one connection owes it.
            && participants.allSatisfy { app in
                let all = Set(ledger.owed(by: app).map(\.epoch))
                let each = (connections + [":new"]).map { Set(ledger.owed(by: app, on: $0).map(\.epoch)) }
                return each.reduce([]) { $0.union($1) } == all
            }
    }
}
