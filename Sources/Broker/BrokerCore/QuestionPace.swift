import Basics
import Identity
import SharedDevice

/// Limits how often each app causes a request to the provider, whatever the result: each one costs a request over the
/// network and a commit.
///
/// Pure: the caller passes the time.
struct QuestionPace: Sendable {
    /// How many requests an app of one user has at first, and after what time it gets another one.
    static let (burst, interval) = (16, Duration.seconds(15))

    /// An app during one sign-in. The limit starts again with the next sign-in, because another person may be granted
    /// other scopes.
    struct Asker: Sendable, Hashable {
        let participant: Participant
        let generation: UInt64
    }

    private struct Entry {
        /// When the app has all of its requests again.
        var restored: Duration
        /// The scopes that the provider last refused.
        var refused: Set<String>?
    }

    private var entries: [Asker: Entry] = [:]

    var count: Int { entries.count }

    /// How long until the app may cause a request to the provider; `nil` if it may now.
    ///
    /// - Parameter waiting: How many of its requests are not sent yet.
    func pause(of asker: Asker, waiting: Int = 0, at now: Duration) -> Duration? {
        let restored = max(entries[asker]?.restored ?? now, now) + Self.interval * waiting
        let pause = restored - now - Self.interval * (Self.burst - 1)
        return pause > .zero ? pause : nil
    }

    mutating func take(_ asker: Asker, at now: Duration) {
        // An entry with all of its requests restored equals a new entry.
        entries = entries.filter { $0.value.restored > now }
        entries[asker, default: Entry(restored: now)].restored += Self.interval
    }

    mutating func note(_ refused: Set<String>, to asker: Asker) { entries[asker]?.refused = refused }

    /// Whether the provider last refused exactly these scopes.
    func hasRefused(_ scopes: Set<String>, to asker: Asker) -> Bool { entries[asker]?.refused == scopes }
}

extension Refusal {
    /// - Parameter pause: How long until the app may cause a request to the provider.
    static func askedTooOften(_ pause: Duration) -> Refusal {
        // Rounded up, so that an app that waits for this time has waited long enough.
        let seconds = pause.components.seconds + (pause.components.attoseconds > 0 ? 1 : 0)
        return Refusal(
            .tooManyAttempts,
            "this app has caused too many requests to the organisation's provider; try again in \(seconds) s, or keep tokens until they expire"
        )
    }
}
