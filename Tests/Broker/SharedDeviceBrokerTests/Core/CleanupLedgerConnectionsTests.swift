import Foundation
@_spi(Extensions) import SharedDevice
import Testing

@testable import BrokerCore

// S8
@Suite("The cleanup ledger: several processes of an app, and several users")
struct CleanupLedgerConnectionsTests {
    /// A ledger in which Ada's session 2 has ended. App "a" was given her account on these connections.
    private func ended(_ connections: String...) -> CleanupLedger {
        var ledger = CleanupLedger.withSession
        for connection in connections { _ = ledger.hold(2, by: "a", on: connection) }
        ledger.end(2, at: .at(10))
        return ledger
    }

    @Test("the end of a connection does not scan other connections' debts", .timeLimit(.minutes(1)))
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

    private func expect(
        _ progress: CleanupReport.Progress,
        in ledger: CleanupLedger,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(ledger.parts[2]?["a"]?.progress == progress, sourceLocation: sourceLocation)
    }

    @Test("each process that was given the account must report")
    func eachReports() {
        var ledger = ended(":1", ":2")
        #expect(ledger.owed(by: "a", on: ":1").map(\.isShared) == [true], "the second one may store something still")
        finish(&ledger, on: ":1", expecting: .recorded)
        expect(.begun, in: ledger)
        #expect(ledger.parts[2]?["a"]?.finishedAt == nil && ledger.owed(by: "a", on: ":1").isEmpty)
        #expect(ledger.owed(by: "a", on: ":2") == [OwedSession(epoch: 2, account: .ada)])
        #expect(ledger.owed(by: "a").map(\.epoch) == [2])
        finish(&ledger, on: ":1", expecting: CleanupLedger.Effect.none)
        finish(&ledger, on: ":2", expecting: .completed)
        expect(.finished, in: ledger)
    }

    @Test("a receipt of a process without the account settles no other one's, a waiver does")
    func stranger() {
        var ledger = ended(":1")
        finish(&ledger, on: ":9", expecting: .recorded)
        expect(.begun, in: ledger)
        #expect(ledger.owed(by: "a", on: ":9").isEmpty, "the data on the disk is gone, and it has none in memory")
        #expect(ledger.owed(by: "a", on: ":1").map(\.epoch) == [2])
        finish(&ledger, on: ":1", expecting: .completed)
        ledger = ended(":1", ":2")
        let effect = ledger.report(.waived, of: 2, by: "a", on: nil, detail: "was removed", at: .at(20))
        #expect(effect == .completed)
        #expect(ledger.owed(by: "a", on: ":1").isEmpty)
    }

    // The process may have stored data after the other process's cleanup.
    @Test("a process that ends without a report leaves the whole cleanup owed")
    func connectionEnded() {
        var ledger = ended(":1", ":2")
        finish(&ledger, on: ":1")
        let ended = ledger.connectionEnded(":2", mark: 1)
        #expect(ended.map(\.session) == [2] && ended.map(\.participant) == ["a"])
        expect(.owed, in: ledger)
        #expect(ledger.owed(by: "a", on: ":1") == [OwedSession(epoch: 2, account: .ada, mark: 1)])
        finish(&ledger, on: ":1", mark: 1, expecting: .completed)
    }

    @Test("a receipt sent before another process ended does not count, however many end")
    func receiptOnItsWay() {
        var ledger = ended(":1", ":2", ":3")
        for (connection, mark) in [(":2", 1), (":3", 2)] as [(String, UInt64)] {
            _ = ledger.connectionEnded(connection, mark: mark)
            finish(&ledger, on: ":1", mark: mark - 1, expecting: .refused)
            // A request from another part of that process does not change when its cleanup began.
            ledger.ask("a", on: ":1")
            finish(&ledger, on: ":1", mark: mark - 1, expecting: .refused)
            expect(.owed, in: ledger)
        }
        finish(&ledger, on: ":1", mark: 2, expecting: .completed)
    }

