import Foundation
import SharedDevice
import Testing

@testable import SharedDeviceBroker

/// Numbers that a seed repeats (SplitMix64).
struct SeededGenerator: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}

@Suite("The cleanup ledger, whatever happens in whatever order")
struct CleanupLedgerPropertyTests {
    private enum Step {
        case begin, end
        case hold(String)
        case tell(String)
        case report(CleanupReport.Progress, String, UInt64)
        case gone(String)
        case expire(Double)
        case rename(String, String)
        case prune
    }

    private let apps = ["a", "b", "c", "d"]

    private func step(_ epoch: UInt64, using generator: inout SeededGenerator) -> Step {
        let app = apps.randomElement(using: &generator) ?? "a"
        let other = apps.randomElement(using: &generator) ?? "b"
        let session = UInt64.random(in: 0...(epoch + 1), using: &generator)
        let progress = CleanupReport.Progress.allCases.randomElement(using: &generator) ?? .begun
        return switch Int.random(in: 0..<20, using: &generator) {
        case 0..<2: .begin
        case 2..<4: .end
        case 4..<8: .hold(app)
        case 8..<10: .tell(app)
        case 10..<16: .report(progress, app, session)
        case 16: .gone(app)
        case 17: .expire(Double.random(in: 0...50, using: &generator))
        case 18: .rename(app, other)
        default: .prune
        }
    }

    /// How far a duty is, as it may only grow: a cleanup that failed may be begun again.
    private func rank(_ progress: CleanupReport.Progress) -> Int {
        switch progress {
        case .owed: 0
        case .told: 1
        case .begun, .failed: 2
        case .finished, .waived: 3
        }
    }

    @Test("a duty goes only by a receipt or a waiver, and what the ledger says of itself agrees", arguments: 0..<60)
    func invariants(seed: Int) {
        var generator = SeededGenerator(state: UInt64(seed))
        var ledger = CleanupLedger()
        var epoch: UInt64 = 0
        var isOpen = false
        for turn in 0..<300 {
            let before = ledger
            let now = Date(timeIntervalSince1970: Double(turn))
            let step = step(epoch, using: &generator)
            switch step {
            case .begin:
                guard !isOpen else { continue }
                (epoch, isOpen) = (epoch + 1, true)
                ledger.begin(epoch, account: .ada, subject: 1, at: now)
            case .end:
                guard isOpen else { continue }
                ledger.end(epoch, at: now)
                (epoch, isOpen) = (epoch + 1, false)
            case .hold(let app): _ = ledger.hold(epoch, by: app)
            case .tell(let app): _ = ledger.tell(app, at: now)
            case .report(let progress, let app, let session):
                _ = ledger.report(progress, of: session, by: app, detail: nil, at: now)
            case .gone(let app): _ = ledger.processEnded(app)
            case .expire(let timeout): _ = ledger.expire(timeout: timeout, at: now)
            case .rename(let old, let new): _ = ledger.rename(old, to: new)
            case .prune: ledger.prune(keeping: 3)
            }
            check(ledger, after: before, step, "seed \(seed), turn \(turn): \(step)")
            if !isConsistent(ledger) {
                Issue.record("the ledger contradicts itself; seed \(seed), turn \(turn): \(step)")
                return
            }
        }
        #expect(epoch > 5, "the sequence went somewhere")
    }

    private func check(_ ledger: CleanupLedger, after before: CleanupLedger, _ step: Step, _ context: String) {
        for (epoch, parts) in before.participations {
            for (app, old) in parts {
                if case .rename(let from, let to) = step, app == from || app == to {
                    let held = [from, to].filter { parts[$0]?.progress?.isSettled == false }
                    let isOwed = ledger.participations[epoch]?[to]?.progress?.isSettled == false
                    if !held.isEmpty, !isOwed { Issue.record("a rename settled a duty; \(context)") }
                    continue
                }
                let new = ledger.participations[epoch]?[app]
                guard let progress = old.progress else {
                    // Open: it stays until the session ends.
                    if new == nil { Issue.record("a holder was forgotten; \(context)") }
                    continue
                }
                if progress.isSettled {
                    if let new, new != old { Issue.record("what was settled has changed; \(context)") }
                    continue
                }
                guard let next = new?.progress else {
                    Issue.record("a duty has disappeared; \(context)")
                    continue
                }
                if next.isSettled, case .report(let reported, app, epoch) = step, reported == next { continue }
                if next.isSettled { Issue.record("a duty was settled by nobody's word; \(context)") }
                if case .gone(app) = step { continue }
                if rank(next) < rank(progress) { Issue.record("progress went back; \(context)") }
            }
        }
    }

    private func isConsistent(_ ledger: CleanupLedger) -> Bool {
        for (epoch, session) in ledger.sessions {
            let parts = (ledger.participations[epoch] ?? [:]).values
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
        let owed = apps.flatMap { app in ledger.owed(by: app).map { "\(app) \($0.epoch)" } }
        let reported = ledger.rounds.flatMap { epoch in
            (ledger.report(of: epoch)?.owing ?? []).map { "\($0.identifier) \(epoch)" }
        }
        return owed.sorted() == reported.sorted()
            && ledger.debtors == Set(apps.filter { !ledger.owed(by: $0).isEmpty })
            && ledger.participations.keys.allSatisfy { ledger.sessions[$0] != nil }
            && Set(ledger.awaited).isSubset(of: ledger.debtors)
    }
}
