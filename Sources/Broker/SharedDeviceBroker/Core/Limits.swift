import FoundationEssentials

// What one process, one user and all of them together may ask of the broker. All of it is pure: the caller passes the time of the clock that
// never jumps.

/// Slows down who guesses passwords. It counts by the user that calls and the name that is tried, so that nobody locks out another user's
/// callers; and by the user alone, so that trying one password with many names is slowed down, too. Whether a person of that name exists
/// makes no difference.
///
/// An attempt counts as failed from its admission until it has succeeded, so that many attempts at once do not slip through before the first
/// has failed.
package struct PasswordThrottle: Sendable {
    private struct Attempt: Hashable {
        let user: UInt32
        /// `nil` counts all attempts of the user.
        let name: String?
    }

    /// How many attempts with one name may fail before the next has to wait.
    static let allowedFailures = 5
    /// How many attempts of one user with any names may fail before the next has to wait.
    static let allowedOfUser = 50
    /// How long it takes until one failure is forgotten. Failures are forgotten one after the other.
    static let decay = Duration.seconds(30)

    /// When all failures are forgotten, if no further one is added.
    private var entries: [Attempt: Duration] = [:]

    /// How many names are remembered.
    package var count: Int { entries.keys.count { $0.name != nil } }

    /// How long until this user may make an attempt with this name; `nil` where it goes on now, and is counted.
    package mutating func admit(_ name: String, of user: UInt32, at now: Duration) -> Duration? {
        let (one, all) = (Attempt(user: user, name: name), Attempt(user: user, name: nil))
        for (attempt, allowed) in [(one, Self.allowedFailures), (all, Self.allowedOfUser)] {
            guard let end = entries[attempt] else { continue }
            let wait = end - now - Self.decay * (allowed - 1)
            if wait > .zero { return wait }
        }
        // The failures that a user may have with all names bound how many names there are.
        entries = entries.filter { $0.value > now }
        for attempt in [one, all] { entries[attempt] = (entries[attempt] ?? now) + Self.decay }
        return nil
    }

    /// The person has given the right password: this attempt and earlier failures with this name do not count.
    package mutating func succeeded(_ name: String, of user: UInt32, at now: Duration) {
        let one = Attempt(user: user, name: name)
        if let end = entries[one], end > now { forget(end - now, of: Attempt(user: user, name: nil), at: now) }
        entries[one] = nil
    }

    /// An admitted attempt came to no verdict, through no fault of the person's.
    package mutating func cancelled(_ name: String, of user: UInt32, at now: Duration) {
        for name in [name, nil] { forget(Self.decay, of: Attempt(user: user, name: name), at: now) }
    }

    private mutating func forget(_ time: Duration, of attempt: Attempt, at now: Duration) {
        guard let end = entries[attempt] else { return }
        entries[attempt] = end - time > now ? end - time : nil
    }
}

/// Keeps callers from filling the log. It admits a number of entries a minute for each user, app and reason, and then one entry that counts
/// the rest.
package struct LogLimiter: Sendable {
    private struct Key: Hashable {
        let user: UInt32
        let app: String
        let reason: String
    }

    private struct Window {
        let beganAt: Duration
        var admitted = 0
        var suppressed = 0
    }

    /// The entries that were only counted, in a minute that is over.
    package struct Summary: Sendable, Equatable {
        package let app: String
        package let reason: String
        package let count: Int

        /// What the log says of it.
        package var detail: String { "\(reason) … and \(count) more" }
    }

    package static let window = Duration.seconds(60)
    /// How many pairs of app and reason have a window of their own, for each user. Callers make up names at no cost, so that all further
    /// pairs of the user share one window.
    package static let windowsOfUser = 50
    /// The name in the log for the pairs that share a window.
    package static let others = "other apps"

    private let limit: Int
    private var windows: [Key: Window] = [:]
    /// How many windows of each user there are.
    private var counts: [UInt32: Int] = [:]
    /// No window began earlier; `nil` where there is none. So nobody looks at all of them at each event.
    private var oldest: Duration?
    /// Whether something was only counted.
    private var isCounting = false

    /// - Parameter limit: entries a minute for each user, app and reason.
    package init(limit: Int = 10) { self.limit = limit }

    /// Whether the log gets an entry. One that it does not get is counted.
    package mutating func admits(_ user: UInt32, _ app: String, _ reason: String, at now: Duration) -> Bool {
        var key = Key(user: user, app: app, reason: reason)
        if windows[key] == nil, counts[user] ?? 0 >= Self.windowsOfUser {
            if hasEnded(at: now) { keep(windows.filter { $0.value.suppressed > 0 || !isOver($0.value, at: now) }) }
            if counts[user] ?? 0 >= Self.windowsOfUser { key = Key(user: user, app: Self.others, reason: "") }
        }
        if windows[key] == nil {
            counts[user, default: 0] += 1
            oldest = min(oldest ?? now, now)
        }
        var current = windows[key] ?? Window(beganAt: now)
        // A window that is over goes on until its summary was taken.
        if isOver(current, at: now), current.suppressed == 0 { current = Window(beganAt: now) }
        defer { windows[key] = current }
        guard current.admitted < limit else {
            current.suppressed += 1
            isCounting = true
            return false
        }
        current.admitted += 1
        return true
    }

    /// When the next summary is due; `nil` where nothing was only counted.
    package var nextSummary: Duration? {
        isCounting ? windows.values.filter { $0.suppressed > 0 }.map { $0.beganAt + Self.window }.min() : nil
    }

    /// The summaries of the windows that are over. Forgets those windows.
    package mutating func summaries(at now: Duration) -> [Summary] {
        guard hasEnded(at: now) else { return [] }
        let over = windows.filter { isOver($0.value, at: now) }
        keep(windows.filter { over[$0.key] == nil })
        return over.filter { $0.value.suppressed > 0 }
            .map { Summary(app: $0.key.app, reason: $0.key.reason, count: $0.value.suppressed) }
            .sorted { ($0.app, $0.reason) < ($1.app, $1.reason) }
    }

    private func isOver(_ window: Window, at now: Duration) -> Bool { now >= window.beganAt + Self.window }

    /// Whether some window may be over.
    private func hasEnded(at now: Duration) -> Bool { oldest.map { now >= $0 + Self.window } ?? false }

    /// Forgets all other windows.
    private mutating func keep(_ kept: [Key: Window]) {
        windows = kept
        counts = kept.keys.reduce(into: [:]) { $0[$1.user, default: 0] += 1 }
        oldest = kept.values.map(\.beganAt).min()
        isCounting = kept.values.contains { $0.suppressed > 0 }
    }
}

/// Bounds a text of another process. It counts Unicode scalars, because one character may have any length.
extension String {
    /// At most so many Unicode scalars of it, without line breaks and control characters: nobody can write a line of the log that looks
    /// like another one's.
    package func forLog(_ length: Int) -> String {
        // Nearly every text is of this kind.
        if utf8.count <= length, utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) { return self }
        let kept = unicodeScalars.prefix(length).map { scalar -> Unicode.Scalar in
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator, .format, .surrogate: "\u{FFFD}"
            default: scalar
            }
        }
        return String(String.UnicodeScalarView(kept))
    }
}
