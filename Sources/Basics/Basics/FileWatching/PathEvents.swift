import Glibc

/// The events at a path, in the bits of `notify_private.h` (Rules, a.13).
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

    /// Returns the events that a registration wants; 0 means all.
    public static func wanted(_ flags: UInt32) -> PathEvents { flags == 0 ? .all : PathEvents(rawValue: flags) }
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
    private static let changes = UInt32(IN_MODIFY | IN_ATTRIB)

    /// The bits for entries that a path collects, if its target is a directory.
    static func inside(_ wanted: PathEvents) -> UInt32 {
        comings | goings | (wanted.contains(.contents) ? changes : 0)
    }

    /// Returns the events that these bits and two snapshots of the path show.
    func events(_ before: FileSnapshot?, _ after: FileSnapshot?) -> PathEvents {
        if isUnknown { return .all }
        var events = FileSnapshot.difference(before, after)
        func add(_ event: PathEvents, _ mask: UInt32, of bits: UInt32) {
            if bits & mask != 0 { events.insert(event) }
        }
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
