import Basics
import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import SharedDevice
import Synchronization

struct Event: Encodable {
    var event: String
    var account: String?
    var identifier: String?
    var epoch: UInt64?
    var previous: [String]?
    var detail: String?
    /// The reason why a request was refused, or why the current account is unknown.
    var code: String?

    init(_ event: String, detail: String? = nil) {
        self.event = event
        self.detail = detail
    }
}

/// A file of events, each a line.
struct Journal: Sendable {
    let path: String

    func note(_ event: Event) {
        guard let line = try? JSONEncoder().encode(event) else { exit(74) }
        log(String(decoding: line, as: UTF8.self), path)
    }
}

final class Desk: Sendable {
    private let directory: String
    private let data: UserDataDirectory
    private let journal: Journal
    private let shown = Locked<Account?>(nil)
    private let requests = Locked<[UInt64: Task<Void, Never>]>([:])

    init(directory: String, data: UserDataDirectory, journal: Journal) {
        self.directory = directory
        self.data = data
        self.journal = journal
    }

    var account: Account? { shown.withLock { $0 } }

    func show(_ state: AccountState) async throws {
        shown.withLock { $0 = state.account }
        var event = Event("open")
        switch state {
        case .hidden(let reason):
            event = Event("hidden", detail: "\(reason)")
            if case .unknown(let error) = reason { event.code = "\(error.code)" }
            journal.note(event)
            // Stopping work includes waiting for the pending requests.
            await finishRequests()
            return
        case .nobody: event = Event("nobody")
        case .open(let account):
            event.account = account.username
            event.identifier = account.identifier
            event.epoch = try epoch(of: account)
            for number in 1...3 { try work("\(number)", for: account, event.epoch) }
        }
        journal.note(event)
    }

    func work(_ name: String, for account: Account, _ epoch: UInt64?) throws {
        let path = "\(try data.open(for: account))/session-\(epoch ?? 0)-\(name)"
        try Data("data of \(account.username)".utf8).write(to: URL(filePath: path))
    }

    func epoch(of account: Account) throws -> UInt64? {
        let record = try Data(contentsOf: URL(filePath: "\(directory)/state/shared-device-sessions.json"))
        return try JSONDecoder().decode(SessionRecord.self, from: record).session(of: account)
    }

    func finishRequests() async {
        for request in requests.withLock({ Array($0.values) }) { await request.value }
    }

    /// Starts a request that must finish before the screen counts as hidden.
    func request(_ number: UInt64, _ body: @escaping @Sendable () async -> Void) {
        requests.withLock { requests in
            requests[number] = Task {
                await body()
                self.requests.withLock { $0[number] = nil }
            }
        }
    }
}