    @Test("a receipt stays valid when its process leaves, and the connection is forgotten")
    func reportedAndLeft() {
        var ledger = ended(":1", ":2", ":3")
        _ = ledger.connectionEnded(":3", mark: 1)
        finish(&ledger, on: ":1", mark: 1)
        let reopened = ledger.connectionEnded(":1", mark: 2)
        #expect(reopened.isEmpty && ledger.parts[2]?["a"]?.reported.isEmpty == true)
        finish(&ledger, on: ":2", mark: 1, expecting: .completed)
    }

    @Test("if a process ended before a broker restart, each process that asks must report")
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

    @Test("after a broker restart, each running process with the account must report")
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

    // The data is still on the disk.
    @Test("the end of all processes settles nothing without a receipt")
    func allEnd() {
        var ledger = ended(":1", ":2")
        for connection in [":1", ":2", ":3"] {
            let ended = ledger.connectionEnded(connection, mark: 2)
            #expect(ended.isEmpty)
        }
        #expect(ledger.sessions[2]?.outcome == .open)
        expect(.owed, in: ledger)
        // One process that starts later can clean up for all of them.
        ledger.ask("a", on: ":4")
        finish(&ledger, on: ":4", mark: 2, expecting: .completed)
        // Nor does the end of a process in an open session.
        ledger = CleanupLedger.withSession
        _ = ledger.hold(2, by: "a", on: ":1")
        let endedInSession = ledger.connectionEnded(":1", mark: 1)
        #expect(endedInSession.isEmpty)
        ledger.end(2, at: .at(2))
        #expect(ledger.owed(by: "a").map(\.epoch) == [2])
    }

    @Test("each user of an app owes a separate cleanup")
    func users() {
        let (ada, grace) = (Participant(app: "a", user: 1), Participant(app: "a", user: 2))
        var ledger = CleanupLedger.withSession
        _ = ledger.hold(2, by: ada, on: ":1")
        _ = ledger.hold(2, by: grace, on: ":2")
        ledger.end(2, at: .at(10))
        let first = ledger.report(.finished, of: 2, by: ada, on: ":1", detail: nil, at: .at(20))
        #expect(first == .recorded)
        #expect(ledger.debtors == [grace] && ledger.report(of: 2)?.apps.map(\.user) == [1, 2])
        let second = ledger.report(.finished, of: 2, by: grace, on: ":2", detail: nil, at: .at(20))
        #expect(second == .completed)
    }

    @Test("a rename moves an app's hold and its connections, and ignores unknown names")
    func rename() {
        var ledger = CleanupLedger.withSession
        _ = ledger.hold(2, by: "a", on: ":1")
        _ = ledger.hold(2, by: "old", on: ":2")
        let names: [(Participant, Participant)] = [("old", "old"), ("stranger", "a"), ("old", "new"), ("new", "a")]
        let isNews = names.map { ledger.rename($0, to: $1) }
        #expect(isNews == [false, false, true, true] && ledger.parts[2]?.keys.sorted() == ["a"])
        ledger.end(2, at: .at(10))
        #expect(ledger.parts[2]?["a"]?.connections == [":1", ":2"])
        finish(&ledger, on: ":1")
        #expect(ledger.sessions[2]?.outcome == .open)
        finish(&ledger, on: ":2", expecting: .completed)
    }

    @Test("changed rows, such as another process of an app, are written until saved")
    func unsaved() {
        var ledger = ended(":1")
        let rows: Set<CleanupLedger.Row> = [.session(2), .part(2, "a")]
        #expect(Set(ledger.unsaved.offer()) == rows)
        finish(&ledger, on: ":1")
        ledger.unsaved.saved()
        #expect(Set(ledger.unsaved.offer()) == rows, "changed during the write")
        #expect(Set(ledger.unsaved.offer()) == rows, "the write failed")
        ledger.unsaved.saved()
        #expect(ledger.unsaved.offer().isEmpty)
        // Another process is recorded once, before it gets the account.
        ledger = CleanupLedger.withSession
        let first = ledger.hold(2, by: "a", on: ":1")
        _ = ledger.unsaved.offer()
        ledger.unsaved.saved()
        let second = ledger.hold(2, by: "a", on: ":2")
        #expect(first && second && Set(ledger.unsaved.offer()) == [.part(2, "a")])
        let again = ledger.hold(2, by: "a", on: ":2")
        #expect(!again)
    }
}
