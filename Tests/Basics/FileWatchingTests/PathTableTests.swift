import Glibc
import Testing

@testable import Basics

// Rules, a.13
@Suite struct PathTableTests {
    private var table = PathTable()
    private var fileSystem = FakeFileSystem()
    private let start = ContinuousClock.now

    private mutating func resolve(_ path: String, contents: Bool = false) -> PathResolution {
        PathResolution(of: FilePath(path), contents: contents, by: &fileSystem)
    }

    private mutating func add(_ id: UInt64, _ path: String, _ wanted: PathEvents = .all) {
        table.add(id, FilePath(path), wanted, resolve(path, contents: wanted.contains(.contents)), at: start)
    }

    private func event(_ place: String, _ mask: Int, _ name: String? = nil) -> WatchEvent {
        let watch = Watch(fileSystem.watched.firstIndex(of: place) ?? -1)
        return WatchEvent(watch: watch, mask: UInt32(mask), name: name.map { Array($0.utf8) })
    }

    private mutating func settle(_ id: UInt64, _ path: String, contents: Bool = false) -> Bool {
        table.settle(id, resolve(path, contents: contents), at: start).fires
    }

    @Test mutating func eventsAreMergedFromTheFirstOn() {
        fileSystem.nodes["/f"] = .file(inode: 1)
        add(1, "/f")
        #expect(table.nextDue == nil)
        for step in 0..<1000 { table.take(event("/f", Int(IN_MODIFY)), at: start + .microseconds(step)) }
        #expect(table.nextDue == start + .milliseconds(100))
        let due = [99, 100].map { table.due(at: start + .milliseconds($0)) }
        #expect(due == [[], [1]])
        let fires = settle(1, "/f")
        #expect(fires)
        #expect(table.nextDue == nil)
        let later = table.due(at: start + .seconds(9))
        #expect(later == [])
    }

    @Test("only requested events of a path and of a directory's entries fire")
    mutating func requestedEvents() {
        add(1, "/f")
        table.take(event("/", Int(IN_CREATE), "g"), at: start)
        #expect(table.nextDue == nil)
        table.take(event("/", Int(IN_CREATE), "f"), at: start)
        #expect(table.nextDue != nil)
        (table, fileSystem) = (PathTable(), FakeFileSystem())
        fileSystem.nodes["/f"] = .file(inode: 1)
        add(1, "/f", .delete)
        add(2, "/f", [.delete, .write])
        table.take(event("/f", Int(IN_MODIFY)), at: start)
        let due = table.due(at: start + .seconds(1))
        #expect(due == [1, 2])
        let fires = (settle(1, "/f"), settle(2, "/f"))
        #expect(fires == (false, true))
        (table, fileSystem) = (PathTable(), FakeFileSystem())
        fileSystem.nodes["/d"] = .directory
        add(1, "/d", .write)
        table.take(event("/d", Int(IN_ATTRIB), "x"), at: start)
        #expect(table.nextDue == nil)
        table.take(event("/d", Int(IN_CREATE), "x"), at: start)
        let writes = settle(1, "/d")
        #expect(writes)
    }

    @Test("a directory that appears or is replaced is followed to the file")
    mutating func directories() {
        add(1, "/d/f", .create)
        #expect(table.watchCount == 1)
        fileSystem.nodes["/d"] = .directory
        table.take(event("/", Int(IN_CREATE), "d"), at: start)
        let appeared = settle(1, "/d/f")
        #expect(!appeared)
        #expect(table.watchCount == 2)
        fileSystem.nodes["/d/f"] = .file(inode: 1)
        table.take(event("/d", Int(IN_CREATE), "f"), at: start)
        let created = settle(1, "/d/f")
        #expect(created)
        #expect(table.watchCount == 3)
        (table, fileSystem) = (PathTable(), FakeFileSystem())
        fileSystem.nodes.merge(["/d": .directory, "/d/f": .file(inode: 1)]) { $1 }
        add(1, "/d/f")
        fileSystem.nodes["/d/f"] = .file(inode: 2)
        table.take(event("/", Int(IN_MOVED_FROM), "d"), at: start)
        let fires = settle(1, "/d/f")
        #expect(fires)
    }

    @Test("a removed path reports nothing, and its unused watches are removed")
    mutating func removal() {
        fileSystem.nodes.merge(["/d": .directory, "/d/f": .file(inode: 1)]) { $1 }
        add(1, "/d/f")
        add(2, "/d/g")
        let unused = Set(table.remove(1))
        #expect(unused == [Watch(2)])
        #expect(!table.isInUse(2) && table.isInUse(0))
        let removals = [Set(table.remove(2)), Set(table.remove(2))]
        #expect(removals == [[0, 1], []])
        #expect(table.watchCount == 0)
        (table, fileSystem) = (PathTable(), FakeFileSystem())
        add(1, "/f")
        add(2, "/f")
        table.take(event("/", Int(IN_CREATE), "f"), at: start)
        _ = table.remove(1)
        let due = table.due(at: start + .seconds(1))
        #expect(due == [2])
    }

