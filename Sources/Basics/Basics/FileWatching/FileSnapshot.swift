import Glibc

/// The part of stat(2)'s result whose changes count.
struct FileSnapshot: Hashable, Sendable {
    struct Time: Hashable, Sendable {
        var seconds: Int
        var nanoseconds: Int

        init(_ seconds: Int, _ nanoseconds: Int = 0) {
            self.seconds = seconds
            self.nanoseconds = nanoseconds
        }
    }

    var device: UInt64 = 0
    var inode: UInt64 = 0
    var mode: UInt32 = 0
    var user: UInt32 = 0
    var group: UInt32 = 0
    var links: UInt64 = 0
    var size: Int64 = 0
    var modified = Time(0)
    var changed = Time(0)

    /// Returns the events that explain the difference between two snapshots; `nil` means that there was no file.
    static func difference(_ before: FileSnapshot?, _ after: FileSnapshot?) -> PathEvents {
        switch (before, after) {
        case (nil, nil): return []
        case (nil, _): return .create
        case (_, nil): return .delete
        case (let before?, let after?):
            var events: PathEvents = []
            if (before.device, before.inode) != (after.device, after.inode) {
                events.formUnion([.delete, .create, .rename])
            }
            if before.modified != after.modified { events.formUnion([.write, .mtime]) }
            if before.changed != after.changed { events.insert(.ctime) }
            if after.size > before.size { events.insert(.extend) }
            if after.size < before.size { events.insert(.write) }
            if (before.mode, before.user, before.group) != (after.mode, after.user, after.group) {
                events.insert(.attrib)
            }
            if before.links != after.links { events.insert(.link) }
            return events
        }
    }
}

extension FileSnapshot {
    init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        mode = status.st_mode
        user = status.st_uid
        group = status.st_gid
        links = UInt64(status.st_nlink)
        size = Int64(status.st_size)
        modified = Time(status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
        changed = Time(status.st_ctim.tv_sec, status.st_ctim.tv_nsec)
    }
}
