import Foundation
import SharedDevice
import Testing

@testable import SharedDeviceBroker

// S8
@Suite("The cleanup ledger: several processes of an app, and several users")
struct CleanupLedgerConnectionsTests {
    /// A ledger in which session 2 was Ada's and is over; app “a” was given her account on these connections.
    private func ended(_ connections: String...) -> CleanupLedger {
        var ledger = CleanupLedger()
        ledger.begin(2, account: .ada, at: .at(0))
        for connection in connections { _ = ledger.hold(2, by: "a", on: connection) }
        ledger.end(2, at: .at(10))
        return ledger
    }

    @Test("the end of a connection costs no look at the debts of others", .timeLimit(.minutes(1)))
    func manyDebts() {
        var ledger = CleanupLedger()
        let (rounds, apps) = (300 as UInt64, 100)
        for round in 1...rounds {
            ledger.begin(round, account: .ada, at: .at(0))
            for app in 0..<apps {
                _ = ledger.hold(round, by: Participant(app: "\(app)", user: 1000), on: ":\(round).\(app)")
            }
            ledger.end(round, at: .at(10))
        }
        for round in 1...rounds {
            for app in 0..<apps {
                _ = ledger.connectionEnded(":\(round).\(app)", mark: round)
                #expect(ledger.owes(Participant(app: "\(app)", user: 1000)))
            }
        }
        #expect(ledger.connections.isEmpty)
        #expect(ledger.owed(by: Participant(app: "7", user: 1000)).map(\.mark) == Array(1...rounds))
    }

