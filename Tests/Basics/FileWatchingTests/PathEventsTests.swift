import Glibc
import Testing

@testable import Basics

// Rules, a.13
@Suite struct PathEventsTests {
    private let file = FileSnapshot(device: 1, inode: 2, mode: 0o644, links: 1, size: 10)

    private func changed(_ change: (inout FileSnapshot) -> Void) -> FileSnapshot {
        var copy = file
        change(&copy)
        return copy
    }

    @Test("the difference of two states of a path becomes events of notify(3)")
    func differences() {
        let changes: [(FileSnapshot?, FileSnapshot?, PathEvents)] = [
            (nil, file, .create), (file, nil, .delete), (nil, nil, []), (file, file, []),
            // Another file is in the place.
            (file, changed { $0.inode = 3 }, [.delete, .create, .rename]),
            (file, changed { $0.size = 11 }, .extend), (file, changed { $0.size = 9 }, .write),
            (file, changed { $0.mode = 0o600 }, .attrib), (file, changed { $0.user = 1 }, .attrib),
            (file, changed { $0.links = 2 }, .link), (file, changed { $0.modified = 1 }, [.write, .mtime]),
            (file, changed { $0.changed = 1 }, .ctime),
        ]
        for (before, after, events) in changes {
            #expect(FileSnapshot.difference(before, after) == events, "\(events)")
        }
    }

    @Test("events of inotify and flags of callers become events of notify(3)")
    func mapping() {
        func inotify(target: Int = 0, inside: Int = 0, last: Int = 0) -> WatchEvents {
            WatchEvents(target: UInt32(target), inside: UInt32(inside), last: UInt32(last))
        }
        let unchanged: [(WatchEvents, PathEvents)] = [
            (inotify(target: Int(IN_MODIFY)), .write), (inotify(target: Int(IN_ATTRIB)), .attrib),
            (inotify(target: Int(IN_DELETE_SELF)), .delete), (inotify(target: Int(IN_MOVE_SELF)), .rename),
            (inotify(target: Int(IN_UNMOUNT)), .revoke), (inotify(inside: Int(IN_CREATE)), .write),
            (inotify(inside: Int(IN_MOVED_FROM)), .write), (inotify(last: Int(IN_CREATE)), .create),
            (inotify(last: Int(IN_DELETE)), .delete), (inotify(last: Int(IN_MOVED_TO)), [.create, .rename]),
            (inotify(last: Int(IN_MOVED_FROM)), .rename), (inotify(), []),
            // After an overflow everything may have happened.
            (WatchEvents(isUnknown: true), .all),
        ]
        for (inotify, events) in unchanged { #expect(inotify.events(file, file) == events, "\(inotify)") }
        let linked = inotify(target: Int(IN_ATTRIB)).events(file, changed { $0.links = 2 })
        #expect(linked == .link, "a new link does not change attributes")
        #expect(PathEvents.wanted(0) == .all)
        #expect(PathEvents.wanted(0x82) == [.create, .write])
        #expect(PathEvents.wanted(0x482) == [.create, .write], "0x400 is no flag of notify(3)")
    }
}
