/// One thing that an app did, as a line of its event file: a JSON object whose keys are the names of these properties; those
/// that are `nil` are left out.
package struct Event: Codable, Sendable {
    /// What happened. The names are what programs that read the file rely on.
    package enum Kind: String, Codable, Sendable {
        /// The app runs; `detail` names its data directory.
        case started
        /// The broker does not answer; `detail` says why. Once until it answers again.
        case waitingForBroker
        /// Another account, or a new session: `previous` and `current`, and the device's counter in `epoch`.
        case changed
        /// Work that was under way has ended, because of a change; `detail` says how far it came.
        case workStopped
        /// The data of `account` is gone; `detail` says how much it was.
        case dataDeleted
        /// The app has reported that the data of `previous` is gone.
        case cleaned
        /// What the screen shows now, in `detail`: `checking`, `unknown`, `changing`, `nobody`, `failed`, `closed`, or `open`
        /// with `account` and `items`.
        case screen
        /// The sign-in of `account` begins.
        case signingIn
        /// The broker has signed `account` in.
        case signedIn
        /// The sign-out of `account` begins.
        case signingOut
        /// The broker has signed `account` out.
        case signedOut
        /// One unit of work for `account` is done; `detail` says what.
        case worked
        /// Something did not work; `detail` says what and why.
        case failed
        /// The app ends, as it was asked to.
        case ended
    }

    /// When, by ``MonotonicClock``.
    package var nanoseconds: UInt64
    /// The app's name, for instance `point-of-sale`.
    package var app: String
    /// The app's process id.
    package var process: Int32
    /// What happened.
    package var event: Kind
    /// The user name that it is about.
    package var account: String?
    /// The user names whose data is to go.
    package var previous: [String]?
    /// The user name that is signed in now; absent for nobody.
    package var current: String?
    /// The device's change counter.
    package var epoch: UInt64?
    /// How many items a screen shows.
    package var items: Int?
    /// For people.
    package var detail: String?

    /// An event of now, of this app.
    package init(
        _ event: Kind,
        app: String,
        process: Int32,
        account: String? = nil,
        previous: [String]? = nil,
        current: String? = nil,
        epoch: UInt64? = nil,
        items: Int? = nil,
        detail: String? = nil
    ) {
        nanoseconds = MonotonicClock.nanoseconds
        self.app = app
        self.process = process
        self.event = event
        self.account = account
        self.previous = previous
        self.current = current
        self.epoch = epoch
        self.items = items
        self.detail = detail
    }
}
