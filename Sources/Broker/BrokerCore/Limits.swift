import FoundationEssentials

// Limits of what one process, one user and all users together may request. Pure: the caller passes the time of the
// monotonic clock.

/// Lets each key have a number of turns at first, and one more after each interval.
struct RateLimit<Key: Hashable & Sendable>: Sendable {
    private let burst: Int
    private let interval: Duration
    /// When each key has all of its turns again. A key without an entry has them.
    private var restored: [Key: Duration] = [:]

    var count: Int { restored.count }

    init(burst: Int, every interval: Duration) { (self.burst, self.interval) = (burst, interval) }

    /// How long until the key has a turn; `nil` if it has one now.
    ///
    /// - Parameter waiting: How many of its turns are not taken yet.
    func pause(of key: Key, waiting: Int = 0, at now: Duration) -> Duration? {
        let pause = debt(of: key, at: now) + interval * (waiting - burst + 1)
        return pause > .zero ? pause : nil
    }

    /// How long until the key has all of its turns again.
    func debt(of key: Key, at now: Duration) -> Duration { max(restored[key] ?? now, now) - now }

    mutating func take(_ key: Key, at now: Duration) {
        restored = restored.filter { $0.value > now }
        restored[key, default: now] += interval
    }

    mutating func giveBack(_ time: Duration, to key: Key, at now: Duration) {
        let rest = debt(of: key, at: now) - time
        restored[key] = rest > .zero ? now + rest : nil
    }
}

/// Slows down the guessing of passwords.
///
/// Failures count for each pair of calling user and tried name, so that a user cannot lock out the callers of another
/// user, and for each user alone, which slows down trying one password with many names.
///
/// An attempt counts as failed from its admission until it has succeeded. Otherwise many attempts could pass at once
/// before the first has failed.
struct PasswordThrottle: Sendable {
    private struct Guess: Hashable {
        let user: UInt32
        let name: String
    }

    /// How many attempts with one name may fail before the next has to wait.
    static let allowedFailures = 5
    /// How many attempts of one user with any names may fail before the next has to wait.
    static let allowedOfUser = 50
    /// How long it takes to forget one failure. Failures are forgotten one after the other.
    static let decay = Duration.seconds(30)

    /// The number of names is limited by the failures that each user may have with all names.
    private var names = RateLimit<Guess>(burst: PasswordThrottle.allowedFailures, every: PasswordThrottle.decay)
    private var users = RateLimit<UInt32>(burst: PasswordThrottle.allowedOfUser, every: PasswordThrottle.decay)

    var count: Int { names.count }

    /// Admits and counts an attempt.
    ///
    /// - Returns: How long the attempt has to wait; `nil` if it was admitted.
    mutating func admit(_ name: String, of user: UInt32, at now: Duration) -> Duration? {
        let guess = Guess(user: user, name: name)
        if let wait = names.pause(of: guess, at: now) ?? users.pause(of: user, at: now) { return wait }
        names.take(guess, at: now)
        users.take(user, at: now)
        return nil
    }

    /// Forgets this attempt and earlier failures with this name: the password was right.
    mutating func succeeded(_ name: String, of user: UInt32, at now: Duration) {
        forget(names.debt(of: Guess(user: user, name: name), at: now), name, user, at: now)
    }

    /// Takes back an admitted attempt that had no result through no fault of the person.
    mutating func cancelled(_ name: String, of user: UInt32, at now: Duration) {
        forget(Self.decay, name, user, at: now)
    }

    private mutating func forget(_ time: Duration, _ name: String, _ user: UInt32, at now: Duration) {
        names.giveBack(time, to: Guess(user: user, name: name), at: now)
        users.giveBack(time, to: user, at: now)
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
    /// How many windows each user has. Callers can invent names at no cost, so further pairs of app and reason share
    /// one.
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

    private mutating func keep(_ kept: [Key: Window]) {
        windows = kept
        counts = kept.keys.reduce(into: [:]) { $0[$1.user, default: 0] += 1 }
        oldest = kept.values.map(\.beganAt).min()
        isCounting = kept.values.contains { $0.suppressed > 0 }
    }
}
