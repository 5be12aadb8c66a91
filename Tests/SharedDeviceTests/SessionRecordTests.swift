import Foundation
import NotifyCenterTestKit
import Testing

@testable import SharedDevice

@Suite("The record of whose data an app may hold")
struct SessionRecordTests {
    private let first = Account(identifier: "1.t", username: "one")
    private let second = Account(identifier: "2.t", username: "two")

    private func session(_ account: Account?, _ epoch: UInt64) -> DeviceSession {
        DeviceSession(account: account, epoch: epoch)
    }

    /// The macros of the testing library call no mutating methods.
    private func enter(
        _ record: inout SessionRecord,
        _ session: DeviceSession
    ) -> (stale: [SessionRecord.Session], current: SessionRecord.Session?)? {
        record.enter(session)
    }

    // The sequence table of MSAL: calls of getCurrentAccount after each step of the device.
    @Test("the previous account is the one that the app was told last")
    func reported() {
        var record = SessionRecord()
        let told = [session(nil, 0), session(first, 1), session(first, 1), session(nil, 2), session(nil, 2)]
            .map { record.report($0)?.username }
        #expect(told == [nil, nil, "one", "one", nil])
        let later = [session(first, 3), session(second, 5), session(nil, 6)].map { record.report($0)?.username }
        #expect(later == [nil, "one", "two"])
    }

    @Test("a change is handed out until it is cleaned, whatever the device does meanwhile")
    func untilCleaned() throws {
        var record = SessionRecord()
        #expect(enter(&record, session(nil, 0)) == nil)
        let signIn = try #require(enter(&record, session(first, 1)))
        #expect(signIn.stale.isEmpty)
        let signOut = try #require(enter(&record, session(nil, 2)))
        #expect(signOut.stale.map(\.account.username) == ["one"])
        let again = try #require(enter(&record, session(nil, 2)))
        #expect(again.stale == signOut.stale)
        // The next one comes while the data of the first is still there.
        let next = try #require(enter(&record, session(second, 3)))
        #expect(next.stale.map(\.account.username) == ["one"])
        record.cleaned(next.stale)
        #expect(enter(&record, session(second, 3)) == nil)
        #expect(record.mayHoldData.map(\.account.username) == ["two"])
    }

    // E1, E2
    @Test("the same account in another session is a change")
    func sameAccountAgain() throws {
        var record = SessionRecord()
        _ = record.enter(session(first, 1))
        let change = try #require(enter(&record, session(first, 3)))
        #expect(change.stale.map(\.epoch) == [1])
        #expect(change.current?.epoch == 3)
        record.cleaned(change.stale)
        #expect(enter(&record, session(first, 3)) == nil)
    }

    @Test("once its data is gone, nothing in the record names an account that left")
    func forgetsNames() throws {
        var record = SessionRecord()
        _ = record.report(session(first, 1))
        _ = record.enter(session(first, 1))
        let change = try #require(enter(&record, session(nil, 2)))
        record.cleaned(change.stale)
        #expect(record == SessionRecord())
        // The same person in a new session is still told of.
        _ = record.report(session(first, 3))
        _ = record.enter(session(first, 3))
        let again = try #require(enter(&record, session(first, 5)))
        record.cleaned(again.stale)
        #expect(record.lastReported == first)
    }

    @Test("a cleanup that was reported late forgets nothing that came after it")
    func lateReport() throws {
        var record = SessionRecord()
        _ = record.enter(session(first, 1))
        let change = try #require(enter(&record, session(nil, 2)))
        _ = record.enter(session(second, 3))
        record.cleaned(change.stale)
        #expect(record.mayHoldData.map(\.account.username) == ["two"])
    }

    @Test("the file keeps it; one that cannot be read is an error and not an empty record")
    func file() throws {
        let directory = try TemporaryDirectory("session-store")
        let store = SessionStore(path: "\(directory.path)/deep/er/record.json")
        #expect(try store.load() == SessionRecord())
        var record = SessionRecord()
        _ = record.enter(session(first, 1))
        _ = record.report(session(first, 1))
        try store.save(record)
        #expect(try store.load() == record)
        #expect(try store.load().mayHoldData.first?.epoch == 1)
        try "{ not json".write(toFile: store.path, atomically: true, encoding: .utf8)
        let error = #expect(throws: SharedDeviceError.self) { try store.load() }
        #expect(error?.code == .recordUnusable)
        #expect(error?.description.contains(store.path) == true)
    }
}
