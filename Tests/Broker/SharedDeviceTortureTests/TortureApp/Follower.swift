import SharedDevice

/// Follows the device's account as every app has to: hide, delete, report, and only then show whoever is there.
struct Follower: Sendable {
    let application: SharedDeviceApplication
    let desk: Desk
    let mutant: Mutant?

    func run() async {
        var isFirst = true
        // Who does not know whether its user is still there shows nothing.
        for await change in application.accountChanges(onFailure: { _ in desk.hide() }) {
            desk.note("change \(change.epoch) \(change.current?.username ?? "-"), of \(names(change.previousAccounts))")
            stop()
            do throws(SharedDeviceError) {
                try await cleanUp(change, isFirst: isFirst)
            } catch {
                desk.note("not reported: \(error)")
                continue
            }
            isFirst = false
            if let account = change.current { desk.show(Desk.Session(user: account.username, epoch: change.epoch)) }
        }
    }

    private func stop() {
        switch mutant {
        case .keepsScreen: desk.stopWork()
        case .worksOn: desk.clearScreen()
        default: desk.hide()
        }
    }

    private func cleanUp(_ change: AccountChange, isFirst: Bool) async throws(SharedDeviceError) {
        guard !change.previousAccounts.isEmpty else { return }
        if mutant == .reportsBeforeDeleting { try await application.cleanupDone(change) }
        // For those who watch; the cleanup does not depend on it.
        try? await application.cleanupBegan(change)
        if !isSpared(change, isFirst: isFirst) {
            for account in change.previousAccounts { await desk.delete(dataOf: account.username) }
        }
        try await application.cleanupDone(change)
        desk.note("finished")
    }

    private func isSpared(_ change: AccountChange, isFirst: Bool) -> Bool {
        switch mutant {
        case .forgetsDebts: isFirst
        case .sparesReturningUser: change.previousAccounts == [change.current].compactMap(\.self)
        case .cleansForNobodyOnly: change.current != nil
        default: false
        }
    }

    private func names(_ accounts: [Account]) -> String { accounts.map(\.username).joined(separator: " ") }
}