    /// Reports on this connection that app “a” has cleaned up, and expects this to come of it.
    private func finish(
        _ ledger: inout CleanupLedger,
        on connection: String?,
        mark: UInt64 = 0,
        expecting expected: CleanupLedger.Effect? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let effect = ledger.report(.finished, of: 2, by: "a", on: connection, mark: mark, detail: nil, at: .at(20))
        if let expected { #expect(effect == expected, sourceLocation: sourceLocation) }
    }

    /// Expects that app “a” has come so far.
    private func expect(
        _ progress: CleanupReport.Progress,
        in ledger: CleanupLedger,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(ledger.parts[2]?["a"]?.progress == progress, sourceLocation: sourceLocation)
    }

    @Test("each process that was given the account has to report; what one has done the others still owe")
    func eachReports() {
        var ledger = ended(":1", ":2")
        #expect(ledger.owed(by: "a", on: ":1").map(\.isShared) == [true], "the second one may store something still")
        finish(&ledger, on: ":1", expecting: .recorded)
        expect(.begun, in: ledger)
        #expect(ledger.parts[2]?["a"]?.finishedAt == nil && ledger.owed(by: "a", on: ":1").isEmpty)
        #expect(ledger.owed(by: "a", on: ":2") == [OwedSession(epoch: 2, account: .ada)])
        #expect(ledger.owed(by: "a").map(\.epoch) == [2])
        // A receipt that comes again says nothing new.
        finish(&ledger, on: ":1", expecting: CleanupLedger.Effect.none)
        finish(&ledger, on: ":2", expecting: .completed)
        expect(.finished, in: ledger)
    }

    @Test("a process that was not given the account does not settle it for those that were")
    func stranger() {
        var ledger = ended(":1")
        finish(&ledger, on: ":9", expecting: .recorded)
        expect(.begun, in: ledger)
        #expect(ledger.owed(by: "a", on: ":9").isEmpty, "the data on the disk is gone, and it has none in memory")
        #expect(ledger.owed(by: "a", on: ":1").map(\.epoch) == [2])
        finish(&ledger, on: ":1", expecting: .completed)
    }

    @Test(
        "a process that ends without a report leaves the whole cleanup owed, because it may have stored something since the other's"
    )
    func connectionEnded() {
        var ledger = ended(":1", ":2")
        finish(&ledger, on: ":1")
        let ended = ledger.connectionEnded(":2", mark: 1)
        #expect(ended.map(\.session) == [2] && ended.map(\.participant) == ["a"])
        expect(.owed, in: ledger)
        #expect(ledger.owed(by: "a", on: ":1") == [OwedSession(epoch: 2, account: .ada, mark: 1)])
        finish(&ledger, on: ":1", mark: 1, expecting: .completed)
    }

    @Test("a receipt that was on its way when another process ended does not count: its sender has to look again")
    func receiptOnItsWay() {
        var ledger = ended(":1", ":2")
        _ = ledger.connectionEnded(":2", mark: 1)
        finish(&ledger, on: ":1")
        expect(.owed, in: ledger)
        // A question of another part of that process does not change when its cleanup began.
        ledger.ask("a", on: ":1")
        finish(&ledger, on: ":1")
        expect(.owed, in: ledger)
        finish(&ledger, on: ":1", mark: 1, expecting: .completed)
    }

    @Test("a second process that ends during a cleanup has it done once more, as the first has")
    func secondEnd() {
        var ledger = ended(":1", ":2", ":3")
        _ = ledger.connectionEnded(":2", mark: 1)
        ledger.ask("a", on: ":1")
        _ = ledger.connectionEnded(":3", mark: 2)
        ledger.ask("a", on: ":1")
        finish(&ledger, on: ":1", mark: 1)
        expect(.owed, in: ledger)
        finish(&ledger, on: ":1", mark: 2, expecting: .completed)
    }

    @Test("what one process has reported stays so when it leaves, and the ledger forgets its connection")
    func reportedAndLeft() {
        var ledger = ended(":1", ":2", ":3")
        _ = ledger.connectionEnded(":3", mark: 1)
        finish(&ledger, on: ":1", mark: 1)
        let reopened = ledger.connectionEnded(":1", mark: 2)
        #expect(reopened.isEmpty && ledger.parts[2]?["a"]?.reported.isEmpty == true)
        finish(&ledger, on: ":2", mark: 1, expecting: .completed)
    }

    @Test("where a process had ended before a start of the broker, each process that asks has to report")
    func restarted() {
        let before = ended(":1", ":2")
        var ledger = CleanupLedger(
            sessions: before.sessions,
            parts: before.parts.mapValues { $0.mapValues { _ in .init(progress: .owed, mark: 1) } }
        )
        ledger.ask("a", on: ":1")
        ledger.ask("a", on: ":2")
        finish(&ledger, on: ":1", mark: 1, expecting: .recorded)
        #expect(ledger.owed(by: "a", on: ":2").map(\.epoch) == [2])
        ledger.ask("a", on: ":1")
        #expect(ledger.owed(by: "a", on: ":1").isEmpty, "it has reported, and is not asked for it again")
        finish(&ledger, on: ":2", mark: 1, expecting: .completed)
    }

    @Test(
        "after a start of the broker, each process that was given the account has to report still, unless it has ended"
    )
    func restartedKnowing() {
        let before = ended(":1", ":2", ":3")
        var ledger = CleanupLedger(sessions: before.sessions, parts: before.parts)
        #expect(ledger.connections == [":1", ":2", ":3"])
        _ = ledger.connectionEnded(":3", mark: 1)
        finish(&ledger, on: ":1", mark: 1, expecting: .recorded)
        #expect(ledger.owed(by: "a", on: ":2").map(\.epoch) == [2], "it has not asked yet")
        _ = ledger.connectionEnded(":2", mark: 2)
        expect(.owed, in: ledger)
        finish(&ledger, on: ":1", mark: 2, expecting: .completed)
    }

    @Test("the end of all processes settles nothing where none has reported: the data is on the disk")
    func allEnd() {
        var ledger = ended(":1", ":2")
        for connection in [":1", ":2", ":3"] {
            let ended = ledger.connectionEnded(connection, mark: 2)
            #expect(ended.isEmpty)
        }
        #expect(ledger.sessions[2]?.outcome == .open)
        expect(.owed, in: ledger)
        // One process that starts later does it for all.
        ledger.ask("a", on: ":4")
        finish(&ledger, on: ":4", mark: 2, expecting: .completed)
    }

    @Test("the end of a process in an open session takes nothing from the list")
    func endInOpenSession() {
        var ledger = CleanupLedger()
        ledger.begin(2, account: .ada, at: .at(0))
        _ = ledger.hold(2, by: "a", on: ":1")
        let ended = ledger.connectionEnded(":1", mark: 1)
        #expect(ended.isEmpty)
        ledger.end(2, at: .at(2))
        #expect(ledger.owed(by: "a").map(\.epoch) == [2])
    }

    @Test("an administrator's waiver settles it for all processes")
    func waiver() {
        var ledger = ended(":1", ":2")
        let effect = ledger.report(.waived, of: 2, by: "a", on: nil, detail: "was removed", at: .at(20))
        #expect(effect == .completed)
        #expect(ledger.owed(by: "a", on: ":1").isEmpty)
    }

    @Test("an app that two users run has two duties, and neither user's receipt settles the other's")
    func users() {
        let (ada, grace) = (Participant(app: "a", user: 1), Participant(app: "a", user: 2))
        var ledger = CleanupLedger()
        ledger.begin(2, account: .ada, at: .at(0))
        _ = ledger.hold(2, by: ada, on: ":1")
        _ = ledger.hold(2, by: grace, on: ":2")
        ledger.end(2, at: .at(10))
        let first = ledger.report(.finished, of: 2, by: ada, on: ":1", detail: nil, at: .at(20))
        #expect(first == .recorded)
        #expect(ledger.debtors == [grace] && ledger.report(of: 2)?.apps.map(\.user) == [1, 2])
        let second = ledger.report(.finished, of: 2, by: grace, on: ":2", detail: nil, at: .at(20))
        #expect(second == .completed)
    }

    @Test("a rename takes the processes along")
    func rename() {
        var ledger = CleanupLedger()
        ledger.begin(2, account: .ada, at: .at(0))
        _ = ledger.hold(2, by: "a", on: ":1")
        _ = ledger.hold(2, by: "old", on: ":2")
        _ = ledger.rename("old", to: "a")
        ledger.end(2, at: .at(10))
        #expect(ledger.parts[2]?["a"]?.connections == [":1", ":2"])
        finish(&ledger, on: ":1")
        #expect(ledger.sessions[2]?.outcome == .open)
        finish(&ledger, on: ":2", expecting: .completed)
    }

    @Test("what changes is named for the disk, and what could not be written is named again")
    func changes() {
        var ledger = ended(":1")
        let changes = ledger.takeChanges()
        #expect(changes.sessions == [2] && changes.parts == [2: ["a"]])
        #expect(ledger.changes == CleanupLedger.Changes())
        finish(&ledger, on: ":1")
        ledger.putBack(changes)
        #expect(ledger.changes == changes)
    }

    @Test("a further process of an app is written down before it is given the account, and once")
    func furtherProcess() {
        var ledger = CleanupLedger()
        ledger.begin(2, account: .ada, at: .at(0))
        let first = ledger.hold(2, by: "a", on: ":1")
        _ = ledger.takeChanges()
        let second = ledger.hold(2, by: "a", on: ":2")
        #expect(first && second && ledger.changes.parts == [2: ["a"]])
        let again = ledger.hold(2, by: "a", on: ":2")
        #expect(!again)
    }
}
