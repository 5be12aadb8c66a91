import Basics

/// The data that an app on a shared device may show.
public enum AccountState: Sendable, Hashable {
    /// No data of any account: clear the screen, stop work in progress and wait for its end, close files and databases.
    case hidden(HiddenReason)
    /// No account is signed in, and no user's data is left.
    case nobody
    /// Only this account's data. The data of previous users is gone.
    case open(Account)

    /// The account whose data may be shown; `nil` means none.
    public var account: Account? {
        guard case .open(let account) = self else { return nil }
        return account
    }

    /// The reason why nothing may be shown. Later versions may add reasons: a `switch` needs a `default`, or show
    /// ``description``.
    public enum HiddenReason: Sendable, Hashable, CustomStringConvertible {
        /// The broker has not been asked yet.
        case starting
        /// The account has changed, and the data of previous users is being removed.
        case changing
        /// The data of previous users could not be removed. The cleanup will be retried.
        case cleanupFailed(CleanupFailure)
        /// The current account is unknown: the broker does not respond, or the app's record is unusable. The library
        /// asks again.
        case unknown(SharedDeviceError)
        /// The app's handler threw this error, as text, when it was told ``AccountState/open(_:)`` or
        /// ``AccountState/nobody``. It will be called again.
        case appFailed(String)
        /// The app no longer follows the account.
        case stopped

        /// One line for people.
        public var description: String {
            switch self {
            case .starting: "asking who is signed in"
            case .changing: "the user is changing"
            case .cleanupFailed(let failure): "the previous user's data is not removed yet: \(failure)"
            case .unknown(let error): "it is not known who is signed in: \(error)"
            case .appFailed(let reason): "the app could not open: \(reason)"
            case .stopped: "the app has ended"
            }
        }
    }
}

extension SharedDeviceApplication {
    /// Follows the account of the device until the task is cancelled. After each change it hides the screen, runs and
    /// reports the cleanup of the previous users' data, and only then shows the current user's data.
    ///
    /// ```swift
    /// import SharedDevice
    ///
    /// let application = SharedDeviceApplication(identifier: "org.example.notes")
    /// let notes = try UserDataDirectory("org.example.notes")
    /// let cleanup = CleanupCoordinator()
    /// try cleanup.register("notes") { try await notes.remove($0.accounts) }
    ///
    /// await application.follow(cleanup) { state in
    ///     switch state {
    ///     case .hidden(let reason): print("one moment: \(reason)")
    ///     case .nobody: print("no account is signed in")
    ///     case .open(let account): print("\(account.username): \(try notes.open(for: account))")
    ///     }
    /// }
    /// ```
    ///
    /// `handler` is told to hide at the start, then the state to show, and again after each change:
    ///
    /// - Between two accounts it is told to hide before the first step of the cleanup begins.
    /// - The screen stays hidden while a cleanup fails, which is retried after 1 second at first, later after up to 60
    ///   seconds (``CleanupCoordinator/Options``), and while the broker does not respond.
    /// - The handler is not told the same state twice in a row, unless it has thrown an error.
    ///
    /// The handler runs on the caller's actor, one call at a time, and the next state waits for it. So it should return
    /// soon: start longer work for a user in a task, and cancel and await that task when the handler is told to hide.
    ///
    /// If the handler throws when it is told to hide, the cleanup runs, is not reported as done, and is retried
    /// completely. If it throws in another state, it is told to hide, and the current state after the same wait as for
    /// a failed cleanup.
    ///
    /// If the task is cancelled during a cleanup, this function returns only after all steps have run and the result is
    /// reported. The next start retries a failed cleanup. Last, the handler is told to hide with
    /// ``AccountState/HiddenReason/stopped``, in the cancelled task; an error from this call is ignored.
    ///
    /// Run one such loop at a time, and do not iterate ``accountChanges`` in parallel.
    ///
    /// - Parameters:
    ///   - cleanup: removes the data of previous users.
    ///   - handler: shows and hides.
    public func follow(_ cleanup: CleanupCoordinator, _ handler: @escaping (AccountState) async throws -> Void) async {
        await follow(cleanup, afterMissedSession: nil, handler)
    }

    /// As ``follow(_:_:)``, for a program that stores data of the person who works without asking for the account.
    ///
    /// - Parameter afterMissedSession: removes the data of sessions that began and ended between two responses of the
    ///   broker, so that this app never learned of them. While it throws, the screen stays hidden.
    @_spi(Extensions) public func follow(
        _ cleanup: CleanupCoordinator,
        afterMissedSession: (@Sendable () async throws -> Void)?,
        _ handler: @escaping (AccountState) async throws -> Void
    ) async {
        var follower = AccountFollower(self, cleanup, afterMissedSession, handler)
        await follower.run()
    }
}

/// The loop of ``SharedDeviceApplication/follow(_:_:)``. After a cleanup it asks the broker again, because another
/// person may have signed in or out while the steps ran.
struct AccountFollower {
    private let application: SharedDeviceApplication
    private let cleanup: CleanupCoordinator
    private let afterMissedSession: (@Sendable () async throws -> Void)?
    private let handler: (AccountState) async throws -> Void
    private var backoff: Backoff
    /// The last change after which no data of an ended session is left, and whether an account was signed in; `nil`
    /// before the first response.
    private var clean: (epoch: UInt64, isSignedIn: Bool)?
    /// The last state that the handler accepted; `nil` if the handler failed.
    private var told: AccountState?
    /// The error of the last attempt to hide the screen; `nil` if it succeeded.
    private var hidingFailure: String?

    init(
        _ application: SharedDeviceApplication,
        _ cleanup: CleanupCoordinator,
        _ afterMissedSession: (@Sendable () async throws -> Void)?,
        _ handler: @escaping (AccountState) async throws -> Void
    ) {
        self.application = application
        self.cleanup = cleanup
        self.afterMissedSession = afterMissedSession
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
                if hasMissedSession(before: change) {
                    if await cleanMissedSessions() {
                        clean = (change.epoch, change.current != nil)
                        changes.askAgain()
                        continue
                    }
                } else {
                    clean = (change.epoch, change.current != nil)
                    if await show(change.current) { continue }
                }
            case .success(let change):
                if await cleanUp(change) {
                    clean = (change.epoch, change.current != nil)
                    changes.askAgain()
                    continue
                }
            }
            try? await Task.sleep(for: backoff.next())
            changes.askAgain()
        }
        await hide(.stopped)
    }

    private mutating func cleanUp(_ change: AccountChange) async -> Bool {
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

    /// Whether a session of which this app was not told has ended or is open. Each change of the account has the next
    /// number; an app from which the person's account is hidden is told twice in a row that there is none.
    private func hasMissedSession(before change: AccountChange) -> Bool {
        guard afterMissedSession != nil, let clean, change.epoch != clean.epoch else { return false }
        return change.epoch != clean.epoch + 1 || (change.current == nil && !clean.isSignedIn)
    }

    private mutating func cleanMissedSessions() async -> Bool {
        // The screen keeps showing the failure during the next attempt.
        if case .hidden(.appFailed) = told {} else { await hide(.changing) }
        do {
            try await afterMissedSession?()
            return true
        } catch {
            await hide(.appFailed("\(error)"))
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
