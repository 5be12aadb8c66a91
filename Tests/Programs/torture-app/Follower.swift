import Basics
import DBus
import FoundationEssentials
@_spi(Extensions) import SharedDevice
import Synchronization

/// Follows the device's account as each app does: with a cleanup, and a handler that hides and shows.
final class Follower: Sendable {
    private let application: SharedDeviceApplication
    private let desk: Desk
    private let mutant: Mutant?
    /// Whether this process was told what it may show, so that no data of an earlier process is left.
    private let isSettled = Locked(false)

    init(application: SharedDeviceApplication, desk: Desk, mutant: Mutant?) {
        self.application = application
        self.desk = desk
        self.mutant = mutant
    }

    func run() async throws {
        // A cleanup whose report fails on a full disk must be retried within the schedule.
        var options = CleanupCoordinator.Options()
        options.firstWait = .milliseconds(50)
        options.longestWait = .milliseconds(500)
        let cleanup = CleanupCoordinator(options: options)
        for (index, step) in Desk.Part.allCases.enumerated() {
            try cleanup.register(step.rawValue) { [self] in try await delete(step, $0.change, isFirst: index == 0) }
        }
        await application.follow(cleanup) { [self] state in
            switch state {
            case .hidden(let reason): hide(reason)
            case .nobody:
                desk.note("nobody")
                isSettled.withLock { $0 = true }
            case .open(let account):
                desk.show(Desk.Session(user: account.username, epoch: try epoch(of: account)))
                isSettled.withLock { $0 = true }
            }
        }
    }

    private func hide(_ reason: AccountState.HiddenReason) {
        desk.note("hide: \(reason)")
        switch (reason, mutant) {
        case (.changing, .keepsScreen): desk.stopWork()
        case (.changing, .worksOn): desk.clearScreen()
        default: desk.hide()
        }
    }

    /// The session of the account in the library's record. Apps do not need this number, but the monitor does.
    ///
    /// It is usually the session that the handler was told of. If the app has signed the same user in again since, it
    /// is the later session, which the record also has.
    private func epoch(of account: Account) throws -> UInt64 {
        let file = URL(filePath: "\(application.stateDirectory)/shared-device-sessions.json")
        let record = try JSONDecoder().decode(SessionRecord.self, from: Data(contentsOf: file))
        guard let epoch = record.session(of: account) else { throw Unrecorded(account: account) }
        return epoch
    }

    /// The app was told of an account before the record contained it.
    struct Unrecorded: Error {
        let account: Account
    }

    private func delete(_ step: Desk.Part, _ change: AccountChange, isFirst: Bool) async throws {
        let names = change.previousAccounts.map(\.username)
        desk.note("change \(change.epoch) \(change.current?.username ?? "-"), of \(names.joined(separator: " "))")
        if isFirst, mutant == .reportsBeforeDeleting {
            try await application.cleanupDone(change)
            // The monitor inspects every few milliseconds. The pause is long enough for it even on a busy machine.
            try await Task.sleep(for: .milliseconds(200))
        }
        guard !isSpared(change) else { return }
        for name in names { await desk.delete(step, of: name) }
    }

    private func isSpared(_ change: AccountChange) -> Bool {
        switch mutant {
        case .forgetsDebts: !isSettled.withLock { $0 }
        case .sparesReturningUser: change.previousAccounts == [change.current].compactMap(\.self)
        case .cleansForNobodyOnly: change.current != nil
        default: false
        }
    }
}
