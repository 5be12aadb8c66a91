/// What an app on a shared device may show.
public enum AccountState: Sendable, Hashable {
    /// Nothing of anybody: clear the screen, stop work under way and wait for its end, close files and databases.
    case hidden(HiddenReason)
    /// Nobody is signed in, and no data of anybody is left.
    case nobody
    /// This account's data, and no other's. The data of those before is gone.
    case open(Account)

    /// Whose data may be shown; `nil` for nobody's.
    public var account: Account? {
        guard case .open(let account) = self else { return nil }
        return account
    }

    /// Why nothing may be shown. New reasons may come: a `switch` needs a `default`, or show ``description``.
    public enum HiddenReason: Sendable, Hashable, CustomStringConvertible {
        /// The broker has not been asked yet.
        case starting
        /// The account has changed, and the data of those before is being removed.
        case changing
        /// The data of those before could not be removed. It is tried again.
        case cleanupFailed(CleanupFailure)
        /// Nobody can say who is signed in: the broker does not answer, or the app's record cannot be used. It is asked again.
        case unknown(SharedDeviceError)
        /// The app's handler threw when it was to open or to show that nobody is signed in; the error's text. It is called again.
        case appFailed(String)
        /// The account is not followed any more.
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
    /// Follows the account of the device until the task is cancelled: hides the screen, has the data of the previous users removed,
    /// reports that, and only then shows what the current user has.
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
    /// `handler` is told first to hide, then what may be shown, and again with each change:
    ///
    /// - Between two accounts it is told to hide, before the first step of the cleanup begins.
    /// - While a cleanup fails, it stays hidden, and the cleanup is tried again, after 1 second at first and 60 at most
    ///   (``CleanupCoordinator/Options``).
    /// - While the broker does not answer, it stays hidden: nobody can say whose data may be shown.
    /// - The same state is not told twice in a row.
    ///
    /// It runs on the caller's actor, one call at a time, and the next state waits for it. So it should return soon: longer work for a
    /// user goes into a task that the handler cancels, and awaits, when it is told to hide. Where it throws when it is to hide, the cleanup
    /// runs but is not reported as done, and all is tried again. Where it throws otherwise, it is told to hide, and called
    /// again after the wait.
    ///
    /// A cleanup that has begun is not given up when the task is cancelled: this function returns when its steps have run and it is
    /// reported. It is then not tried again in this run of the app; what is left is done at the next. Last, the handler is told to
    /// hide with ``AccountState/HiddenReason/stopped``, in the cancelled task; an error that it throws then is dropped.
    ///
    /// For one loop at a time, and not beside ``accountChanges``.
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
