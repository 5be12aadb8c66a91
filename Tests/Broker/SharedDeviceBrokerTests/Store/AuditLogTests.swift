import DeviceStorage
import EmbeddedIdentity
import Foundation
import Identity
import NotifyCenterTestKit
import SharedDevice
import Testing

@testable import BrokerCore
@testable import SharedDeviceBroker

@Suite("The audit log")
struct AuditLogTests {
    private let directory: TemporaryDirectory
    private let database: DeviceDatabase

    init() throws {
        directory = try TemporaryDirectory()
        database = try DeviceDatabase(directory: directory.state, firstEpoch: 0)
    }

    private func at(_ seconds: Double) -> Date { Date(timeIntervalSince1970: 1_000_000 + seconds) }

    private func append(_ entries: AuditEntry...) throws { try database.append(entries) }

    // Any caller can cause any number of refusals.
    @Test("refusals do not displace other entries from a log that waits for the disk")
    func bounded() {
        let others = (UInt64(0)..<3700).map { AuditEntry(event: .finished, at: at(Double($0)), session: $0) }
        let refusals = (UInt64(0)..<3000).map { AuditEntry(event: .refused, at: at(Double($0)), session: $0) }
        for log in [others + refusals, refusals + others] {
            let kept = BrokerState.bounded(log)
            let (keptOthers, last) = (kept.filter { $0.event == .finished }, kept.last { $0.event == .refused })
            #expect(kept.count == 5000 && keptOthers == others && last == refusals.last)
        }
        let (twice, newest) = (others + others, BrokerState.bounded(others + others))
        #expect(newest == Array(twice.suffix(5000)))
        #expect(BrokerState.bounded(refusals + refusals).count == 5000)
    }

    @Test("entries are read back complete and in order, and cannot be changed")
    func order() throws {
        let entries = AuditEntry.Event.allCases.enumerated().map { number, event in
            AuditEntry(event: event, at: at(Double(number)), session: 2, app: "a", user: 1000, detail: "\(number)")
        }
        try database.append(entries)
        let lines = try database.auditLog()
        #expect(lines.map(\.entry) == entries && lines.map(\.sequence) == lines.map(\.sequence).sorted())
        // The tests of the store check that the oldest entries are removed when the log is too long.
        #expect(throws: SQLiteError.self) { try directory.sql("UPDATE audit SET detail = 'x'") }
        #expect(try database.auditLog().map(\.entry) == entries)
    }

    @Test("a filter selects its entries, and several filters apply together")
    func filters() throws {
        try append(
            AuditEntry(event: .held, at: at(0), session: 2, app: "a"),
            AuditEntry(event: .held, at: at(1), session: 2, app: "b"),
            AuditEntry(event: .told, at: at(2), session: 4, app: "a"),
            AuditEntry(event: .modeChanged, at: at(3)),
            AuditEntry(event: .held, at: at(4), session: 4, app: "a")
        )
        let first = try #require(try database.auditLog().first).sequence
        func found(_ filter: AuditFilter) throws -> [Int64] {
            try database.auditLog(filter).map { $0.sequence - first }
        }
        let filters: [(AuditFilter, [Int64])] = [
            (.init(after: first + 2), [3, 4]), (.init(since: at(3)), [3, 4]), (.init(session: 2), [0, 1]),
            (.init(app: "a"), [0, 2, 4]), (.init(event: .held), [0, 1, 4]), (.init(last: 2), [3, 4]),
            (.init(last: 0), []), (.init(after: first, first: 2), [1, 2]), (.init(app: "a", last: 2), [2, 4]),
            (.init(session: 4, app: "a", event: .held), [4]), (.init(app: "'; DROP TABLE audit; --"), []),
        ]
        for (filter, expected) in filters { #expect(try found(filter) == expected, "\(filter)") }
    }

    @Test("an account is shown by name, or by number once it was removed")
    func subject() throws {
        let users = UserDirectory(database: database, passwordCost: .minimal)
        let user = try users.add(username: "xquentinx", password: Secret("correct horse"))
        let identifier = user.account.identifier
        let entry = AuditEntry(event: .signedIn, at: at(0), session: 2, account: identifier, accountName: "xquentinx")
        try append(entry, AuditEntry(event: .announced, at: at(0)), entry)
        #expect(try database.auditLog().map(\.account) == ["xquentinx", nil, "xquentinx"])
        try users.remove(username: "xquentinx")
        #expect(try database.auditLog().map(\.account) == ["account #1", nil, "account #1"])
        try directory.expectNone(of: "xquentinx")
        try append(AuditEntry(event: .signedIn, at: at(1), session: 4, account: "g.t", accountName: "grace"))
        try directory.sql("DELETE FROM subject")
        let last = try #require(database.auditLog().last?.account)
        #expect(last.hasPrefix("account #") && last != "account #1")
    }

    @Test(
        "a damaged entry is an error and does not crash",
        arguments: ["'x', 'held'", "1e300, 'held'", "1, 'unheard-of'"]
    )
    func damaged(values: String) throws {
        try directory.sql("INSERT INTO audit (at, event) VALUES (\(values))")
        let error = #expect(throws: StoreError.self) { try database.auditLog() }
        #expect(error?.code == .damaged)
    }

    @Test("ten thousand entries take less than two megabytes")
    func size() throws {
        let entries = (0..<10_000).map { number in
            AuditEntry(
                event: .finished,
                at: at(Double(number)),
                session: 1234,
                app: "org.example.point-of-sale",
                detail: "17 files"
            )
        }
        try database.append(entries)
        database.eraseRemnants()
        let size = try FileManager.default.attributesOfItem(atPath: directory.databaseFile)[.size] as? Int
        #expect((100_000..<2_000_000).contains(size ?? 0))
    }
}
