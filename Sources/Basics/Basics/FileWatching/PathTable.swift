import Glibc

struct WatchEvent: Hashable, Sendable {
    var watch: Watch
    var mask: UInt32
    /// The name of the entry, if the event is about an entry of a watched directory.
    var name: FilePath.Name?
}

/// The monitored paths and their pending events. Pure: it decides which watches are in use, which paths to look at and
/// when, and which paths have changed. Events of a path are merged for ``mergePeriod`` from the first one on.
struct PathTable {
    // Rule a.13 of notify(3), on the page “Rules” of the module notify.
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

    /// Takes another look at a path. Returns whether a wanted event happened, and the watches that are out of use now.
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
        let isUnknown =
            entry.due != nil && wanted.contains(.contents) && resolution.end != .missing && !resolution.isTargetWatched
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

/// The events at a path, in the bits of `notify_private.h` (rule a.13 of notify(3)).
///
/// | event | reported for |
/// | --- | --- |
/// | delete | the file was removed, or replaced by another |
/// | write | IN_MODIFY of the file, or of its directory if the file is unreadable; another time of modification |
/// | write (directory) | also new and removed entries |
/// | extend | a larger size |
/// | attrib | IN_ATTRIB that is not explained by the number of links; another mode or owner |
/// | link | another number of links; for a directory, of subdirectories |
/// | rename | IN_MOVE_SELF; IN_MOVED_FROM and IN_MOVED_TO of the path's last part; another file at the path |
/// | revoke | IN_UNMOUNT; inotify knows nothing of revoke(2), which Linux does not have |
/// | create | the file was created, or replaced by another |
/// | mtime, ctime | other times |
///
/// If inotify may not read a directory or a file, two looks at the path are compared (``PathResolution/isCompared``).
///
/// inotify does not report these changes, so they are missed:
/// - writes through a memory mapping
/// - changes that another machine makes on a network file system
/// - file systems mounted over a directory of the path
/// - writes through another link of an unreadable file, until something else happens to the file
public struct PathEvents: OptionSet, Hashable, Sendable {
    public let rawValue: UInt32

    public init(rawValue: UInt32) { self.rawValue = rawValue }

    static let delete = PathEvents(rawValue: 0x1)
    static let write = PathEvents(rawValue: 0x2)
    static let extend = PathEvents(rawValue: 0x4)
    static let attrib = PathEvents(rawValue: 0x8)
    static let link = PathEvents(rawValue: 0x10)
    static let rename = PathEvents(rawValue: 0x20)
    static let revoke = PathEvents(rawValue: 0x40)
    static let create = PathEvents(rawValue: 0x80)
    static let mtime = PathEvents(rawValue: 0x100)
    static let ctime = PathEvents(rawValue: 0x200)
    public static let all = PathEvents(rawValue: 0x3FF)
    /// Changes of the files in a directory, which is the path's target. Not an event of notify(3).
    public static let contents = PathEvents(rawValue: 0x400)

    /// Returns the events that a registration wants; 0 means all. Bits that notify(3) does not have are ignored.
    public static func wanted(_ flags: UInt32) -> PathEvents {
        flags == 0 ? .all : PathEvents(rawValue: flags).intersection(.all)
    }
}

/// The kernel's events for a path, collected until the path is looked at again.
struct WatchEvents: Hashable, Sendable {
    /// Bits of inotify(7) for the path's target itself.
    var target: UInt32 = 0
    /// Bits for the entries of the path's target, if that is a directory.
    var inside: UInt32 = 0
    /// Bits for the path's last part, from the directory that contains it.
    var last: UInt32 = 0
    /// The kernel's queue was full: anything may have happened.
    var isUnknown = false

    private static let comings = UInt32(IN_CREATE | IN_MOVED_TO)
    private static let goings = UInt32(IN_DELETE | IN_MOVED_FROM)
    private static let changes = UInt32(IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB)

    /// The bits for entries that a path collects, if its target is a directory.
    static func inside(_ wanted: PathEvents) -> UInt32 { comings | goings | (wanted.contains(.contents) ? changes : 0) }

    /// Returns the events that these bits and two snapshots of the path show.
    func events(_ before: FileSnapshot?, _ after: FileSnapshot?) -> PathEvents {
        if isUnknown { return .all }
        var events = FileSnapshot.difference(before, after)
        func add(_ event: PathEvents, _ mask: UInt32, of bits: UInt32) { if bits & mask != 0 { events.insert(event) } }
        add(.write, UInt32(IN_MODIFY), of: target)
        add(.delete, UInt32(IN_DELETE_SELF), of: target)
        add(.rename, UInt32(IN_MOVE_SELF), of: target)
        add(.revoke, UInt32(IN_UNMOUNT), of: target)
        add(.write, Self.comings | Self.goings, of: inside)
        add(.contents, Self.changes, of: inside)
        add(.write, UInt32(IN_MODIFY), of: last)
        add(.create, Self.comings, of: last)
        add(.delete, UInt32(IN_DELETE), of: last)
        add(.rename, UInt32(IN_MOVED_FROM | IN_MOVED_TO), of: last)
        // The kernel also reports IN_ATTRIB when a link is added or removed.
        if target & UInt32(IN_ATTRIB) != 0, !events.contains(.link), before != nil, after != nil {
            events.insert(.attrib)
        }
        return events
    }
}
