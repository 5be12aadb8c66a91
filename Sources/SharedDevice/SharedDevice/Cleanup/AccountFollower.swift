import Basics

/// The loop of ``SharedDeviceApplication/follow(_:_:)``.
///
/// It shows an account only if no cleanup is pending. After a cleanup it asks the broker again, because another person
/// may have signed in or out while the steps ran.
struct AccountFollower {
    private let application: SharedDeviceApplication
    private let cleanup: CleanupCoordinator
    private let handler: (AccountState) async throws -> Void
    private var backoff: Backoff
    /// The last state that the handler accepted; `nil` if the handler failed.
    private var told: AccountState?
    /// The error of the last attempt to hide the screen; `nil` if it succeeded.
    private var hidingFailure: String?

    init(
        _ application: SharedDeviceApplication,
        _ cleanup: CleanupCoordinator,
        _ handler: @escaping (AccountState) async throws -> Void
    ) {
        self.application = application
        self.cleanup = cleanup
        self.handler = handler
        backoff = Backoff(first: cleanup.options.firstWait, longest: cleanup.options.longestWait)
    }

    mutating func run() async {
        await hide(.starting)
        var changes = application.accountChanges.makeAsyncIterator()
        while !Task.isCancelled, let answer = await changes.nextAnswer(#isolation) {
            switch answer {
            case .failure(let error):
                await hide(.unknown(error))
                continue
            case .success(let change) where change.previousAccounts.isEmpty:
                await cleanup.discardJournal(application)
                if await show(change.current) { continue }
            case .success(let change):
                if await clean(change) {
                    changes.askAgain()
                    continue
                }
            }
            try? await Task.sleep(for: backoff.next())
            changes.askAgain()
        }
        await hide(.stopped)
    }

    private mutating func clean(_ change: AccountChange) async -> Bool {
        // The screen keeps showing the failure during the next attempt.
        if case .hidden(.cleanupFailed) = told {} else { await hide(.changing) }
        let unhidden = hidingFailure.map { [CleanupFailure.Step(name: CleanupFailure.screenName, reason: $0)] } ?? []
        do throws(CleanupFailure) {
            try await cleanup.run(change, reporter: application, failures: unhidden)
            backoff.reset()
            return true
        } catch {
            await hide(.cleanupFailed(error))
            return false
        }
    }

    private mutating func show(_ account: Account?) async -> Bool {
        let state = account.map(AccountState.open) ?? .nobody
        guard told != state, !Task.isCancelled else { return true }
        if told?.account != nil { await hide(.changing) }
        do {
            try await handler(state)
            told = state
            hidingFailure = nil
            backoff.reset()
            return true
        } catch {
            told = nil
            await hide(.appFailed("\(error)"))
            return false
        }
    }

    private mutating func hide(_ reason: AccountState.HiddenReason) async {
        let state = AccountState.hidden(reason)
        guard told != state else { return }
        do {
            try await handler(state)
            told = state
            hidingFailure = nil
        } catch {
            told = nil
            hidingFailure = "\(error)"
        }
    }
}
