import FoundationEssentials

// Limits of what one process, one user and all users together may request. Pure: the caller passes the time of the
// monotonic clock.

/// Slows down the guessing of passwords.
///
/// Failures count for each pair of calling user and tried name, so that a user cannot lock out the callers of another
/// user. They also count for each user alone, which slows down trying one password with many names. Whether a person of
/// that name exists makes no difference.
///
/// An attempt counts as failed from its admission until it has succeeded. Otherwise many attempts could pass at once
/// before the first has failed.
package struct PasswordThrottle: Sendable {
    private struct Attempt: Hashable {
        let user: UInt32
        /// The name that was tried; `nil` counts all attempts of the user.
        let name: String?
    }

    /// How many attempts with one name may fail before the next has to wait.
    static let allowedFailures = 5
    /// How many attempts of one user with any names may fail before the next has to wait.
    static let allowedOfUser = 50
    /// How long it takes to forget one failure. Failures are forgotten one after the other.
    static let decay = Duration.seconds(30)

    /// When all failures will be forgotten, if none is added.
    private var entries: [Attempt: Duration] = [:]

    package var count: Int { entries.keys.count { $0.name != nil } }

    /// Admits and counts an attempt.
    ///
    /// - Returns: How long the attempt has to wait; `nil` if it was admitted.
    package mutating func admit(_ name: String, of user: UInt32, at now: Duration) -> Duration? {
        let (one, all) = (Attempt(user: user, name: name), Attempt(user: user, name: nil))
        for (attempt, allowed) in [(one, Self.allowedFailures), (all, Self.allowedOfUser)] {
            guard let end = entries[attempt] else { continue }
            let wait = end - now - Self.decay * (allowed - 1)
            if wait > .zero { return wait }
        }
        // The number of names is limited by the failures that each user may have with all names.
        entries = entries.filter { $0.value > now }
        for attempt in [one, all] { entries[attempt] = (entries[attempt] ?? now) + Self.decay }
        return nil
    }

    /// Records that the password was right: this attempt and earlier failures with this name no longer count.
    package mutating func succeeded(_ name: String, of user: UInt32, at now: Duration) {
        let one = Attempt(user: user, name: name)
        if let end = entries[one], end > now { forget(end - now, of: Attempt(user: user, name: nil), at: now) }
        entries[one] = nil
    }

    /// Takes back an admitted attempt that had no result through no fault of the person.
    package mutating func cancelled(_ name: String, of user: UInt32, at now: Duration) {
        for name in [name, nil] { forget(Self.decay, of: Attempt(user: user, name: name), at: now) }
    }

    private mutating func forget(_ time: Duration, of attempt: Attempt, at now: Duration) {
        guard let end = entries[attempt] else { return }
        entries[attempt] = end - time > now ? end - time : nil
    }
}

/// Keeps callers from filling the log. For each user, app and reason it admits a number of entries a minute, and then
/// one entry that counts the others.
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

    /// The entries that were counted but not logged in a window that is over.
    package struct Summary: Sendable, Equatable {
        package let app: String
        package let reason: String
        package let count: Int

        package var detail: String { "\(reason) … and \(count) more" }
    }

    package static let window = Duration.seconds(60)
    /// How many windows each user has, for pairs of app and reason. Callers can invent names at no cost, so all further
    /// pairs of the user share one window.
    package static let windowsOfUser = 50
    /// The name in the log for the pairs that share a window.
    package static let others = "other apps"

    private let limit: Int
    private var windows: [Key: Window] = [:]
    private var counts: [UInt32: Int] = [:]
    /// The earliest beginning of a window; `nil` if there is none. It avoids a search of all windows at each event.
    private var oldest: Duration?
    /// Whether a window has entries that were counted but not logged.
    private var isCounting = false

    /// - Parameter limit: The number of entries a minute for each user, app and reason.
    package init(limit: Int = 10) { self.limit = limit }

    /// Whether the log gets an entry. An entry that it does not get is counted.
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
        // A window that is over continues until its summary was taken.
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

    /// When the next summary is due; `nil` if there is none.
    package var nextSummary: Duration? {
        isCounting ? windows.values.filter { $0.suppressed > 0 }.map { $0.beganAt + Self.window }.min() : nil
    }

    /// Returns the summaries of the windows that are over, and forgets those windows.
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

    /// Replaces the windows, and updates the values that depend on them.
    private mutating func keep(_ kept: [Key: Window]) {
        windows = kept
        counts = kept.keys.reduce(into: [:]) { $0[$1.user, default: 0] += 1 }
        oldest = kept.values.map(\.beganAt).min()
        isCounting = kept.values.contains { $0.suppressed > 0 }
    }
}
