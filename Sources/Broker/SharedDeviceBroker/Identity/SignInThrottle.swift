/// Slows down who guesses passwords: after a number of failed attempts for one name, each further one is refused until
/// some time after the last. Whether a user of that name exists makes no difference.
///
/// Pure: the caller brings the time. An attempt counts as failed from its admission until it has succeeded; so many
/// attempts at once do not slip through before the first has failed.
struct SignInThrottle: Sendable {
    /// What an attempt is told.
    enum Admission: Sendable, Equatable {
        /// Go on, and report a success.
        case admitted
        /// Not yet.
        case refused(retryAfter: Duration)
    }

    private struct Entry {
        var failures: Int
        var lastAttempt: ContinuousClock.Instant
    }

    /// How many attempts may fail before one has to wait.
    let allowedFailures: Int
    /// How long after the latest admitted attempt the next is refused.
    let wait: Duration
    /// How long after the latest admitted attempt the failures are forgotten.
    let memory: Duration
    /// How many names are remembered at most.
    let capacity: Int

    private var entries: [String: Entry] = [:]

    init(
        allowedFailures: Int = 5,
        wait: Duration = .seconds(30),
        memory: Duration = .seconds(900),
        capacity: Int = 1024
    ) {
        self.allowedFailures = allowedFailures
        self.wait = wait
        self.memory = memory
        self.capacity = capacity
    }

    /// How many names are remembered.
    var count: Int { entries.count }

    /// Whether an attempt for the name of this key may go on now. If it may, it is counted.
    mutating func admit(_ key: String, at now: ContinuousClock.Instant) -> Admission {
        var entry = Entry(failures: 0, lastAttempt: now)
        if let known = entries[key], now - known.lastAttempt < memory {
            let waited = now - known.lastAttempt
            if known.failures >= allowedFailures, waited < wait { return .refused(retryAfter: wait - waited) }
            entry.failures = known.failures
        } else if entries[key] == nil, entries.count >= capacity {
            makeRoom(at: now)
        }
        entry.failures += 1
        entry.lastAttempt = now
        entries[key] = entry
        return .admitted
    }

    /// The person has given the right password: earlier failures were slips.
    mutating func succeeded(_ key: String) {
        entries[key] = nil
    }

    /// An admitted attempt came to no verdict, through no fault of the person's.
    mutating func cancelled(_ key: String) {
        guard var entry = entries[key] else { return }
        entry.failures -= 1
        entries[key] = entry.failures > 0 ? entry : nil
    }

    /// Forgets what is due, or else the name with the fewest failures: a name under attack is not pushed out by a flood
    /// of names that were tried once.
    private mutating func makeRoom(at now: ContinuousClock.Instant) {
        let before = entries.count
        entries = entries.filter { now - $0.value.lastAttempt < memory }
        guard entries.count == before else { return }
        let weakest = entries.min {
            ($0.value.failures, $0.value.lastAttempt) < ($1.value.failures, $1.value.lastAttempt)
        }
        if let weakest { entries[weakest.key] = nil }
    }
}