    @Test mutating func anOverflowFiresEveryPath() {
        fileSystem.nodes["/f"] = .file(inode: 1)
        add(1, "/f", .delete)
        add(2, "/g", .revoke)
        table.take(WatchEvent(watch: -1, mask: UInt32(IN_Q_OVERFLOW), name: nil), at: start)
        let due = table.due(at: start + .seconds(1))
        #expect(due == [1, 2])
        let fires = (settle(1, "/f"), settle(2, "/g"))
        #expect(fires == (true, true))
    }

    @Test mutating func aPathThatCannotBeWatchedIsLookedAtEverySecond() {
        fileSystem.nodes.merge(["/d": .locked, "/d/f": .secret(inode: 1)]) { $1 }
        add(1, "/d/f")
        #expect(table.nextDue == start + .seconds(1))
        let early = table.due(at: start + .milliseconds(999))
        #expect(early == [])
        let due = table.due(at: start + .seconds(1))
        #expect(due == [1])
        let unchanged = settle(1, "/d/f")
        #expect(!unchanged)
        fileSystem.nodes["/d/f"] = .secret(inode: 2)
        let changed = settle(1, "/d/f")
        #expect(changed)
        #expect(table.nextDue == start + .seconds(1))
        // An event of inotify does not wait for the next comparison.
        table.take(event("/", Int(IN_ATTRIB), "d"), at: start)
        #expect(table.nextDue == start + .milliseconds(100))
    }

    @Test("changes of files in a directory are reported, every second if unwatched")
    mutating func contents() {
        fileSystem.nodes["/d"] = .directory
        add(1, "/d")
        table.take(event("/d", Int(IN_MODIFY), "f"), at: start)
        #expect(table.nextDue == nil)
        add(2, "/d", [.all, .contents])
        table.take(event("/d writes", Int(IN_MODIFY), "f"), at: start)
        let due = table.due(at: start + .milliseconds(100))
        let fires = [settle(2, "/d", contents: true), settle(2, "/d", contents: true)]
        #expect(due == [2] && fires == [true, false])
        table.take(event("/d writes", Int(IN_CLOSE_WRITE), "f"), at: start)
        let closed = settle(2, "/d", contents: true)
        #expect(closed, "a program may have written through a memory mapping")
        // Contents that cannot be watched count as changed every second.
        (table, fileSystem) = (PathTable(), FakeFileSystem())
        fileSystem.nodes["/d"] = .locked
        add(1, "/d", [.all, .contents])
        #expect(table.nextDue == start + .seconds(1))
        let unwatched = table.due(at: start + .seconds(1))
        let changes = settle(1, "/d", contents: true)
        #expect(unwatched == [1] && changes)
        #expect(table.nextDue == start + .seconds(1), "from the last look on")
        // Watched contents below an unreadable directory fire only after a change.
        (table, fileSystem) = (PathTable(), FakeFileSystem())
        fileSystem.nodes["/home"] = .locked
        add(1, "/home/d", [.all, .contents])
        let missing = settle(1, "/home/d", contents: true)
        fileSystem.nodes["/home/d"] = .directory
        let appeared = settle(1, "/home/d", contents: true)
        let unchanged = settle(1, "/home/d", contents: true)
        table.take(event("/home/d writes", Int(IN_MODIFY), "f"), at: start)
        let changed = settle(1, "/home/d", contents: true)
        #expect([missing, appeared, unchanged, changed] == [false, true, false, true])
        #expect(table.nextDue == start + .seconds(1), "the path is still compared")
    }

    @Test func inotifysBytesAreRead() {
        var bytes: [UInt8] = []
        for number in [7, UInt32(IN_CREATE), 0, 8] as [UInt32] { withUnsafeBytes(of: number) { bytes += $0 } }
        bytes += Array("abc".utf8) + [0, 0, 0, 0, 0]
        for number in [UInt32(bitPattern: -1), UInt32(IN_Q_OVERFLOW), 0, 0] {
            withUnsafeBytes(of: number) { bytes += $0 }
        }
        var events: [WatchEvent] = []
        InotifyEvents.parse((bytes + [1, 2, 3])[...]) { events.append($0) }
        #expect(
            events == [
                WatchEvent(watch: 7, mask: UInt32(IN_CREATE), name: Array("abc".utf8)),
                WatchEvent(watch: -1, mask: UInt32(IN_Q_OVERFLOW), name: nil),
            ]
        )
    }
}
