import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore

extension Participant: ExpressibleByStringLiteral {
    public init(stringLiteral app: String) { self.init(app: app, user: 1000) }
}

extension Moment {
    /// The moment this many seconds after the start of a test, on both clocks. Halves of seconds are exact, so times
    /// are unchanged after a round trip through the store.
    static func at(_ seconds: Double) -> Moment {
        Moment(wall: Date(timeIntervalSince1970: 1_000_000.5 + seconds), uptime: .seconds(5000 + seconds))
    }
}

extension CleanupLedger {
    /// A ledger in which Ada's session 2 is open.
    static var withSession: CleanupLedger {
        var ledger = CleanupLedger()
        ledger.begin(2, account: .ada, at: .at(0))
        return ledger
    }
}

@Suite("The cleanup ledger: holders of data, and their debts after a sign-out")
struct CleanupLedgerTests {
    typealias Progress = CleanupReport.Progress

    /// A ledger in which Ada's session 2 has ended, with these apps as holders.
    private func ended(_ apps: Participant...) -> CleanupLedger {
        var ledger = CleanupLedger.withSession
        for app in apps { _ = ledger.hold(2, by: app, on: nil) }
        ledger.end(2, at: .at(10))
        return ledger
    }

    private func ledger(_ progress: Progress, app: Participant = "a") -> CleanupLedger {
        var ledger = ended(app, "other")
        if progress != .owed { _ = ledger.tell(app, at: .at(11)) }
        if progress != .owed, progress != .told { move(&ledger, app, to: progress) }
        return ledger
    }

    private func move(_ ledger: inout CleanupLedger, _ app: Participant, to progress: Progress) {
        if progress == .enforced {
            ledger.claim(app, CleanupLedger.Claim(connection: "enforcer", sessions: [2]))
            _ = ledger.enforce(app, detail: nil, at: .at(12))
        } else {
            _ = ledger.report(progress, of: 2, by: app, on: nil, detail: nil, at: .at(12))
        }
    }

    private func expect<Value: Equatable>(
        _ expected: Value,
        of value: Value,
        _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(value == expected, comment, sourceLocation: sourceLocation)
    }

    private func progress(_ ledger: CleanupLedger, _ app: Participant = "a", of epoch: UInt64 = 2) -> Progress? {
        ledger.parts[epoch]?[app]?.progress
    }

    // MARK: Sessions

    @Test("an app is listed once in an open session, and owes one cleanup after its end")
    func hold() {
        var ledger = CleanupLedger.withSession
        // The second call repeats the hold; the third names an unknown session.
        let inTime = [2, 2, 3].map { ledger.hold($0, by: "a", on: nil) }
        #expect(ledger.owed(by: "a").isEmpty, "nothing is owed while the session is open")
        #expect(ledger.report(of: 2) == nil)
        ledger.end(2, at: .at(1))
        let late = ledger.hold(2, by: "b", on: nil)
        #expect(inTime == [true, false, false] && !late && ledger.parts[2]?.keys.sorted() == ["a"])
        ledger = ended("b", "a")
        #expect(ledger.openRounds.map(\.number) == [2])
        #expect([ledger.awaited, ledger.debtors, ledger.idle].allSatisfy { $0 == ["a", "b"] })
        #expect(ledger.owed(by: "a") == [OwedSession(epoch: 2, account: .ada)])
        let report = ledger.report(of: 2) { $0 == "b" }
        let apps = ["a", "b"].map {
            CleanupReport.App(identifier: $0, user: 1000, progress: .owed, isRunning: $0 == "b")
        }
        #expect(report == CleanupReport(session: 2, endedAt: Moment.at(10).wall, outcome: .open, apps: apps))
        let unused = ended()
        #expect(unused.report(of: 2)?.isComplete == true && unused.sessions[2]?.account == nil)
        #expect(unused.openRounds.isEmpty, "no app was told of the session")
        let begun = self.ledger(.begun)
        var again = begun
        again.end(2, at: .at(99))
        again.end(77, at: .at(99))
        #expect(again == begun, "one session has ended before, the other one is unknown")
    }

