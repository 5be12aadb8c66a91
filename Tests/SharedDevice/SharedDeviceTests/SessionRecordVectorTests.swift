import Foundation
import Testing

@_spi(Extensions) @testable import SharedDevice

/// The vectors that test the libraries of all languages (`session-record.json`): each case is a sequence of operations
/// on a record, with the result of each and the record after it.
@Suite("The record, with the vectors of all languages")
struct SessionRecordVectorTests {
    private struct File: Decodable {
        let accounts: [String: Account]
        let cases: [Case]
    }

    private struct Case: Decodable {
        let name: String
        let steps: [Step]
    }

    private struct Step: Decodable {
        let `do`: String
        let session: Named?
        let held: [Named]?
        let known: [Named]?
        let owed: [Owed]?
        let sessions: [Named]?
        let detail: String?
        let gives: [Text]?
        let record: Record
    }

    /// An account by its name in the file, and an epoch, such as `["one", 1]`.
    private struct Named: Decodable, Equatable {
        let account: String?
        let epoch: UInt64

        init(_ account: String?, _ epoch: UInt64) { (self.account, self.epoch) = (account, epoch) }

        init(from decoder: any Decoder) throws {
            var container = try decoder.unkeyedContainer()
            account = try container.decode(String?.self)
            epoch = try container.decode(UInt64.self)
        }
    }

    private struct Owed: Decodable {
        let epoch: UInt64
        let account: String?
        let mark: UInt64?
        let shared: Bool?
    }

    /// An epoch, or the name of an account.
    private struct Text: Decodable {
        let text: String

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            text = try (try? String(container.decode(UInt64.self))) ?? container.decode(String.self)
        }
    }

    private struct Record: Decodable, Equatable {
        let mayHoldData: [Named]
        let receiptsDue: [UInt64]
        let shared: [UInt64]
        let lastReported: String?
    }

    @Test("each step has the expected result and leaves the expected record")
    func vectors() throws {
        let url = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "session-record.json")
        let file = try JSONDecoder().decode(File.self, from: Data(contentsOf: url))
        #expect(file.cases.count >= 70)
        for one in file.cases {
            var record = SessionRecord()
            for (number, step) in one.steps.enumerated() {
                let gives = try carryOut(step, on: &record, file.accounts)
                #expect(gives == step.gives?.map(\.text), "\(one.name), step \(number + 1)")
                let form = Record(
                    mayHoldData: record.mayHoldData.map { Named($0.account.username, $0.epoch) },
                    receiptsDue: record.receiptsDue.map(\.epoch),
                    shared: record.shared.sorted(),
                    lastReported: record.lastReported?.username
                )
                #expect(form == step.record, "\(one.name), step \(number + 1)")
            }
        }
    }

    private func carryOut(
        _ step: Step,
        on record: inout SessionRecord,
        _ accounts: [String: Account]
    ) throws -> [String]? {
        func sessions(_ named: [Named]?) throws -> [SessionRecord.Session] {
            try (named ?? []).map { one in
                SessionRecord.Session(account: try #require(accounts[one.account ?? ""]), epoch: one.epoch)
            }
        }
        func device() throws -> DeviceSession {
            let session = try #require(step.session)
            return DeviceSession(account: try session.account.map { try #require(accounts[$0]) }, epoch: session.epoch)
        }
        switch step.do {
        case "enter":
            return record.enter(try device(), held: try sessions(step.held), known: try sessions(step.known))
                .map { "\($0.epoch)" }
        case "reconcile":
            let owed = try #require(step.owed).map { one in
                let account = one.account.flatMap { accounts[$0] }
                let isShared = one.shared == true
                return OwedSession(epoch: one.epoch, account: account, mark: one.mark ?? 0, isShared: isShared)
            }
            record.reconcile(owed: owed)
            return nil
        case "cleaned":
            let marks = Dictionary(uniqueKeysWithValues: (step.owed ?? []).map { ($0.epoch, $0.mark ?? 0) })
            return record.cleaned(try sessions(step.sessions), detail: step.detail, marks: marks)
                .map { "\($0.epoch)" }
        case "reopen":
            record.reopen(try sessions(step.sessions))
            return nil
        case "receipts": return record.receipts(held: try sessions(step.held)).map { "\($0.epoch)" }
        default: return record.report(try device()).map { [$0.username] } ?? []
        }
    }
}
