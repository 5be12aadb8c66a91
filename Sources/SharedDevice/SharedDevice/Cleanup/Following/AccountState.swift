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
