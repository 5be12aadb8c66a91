import Glibc
import Synchronization

/// The thread of a ``PathWatcher``. Waits for inotify, for commands and for due paths, and carries out the table's
/// decisions.
struct PathThread {
    private let core: PathWatcher.Core
    private var events: InotifyEvents
    private var table = PathTable()
    /// Whether the ``PathWatcher`` is gone. The thread then ends.
    private var hasEnded = false

    private init(_ core: PathWatcher.Core) {
        self.core = core
        events = InotifyEvents(core.inotify)
    }

    /// Returns false, with `errno` set, if the system has no thread left.
    static func start(_ core: PathWatcher.Core) -> Bool {
        let thread = QuietThread.start("paths") {
            var thread = PathThread(core)
            thread.run()
        }
        return thread != nil
    }

    private mutating func run() {
        while !hasEnded {
            wait()
            let now = ContinuousClock.now
            events.drain { table.take($0, at: now) }
            for command in takeCommands() { carryOut(command) }
            lookAgain()
        }
    }

    private func wait() {
        var descriptors = [
            pollfd(fd: core.inotify, events: CShort(POLLIN), revents: 0),
            pollfd(fd: core.event.descriptor, events: CShort(POLLIN), revents: 0),
        ]
        _ = poll(&descriptors, nfds_t(descriptors.count), timeout)
        if descriptors[1].revents != 0 { core.event.clear() }
    }

    /// Milliseconds until the first path is due; -1 if none is.
    private var timeout: CInt { table.nextDue.map(milliseconds(until:)) ?? -1 }

    private func takeCommands() -> [PathWatcher.Command] {
        core.commands.withLock { commands in
            defer { commands = [] }
            return commands
        }
    }

    private mutating func carryOut(_ command: PathWatcher.Command) {
        switch command {
        case .add(let id, let path, let wanted, let done):
            guard table.entries.count < PathTable.maximumPaths else {
                return done(.impossible("a process may monitor \(PathTable.maximumPaths) paths; cancel some tokens"))
            }
            let resolution = resolve(path, wanted)
            switch resolution.end {
            case .present, .missing:
                table.add(id, path, wanted, resolution, at: .now)
                tellFigures()
                done(.watched)
            case .denied:
                discard(resolution.interests.keys)
                done(.denied)
            case .impossible(let message):
                discard(resolution.interests.keys)
                done(.impossible(message))
            }
        case .remove(let id):
            discard(table.remove(id))
            tellFigures()
        case .end: hasEnded = true
        }
    }

    private mutating func lookAgain() {
        var fired: [UInt64] = []
        for id in table.due(at: .now) {
            guard let entry = table.entries[id] else { continue }
            let resolution = resolve(entry.path, entry.wanted)
            let (fires, unused) = table.settle(id, resolution, at: .now)
            discard(unused)
            if fires { fired.append(id) }
            tellFigures()
        }
        if !fired.isEmpty { core.changed(fired) }
    }

    private func tellFigures() {
        let figures = PathWatcher.Figures(paths: table.entries.count, watches: table.watchCount)
        core.figures.withLock { $0 = figures }
    }

    private func resolve(_ path: FilePath, _ wanted: PathEvents) -> PathResolution {
        let room = PathTable.maximumWatches - table.watchCount
        var look = InotifyLook(descriptor: core.inotify, room: room) { table.isInUse($0) }
        return PathResolution(of: path, contents: wanted.contains(.contents), by: &look)
    }

    /// Removes those of the watches that no path needs.
    private func discard(_ watches: some Sequence<Watch>) {
        for watch in watches where !table.isInUse(watch) { inotify_rm_watch(core.inotify, watch) }
    }
}
