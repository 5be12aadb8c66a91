/// What an app on a shared device may show.
public enum AccountState: Sendable, Hashable {
    /// Nobody's data: clear the screen, stop work under way and wait for its end, close files and databases.
    case hidden(HiddenReason)
    /// Nobody is signed in, and no user's data is left.
    case nobody
    /// This account's data, and no other's. The data of previous users is gone.
    case open(Account)

    /// The account whose data may be shown; `nil` means none.
    public var account: Account? {
        guard case .open(let account) = self else { return nil }
        return account
    }

    /// Why nothing may be shown. New reasons may come: a `switch` needs a `default`, or show ``description``.
    public enum HiddenReason: Sendable, Hashable, CustomStringConvertible {
        /// The broker has not been asked yet.
        case starting
        /// The account has changed, and the data of previous users is being removed.
        case changing
        /// The data of previous users could not be removed. The cleanup is tried again.
        case cleanupFailed(CleanupFailure)
        /// Nobody can say who is signed in: the broker does not answer, or the app's record cannot be used. The question is asked again.
        case unknown(SharedDeviceError)
        /// The app's handler threw this error, as text, when it was told ``AccountState/open(_:)`` or ``AccountState/nobody``. It is called
        /// again.
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
    /// Follows the account of the device until the task is cancelled: hides the screen, runs the cleanup of the previous users' data, reports
    /// that, and only then shows the current user's data.
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
    ///     case .nobody: print("nobody is signed in")
    ///     case .open(let account): print("\(account.username): \(try notes.open(for: account))")
    ///     }
    /// }
    /// ```
    ///
    /// `handler` is first told to hide, then what it may show, and again after each change:
    ///
    /// - Between two accounts it is told to hide, before the first step of the cleanup begins.
    /// - While a cleanup fails, the screen stays hidden. The cleanup is tried again, at first after 1 second and later after up to 60
    ///   (``CleanupCoordinator/Options``).
    /// - While the broker does not answer, the screen stays hidden: nobody can say whose data may be shown.
    /// - The handler is never told the same state twice in a row.
    ///
    /// The handler runs on the caller's actor, one call at a time, and the next state waits for it. So it should return soon: start longer
    /// work for a user in a task, and cancel and await that task when the handler is told to hide. If the handler throws when it is told to
    /// hide, the cleanup runs but is not reported as done, and all of it is tried again. If it throws otherwise, it is told to hide, and is
    /// called again after the wait.
    ///
    /// If the task is cancelled during a cleanup, this function returns only after all steps have run and the result is reported. A failed
    /// cleanup is not tried again then; the next start does it. Last, the handler is told to hide with
    /// ``AccountState/HiddenReason/stopped``, in the cancelled task; an error that it throws then is dropped.
    ///
    /// Run one such loop at a time, and none beside ``accountChanges``.
    ///
    /// - Parameters:
    ///   - cleanup: removes the data of previous users.
    ///   - handler: shows and hides.
    public func follow(
        _ cleanup: CleanupCoordinator,
        _ handler: @escaping (AccountState) async throws -> Void
    ) async {
        var follower = AccountFollower(self, cleanup, handler)
        await follower.run()
    }
}
