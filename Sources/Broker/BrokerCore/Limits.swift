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

    /// How long until the key has a turn, after this many waiting ones; `nil` if it has one now.
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

    /// Admits and counts an attempt, or returns how long it has to wait.
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
