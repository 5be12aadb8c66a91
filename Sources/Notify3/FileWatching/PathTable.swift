import Glibc

/// One event of inotify's.
struct WatchEvent: Hashable, Sendable {
    var watch: Watch
    var mask: UInt32
    /// The entry, where the watch is of a directory and the event of one of its entries.
    var name: FilePath.Name?
}

/// The monitored paths, and what is pending for each. Pure: it says which watches are in use, which paths to look at and when, and
/// which paths have changed.
///
/// Events of one path are merged for ``mergePeriod`` from the first on, in constant memory; then the path is looked at again.
struct PathTable {
    // Rules, a.13
    static let mergePeriod = Duration.milliseconds(100)
    /// If the kernel had no resources for a watch, the table tries again after this time.
    static let retryPeriod = Duration.seconds(1)
    /// If a part of a path cannot be watched, the table looks at the path once in this time.
    static let comparePeriod = Duration.seconds(1)
    /// What one process may have, so that it leaves some of the kernel's watches to other processes of its user.
    static let maximumPaths = 1024
    static let maximumWatches = 8192

    struct Entry {
        let path: FilePath
        let wanted: PathEvents
        var resolution: PathResolution
        var pending = WatchEvents()
        var due: ContinuousClock.Instant?
    }

    private(set) var entries: [UInt64: Entry] = [:]
    /// The paths that have each interest in a watch.
    private var users: [Watch: [WatchInterest: Set<UInt64>]] = [:]
    /// The paths with pending events, so that the table does not have to search all of them.
    private var waiting: Set<UInt64> = []

    /// When to look next.
    var nextDue: ContinuousClock.Instant? { waiting.lazy.compactMap { entries[$0]?.due }.min() }

    /// Adds a path that was looked at.
    mutating func add(
        _ id: UInt64,
        _ path: FilePath,
        _ wanted: PathEvents,
        _ resolution: PathResolution,
        at now: ContinuousClock.Instant
    ) {
        var entry = Entry(path: path, wanted: wanted, resolution: resolution)
        entry.due = dueWithoutEvents(id, resolution, now)
        entries[id] = entry
        connect(id, resolution)
    }

    /// Returns the watches that no path needs any more.
    mutating func remove(_ id: UInt64) -> [Watch] {
        guard let entry = entries.removeValue(forKey: id) else { return [] }
        waiting.remove(id)
        return disconnect(id, entry.resolution)
    }

    // MARK: Events

    mutating func take(_ event: WatchEvent, at now: ContinuousClock.Instant) {
        if event.mask & UInt32(IN_Q_OVERFLOW) != 0 {
            for id in entries.keys { note(id, now) { $0.isUnknown = true } }
            return
        }
        guard let interests = users[event.watch] else { return }
        // The kernel also reports the event that ended the watch, before this one.
        if event.mask & UInt32(IN_IGNORED) != 0 { return }
        if let name = event.name {
            let mask = event.mask
            for id in interests[.entry(name)] ?? [] { note(id, now) { _ in } }
            for id in interests[.last(name)] ?? [] { note(id, now) { $0.last |= mask } }
            // A monitored directory reports entries that come and go, not changes inside them.
            let moves = UInt32(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
            guard mask & moves != 0 else { return }
            for id in interests[.target] ?? [] { note(id, now) { $0.inside |= mask } }
        } else {
            for (interest, ids) in interests {
                for id in ids { note(id, now) { if interest == .target { $0.target |= event.mask } } }
            }
        }
    }

    private mutating func note(_ id: UInt64, _ now: ContinuousClock.Instant, _ change: (inout WatchEvents) -> Void) {
        guard var entry = entries.removeValue(forKey: id) else { return }
        change(&entry.pending)
        let due = now + Self.mergePeriod
        if entry.due.map({ due < $0 }) ?? true {
            entry.due = due
            waiting.insert(id)
        }
        entries[id] = entry
    }

    /// When to look at a path although nothing may happen there.
    private mutating func dueWithoutEvents(
        _ id: UInt64,
        _ resolution: PathResolution,
        _ now: ContinuousClock.Instant
    ) -> ContinuousClock.Instant? {
        let period: Duration
        if case .impossible = resolution.end {
            period = Self.retryPeriod
        } else if resolution.isCompared {
            period = Self.comparePeriod
        } else {
            return nil
        }
        waiting.insert(id)
        return now + period
    }

    /// The paths that are due, each once.
    mutating func due(at now: ContinuousClock.Instant) -> [UInt64] {
        let due = waiting.filter { entries[$0]?.due.map { $0 <= now } ?? true }
        for id in due {
            waiting.remove(id)
            entries[id]?.due = nil
        }
        return due.sorted()
    }

    /// A path was looked at again. Returns whether it has changed, and the watches that no path needs any more.
    mutating func settle(
        _ id: UInt64,
        _ resolution: PathResolution,
        at now: ContinuousClock.Instant
    ) -> (fires: Bool, unused: [Watch]) {
        guard var entry = entries.removeValue(forKey: id) else { return (false, []) }
        let events = entry.pending.events(entry.resolution.snapshot, resolution.snapshot)
        let before = entry.resolution
        entry.resolution = resolution
        entry.pending = WatchEvents()
        entry.due = dueWithoutEvents(id, resolution, now)
        let wanted = entry.wanted
        entries[id] = entry
        connect(id, resolution)
        let unused = disconnect(id, before, but: resolution)
        return (!events.isDisjoint(with: wanted), unused)
    }

    // MARK: Watches

    private mutating func connect(_ id: UInt64, _ resolution: PathResolution) {
        for (watch, interests) in resolution.interests {
            for interest in interests { users[watch, default: [:]][interest, default: []].insert(id) }
        }
    }

    private mutating func disconnect(
        _ id: UInt64,
        _ resolution: PathResolution,
        but kept: PathResolution? = nil
    ) -> [Watch] {
        var unused: [Watch] = []
        for (watch, interests) in resolution.interests {
            for interest in interests.subtracting(kept?.interests[watch] ?? []) {
                users[watch]?[interest]?.remove(id)
                if users[watch]?[interest]?.isEmpty == true { users[watch]?[interest] = nil }
            }
            if users[watch]?.isEmpty == true {
                users[watch] = nil
                unused.append(watch)
            }
        }
        return unused
    }

    /// Whether a path needs the watch.
    func isInUse(_ watch: Watch) -> Bool { users[watch] != nil }

    /// How many watches of the kernel's are in use.
    var watchCount: Int { users.count }
}