    // MARK: Steps

    @Test("an app that asks is told once of all cleanups that it owes")
    func tell() {
        var ledger = ended("a")
        ledger.begin(4, account: .grace, at: .at(20))
        _ = ledger.hold(4, by: "a", on: nil)
        ledger.end(4, at: .at(30))
        let first = ledger.tell("a", at: .at(31))
        #expect(first == [2, 4])
        #expect(progress(ledger) == .told && progress(ledger, of: 4) == .told)
        #expect(ledger.parts[2]?["a"]?.toldAt == Moment.at(31).wall)
        #expect(ledger.idle == ["a"], "told, and not begun")
        let (second, stranger) = (ledger.tell("a", at: .at(32)), ledger.tell("b", at: .at(32)))
        #expect(second.isEmpty && stranger.isEmpty)
        #expect(ledger.parts[2]?["a"]?.toldAt == Moment.at(31).wall)
    }

    @Test(
        "a report changes any debt except a settled one",
        arguments: Progress.allCases,
        [Progress.begun, .failed, .finished, .waived]
    )
    func report(before: Progress, reported: Progress) {
        var ledger = ledger(before)
        let effect = ledger.report(reported, of: 2, by: "a", on: nil, detail: "words", at: .at(20))
        guard !before.isSettled else {
            return #expect(effect == .none && ledger == self.ledger(before))
        }
        #expect(effect == (reported == before ? .detailed : .recorded))
        #expect(progress(ledger) == reported)
        let part = ledger.parts[2]?["a"]
        #expect(part?.detail == "words")
        #expect(
            part?.begunAt == (before == .begun ? Moment.at(12).wall : reported == .begun ? Moment.at(20).wall : nil)
        )
        #expect(part?.finishedAt == (reported == .begun ? nil : Moment.at(20).wall))
        // The reporting app knows of the sign-out. A waiver comes from the administrator, so the app may not know.
        #expect((part?.toldAt != nil) == (before != .owed || reported != .waived))
    }

    @Test("a repeated report, one without a debt and one of a broker's state change nothing")
    func reportWithoutDuty() {
        var ledger = ended("a")
        ledger.begin(4, account: .grace, at: .at(20))
        _ = ledger.hold(4, by: "a", on: nil)
        let before = ledger
        for (app, epoch) in [("stranger", 2), ("a", 4), ("a", 77)] as [(Participant, UInt64)] {
            let effect = ledger.report(.finished, of: epoch, by: app, on: nil, detail: nil, at: .at(21))
            #expect(effect == .none && ledger == before)
        }
        let pairs: [(Progress, Progress)] = [(.begun, .begun), (.failed, .failed), (.begun, .owed), (.begun, .told)]
        for (progress, reported) in pairs {
            var ledger = self.ledger(progress)
            let unchanged = ledger
            let effect = ledger.report(reported, of: 2, by: "a", on: nil, detail: nil, at: .at(20))
            #expect(effect == .none && ledger == unchanged, "\(reported) after \(progress)")
        }
    }

    @Test(
        "the last receipt or waiver completes the round and erases the account name",
        arguments: [Progress.finished, .waived]
    )
    func completion(_ last: Progress) {
        var ledger = ended("a", "b")
        expect(.recorded, of: ledger.report(.finished, of: 2, by: "b", on: nil, detail: "3 files", at: .at(11)))
        #expect(ledger.sessions[2]?.account == .ada)
        expect(.completed, of: ledger.report(last, of: 2, by: "a", on: nil, detail: nil, at: .at(12)))
        #expect(ledger.sessions[2]?.account == nil)
        let report = ledger.report(of: 2)
        #expect(report?.isComplete == true && report?.owing.isEmpty == true)
        #expect(report?.apps.last?.finishedAfter == 1 && report?.apps.last?.detail == "3 files")
        #expect(ledger.debtors.isEmpty && ledger.openRounds.isEmpty && ledger.awaited.isEmpty)
    }

    @Test("an app that ends before its receipt owes the whole cleanup again", arguments: Progress.allCases)
    func processEnded(_ before: Progress) {
        var ledger = ledger(before)
        let other = ledger.parts[2]?["other"]
        let interrupted = ledger.processEnded("a")
        let isInterrupted = before == .told || before == .begun
        #expect(interrupted == (isInterrupted ? [2] : []))
        #expect(progress(ledger) == (isInterrupted ? .owed : before))
        if isInterrupted { #expect(ledger.parts[2]?["a"]?.begunAt == nil) }
        #expect(ledger.parts[2]?["other"] == other)
    }

    // MARK: Expiry

    // S19
    @Test("a round expires once, by the monotonic clock, and its debts stay")
    func expire() {
        for (uptime, jump, late) in [
            (19.9, 0, []), (20, 0, [2]), (500, 0, [2]), (19.9, 1000, []), (19.9, -1000, []), (20, -1000, [2]),
        ] as [(Double, Double, [UInt64])] {
            var ledger = ended("a")
            var now = Moment.at(uptime)
            now.wall += jump
            let comment: Comment = "at \(uptime), with the wall clock set by \(jump)"
            expect(late, of: ledger.expire(timeout: .seconds(10), at: now), comment)
            #expect(ledger.sessions[2]?.outcome == (late.isEmpty ? .open : .expired), comment)
            #expect(ledger.owed(by: "a").map(\.account) == [.ada])
        }
        var ledger = CleanupLedger.withSession
        _ = ledger.hold(2, by: "a", on: nil)
        expect([], of: ledger.expire(timeout: .zero, at: .at(9)), "the session has not ended")
        ledger.end(2, at: .at(10))
        expect([2], of: ledger.expire(timeout: .seconds(1), at: .at(100)))
        expect([], of: ledger.expire(timeout: .seconds(1), at: .at(200)))
        #expect(ledger.awaited.isEmpty)
        expect(.completed, of: ledger.report(.finished, of: 2, by: "a", on: nil, detail: nil, at: .at(201)))
        expect([], of: ledger.expire(timeout: .seconds(1), at: .at(300)))
        #expect(ledger.sessions[2]?.outcome == .complete)
    }

    // MARK: Names and memory

    @Test(
        "when two names prove to be one app, the unsettled debt is kept",
        arguments: Progress.allCases,
        Progress.allCases
    )
    func rename(old: Progress, new: Progress) {
        var ledger = ended("old", "new", "third")
        for (app, progress) in [("old", old), ("new", new)] as [(Participant, Progress)] where progress != .owed {
            _ = ledger.tell(app, at: .at(11))
            move(&ledger, app, to: progress)
        }
        let isNews = ledger.rename("old", to: "new")
        #expect(isNews)
        #expect(ledger.parts[2]?.keys.sorted() == ["new", "third"])
        #expect(progress(ledger, "new")?.isSettled == (old.isSettled && new.isSettled))
        if new.isSettled == false { #expect(progress(ledger, "new") == new) }
    }

    // S14
    @Test("pruning removes old complete rounds and names, and keeps cleanups owed")
    func prune() {
        var ledger = CleanupLedger()
        for epoch: UInt64 in 1...6 {
            ledger.begin(epoch, account: .ada, at: .at(0))
            _ = ledger.hold(epoch, by: "a", on: nil)
            ledger.end(epoch, at: .at(1))
            if epoch != 2 { _ = ledger.report(.finished, of: epoch, by: "a", on: nil, detail: nil, at: .at(2)) }
        }
        ledger.begin(7, account: .grace, at: .at(3))
        ledger.prune(keeping: 2, namesSince: .distantPast)
        #expect(ledger.sessions.keys.sorted() == [2, 5, 6, 7] && ledger.parts.keys.sorted() == [2, 5, 6])
        ledger = ended("a")
        ledger.begin(4, account: .grace, at: .at(20))
        ledger.prune(keeping: 100, namesSince: Moment.at(10).wall)
        #expect(ledger.owed(by: "a").map(\.account) == [.ada])
        ledger.prune(keeping: 100, namesSince: Moment.at(11).wall)
        #expect(ledger.sessions[2]?.account == nil)
        let owed = ledger.owed(by: "a")
        #expect(owed.map(\.account?.identifier) == ["forgotten.2"])
        // An app that was not running in the session, such as an adapter, has no record of it. It must not send a
        // receipt for a cleanup that it has not done.
        var record = SessionRecord()
        record.reconcile(owed: owed)
        #expect(record.mayHoldData.map(\.epoch) == [2] && record.receiptsDue.isEmpty)
        #expect(ledger.sessions[4]?.account == .grace, "an open session keeps its name")
    }

    @Test("unfinished rounds are folded into later ones of the same account")
    func fold() {
        var ledger = CleanupLedger()
        for epoch: UInt64 in 1...100 {
            ledger.begin(epoch, account: epoch == 50 ? .grace : .ada, at: .at(0))
            _ = ledger.hold(epoch, by: "a", on: nil)
            if epoch == 1 { _ = ledger.hold(epoch, by: "b", on: "b1") }
            ledger.end(epoch, at: .at(1))
            ledger.fold(keeping: 10)
        }
        let remaining: [UInt64] = [50] + Array(91...100)
        #expect(ledger.sessions.keys.sorted() == remaining && ledger.unfinished == Set(remaining))
        #expect(ledger.owed(by: "a").map(\.epoch) == remaining, "of Grace there is no later round")
        #expect(ledger.owed(by: "b").map(\.epoch) == [91] && ledger.connections == ["b1"])
        #expect(Set(ledger.unsaved.offer()).isSuperset(of: (1...100).map { .session($0) }))
        for epoch in remaining {
            _ = ledger.report(.finished, of: epoch, by: "a", on: nil, detail: nil, at: .at(2))
        }
        #expect(ledger.unfinished == [91])
        _ = ledger.report(.finished, of: 91, by: "b", on: "b1", detail: nil, at: .at(2))
        #expect(ledger.unfinished.isEmpty)
        // An earlier receipt for a round does not cover debts that are folded into it later.
        ledger = CleanupLedger()
        for (epoch, connection): (UInt64, String) in [(1, "d"), (2, "c")] {
            ledger.begin(epoch, account: .ada, at: .at(0))
            _ = ledger.hold(epoch, by: "a", on: connection)
            _ = ledger.hold(epoch, by: "b", on: nil)
            ledger.end(epoch, at: .at(1))
        }
        _ = ledger.report(.finished, of: 2, by: "a", on: "c", detail: nil, at: .at(2))
        ledger.fold(keeping: 1)
        #expect(ledger.report(.finished, of: 2, by: "a", on: "d", detail: nil, at: .at(3)) == .refused)
        let owed = ledger.owed(by: "a", on: "d")
        #expect(owed.map(\.epoch) == [2])
        let mark = owed.first?.mark ?? 0
        _ = ledger.report(.finished, of: 2, by: "a", on: "d", mark: mark, detail: nil, at: .at(4))
        #expect(ledger.owed(by: "a").isEmpty)
    }

    @Test("a receipt says when its cleanup began, between the notice and the receipt")
    func clockSetBack() {
        for (took, began) in [(3, 17), (600, 11), (-5, 20)] as [(Double, Double)] {
            var ledger = ended("a")
            _ = ledger.tell("a", at: .at(11))
            _ = ledger.report(.finished, of: 2, by: "a", on: nil, took: .seconds(took), detail: nil, at: .at(20))
            #expect(ledger.parts[2]?["a"]?.begunAt == Moment.at(began).wall, "it took \(took) s")
        }
        // If the clock was set back, times in a report are not negative.
        var ledger = ended("a")
        _ = ledger.report(.finished, of: 2, by: "a", on: nil, detail: nil, at: .at(-100))
        #expect(ledger.report(of: 2)?.apps.first?.finishedAfter == 0)
    }
}
