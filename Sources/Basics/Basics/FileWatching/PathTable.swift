import Glibc

struct WatchEvent: Hashable, Sendable {
    var watch: Watch
    var mask: UInt32
    /// The name of the entry, if the event is about an entry of a watched directory.
    var name: FilePath.Name?
}

/// The monitored paths and their pending events. Pure: it decides which watches are in use, which paths to look at and
/// when, and which paths have changed.
///
/// Events of a path are merged for ``mergePeriod`` from the first event on, in constant memory. Then the path is looked
/// at again.
struct PathTable {
    // Rules, a.13
    static let mergePeriod = Duration.milliseconds(100)
    /// The delay before the next attempt if the kernel had no resources for a watch.
    static let retryPeriod = Duration.seconds(1)
    /// The time between two looks at a path of which a part cannot be watched.
    static let comparePeriod = Duration.seconds(1)
    /// The limits of one process, so that it leaves some of the kernel's watches to other processes of its user.
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
    /// The paths that use each watch, by interest.
    private var users: [Watch: [WatchInterest: Set<UInt64>]] = [:]
    /// The paths with a due time, so that the table does not have to search all of them.
    private var waiting: Set<UInt64> = []

    var nextDue: ContinuousClock.Instant? { waiting.lazy.compactMap { entries[$0]?.due }.min() }

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

    /// Returns the watches that are no longer in use.
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
        // The event that ended the watch has come before this one.
        if event.mask & UInt32(IN_IGNORED) != 0 { return }
        if let name = event.name {
            let mask = event.mask
            for id in interests[.entry(name)] ?? [] { note(id, now) { _ in } }
            for id in interests[.last(name)] ?? [] { note(id, now) { $0.last |= mask } }
            for id in interests[.target] ?? [] {
                let inside = mask & WatchEvents.inside(entries[id]?.wanted ?? [])
                if inside != 0 { note(id, now) { $0.inside |= inside } }
            }
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

    /// Returns when to look at a path even if no event arrives.
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

    /// Returns the paths that are due, each once.
    mutating func due(at now: ContinuousClock.Instant) -> [UInt64] {
        let due = waiting.filter { entries[$0]?.due.map { $0 <= now } ?? true }
        for id in due {
            waiting.remove(id)
            entries[id]?.due = nil
        }
        return due.sorted()
    }

    /// Takes another look at a path. Returns whether a wanted event happened, and the watches that are no
    /// longer in use.
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
        // Another look at a directory does not show whether its files have changed.
        let isUnknown = entry.due != nil && wanted.contains(.contents)
        entries[id] = entry
        connect(id, resolution)
        let unused = disconnect(id, before, but: resolution)
        return (isUnknown || !events.isDisjoint(with: wanted), unused)
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

    func isInUse(_ watch: Watch) -> Bool { users[watch] != nil }

    var watchCount: Int { users.count }
}
