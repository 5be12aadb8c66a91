import FoundationEssentials
import Glibc
import SharedDevice

/// An action of an app, as a line of its event file: a JSON object whose keys are the names of these properties.
/// Properties that are `nil` are omitted.
public struct Event: Codable, Sendable {
    /// The kind of action. Programs that read the file rely on these names.
    public enum Kind: String, Codable, Sendable {
        /// The app runs; `detail` names its data directory.
        case started
        /// The broker does not respond; `detail` says why. Recorded once until it responds again.
        case waitingForBroker
        /// A change has made a cleanup due: `previous` and `current` name the users, `epoch` the change. Recorded when
        /// the cleanup begins.
        case changed
        /// A change has ended the work in progress; `detail` says how far it came.
        case workStopped
        /// The data of `account` is deleted; `detail` says how much it was.
        case dataDeleted
        /// The app has reported that the data of `previous` is deleted.
        case cleaned
        /// The screen has changed. `detail` is `checking`, `unknown`, `changing`, `nobody`, `failed`, `closed`, or
        /// `open` with `account` and `items`.
        case screen
        case signingIn
        case signedIn
        case signingOut
        case signedOut
        /// One unit of work for `account` is done; `detail` describes it.
        case worked
        /// An operation failed; `detail` says which and why.
        case failed
        /// The app ends because it was told to.
        case ended
    }

    /// The time, by ``MonotonicClock``.
    public var nanoseconds = MonotonicClock.nanoseconds
    /// The app's name, for instance `point-of-sale`.
    public var app: String
    public var process = ProcessInfo.processInfo.processIdentifier
    public var event: Kind
    /// The user name that the event is about.
    public var account: String?
    /// The user names whose data has to be deleted.
    public var previous: [String]?
    /// The name of the signed-in user; absent if there is none.
    public var current: String?
    /// The number of the change, from ``AccountChange/epoch``.
    public var epoch: UInt64?
    public var items: Int?
    /// The service's response to the app's token.
    public var orders: String?
    /// How long the broker took to return the token.
    public var tokenMilliseconds: Double?
    /// For people.
    public var detail: String?
}

/// Appends an app's events to a file, one JSON object per line, for tests and for the demonstration.
///
/// A single system call writes each line, so that a killed process leaves no incomplete line. On return the line is in
/// the file.
final class EventLog: Sendable {
    private let app: String
    private let path: String?
    private let descriptor: CInt

    /// - Parameter path: The file, created if it is missing; `nil` means no log.
    /// - Throws: ``FileFailure`` if it cannot be opened.
    init(app: String, path: String?) throws(FileFailure) {
        self.app = app
        self.path = path
        guard let path else {
            descriptor = -1
            return
        }
        descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw FileFailure("open the event file", path) }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    func record(
        _ kind: Event.Kind,
        account: String? = nil,
        items: Int? = nil,
        orders: String? = nil,
        tokenMilliseconds: Double? = nil,
        detail: String? = nil
    ) {
        append(
            Event(
                app: app,
                event: kind,
                account: account,
                items: items,
                orders: orders,
                tokenMilliseconds: tokenMilliseconds,
                detail: detail
            )
        )
    }

    func record(_ kind: Event.Kind, _ change: AccountChange) {
        let previous = change.previousAccounts.map(\.username)
        let current = change.current?.username
        append(Event(app: app, event: kind, previous: previous, current: current, epoch: change.epoch))
    }

    private func append(_ event: Event) {
        guard let path else { return }
        do {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            let line = try encoder.encode(event) + [UInt8(ascii: "\n")]
            let written = line.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard written == line.count else { throw FileFailure("write to the event file", path) }
        } catch {
            Console.warn("\(app): \(error)")
        }
    }
}

/// The machine's monotonic clock (`CLOCK_MONOTONIC`), whose readings can be compared between processes.
public enum MonotonicClock {
    /// Nanoseconds since an instant that is the same for every process until the machine restarts.
    public static var nanoseconds: UInt64 {
        var time = timespec()
        // Fails only for an unknown clock or an invalid address.
        clock_gettime(CLOCK_MONOTONIC, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
