import Dispatch
import Glibc
import Synchronization

/// Watches paths with one inotify instance on its own quiet thread (rule a.13 of notify(3)), until it is released.
public final class PathWatcher: Sendable {
    public enum Outcome: Hashable, Sendable {
        /// From now on, changes are reported. Also the outcome if ``remove(_:)`` was called before the thread began.
        case watched
        /// This process may not search a directory of the path.
        case denied
        /// The reason in words, with the remedy.
        case impossible(String)
    }

    enum Command: Sendable {
        case add(UInt64, FilePath, PathEvents, @Sendable (Outcome) -> Void)
        case remove(UInt64)
        case end
    }

    public struct Figures: Hashable, Sendable {
        public var paths = 0
        public var watches = 0

        public init(paths: Int = 0, watches: Int = 0) { (self.paths, self.watches) = (paths, watches) }
    }

    private let core: Core
    private let patience: Duration

    /// The part that the watcher and its thread share. Separate, so that the thread does not keep the watcher alive.
    final class Core: Sendable {
        let commands = Locked<[Command]>([])
        /// Written by the thread. A reader must not wait for the thread, which a file system may block.
        let figures = Locked(Figures())
        let event: EventDescriptor
        let inotify: CInt
        let changed: @Sendable ([UInt64]) -> Void

        fileprivate init(
            event: consuming EventDescriptor,
            inotify: CInt,
            changed: @escaping @Sendable ([UInt64]) -> Void
        ) {
            self.event = event
            self.inotify = inotify
            self.changed = changed
        }

        deinit { close(inotify) }
    }

    /// - Parameters:
    ///   - patience: How long a caller waits for its path.
    ///   - changed: Called on the thread with the paths at which a wanted event happened.
    public init(patience: Duration = .seconds(20), changed: @escaping @Sendable ([UInt64]) -> Void) throws(Problem) {
        self.patience = patience
        let inotify = inotify_init1(CInt(IN_CLOEXEC) | CInt(IN_NONBLOCK))
        guard inotify >= 0 else { throw Self.failure("raise fs.inotify.max_user_instances") }
        do {
            core = Core(event: try EventDescriptor("watch paths"), inotify: inotify, changed: changed)
        } catch {
            close(inotify)
            throw Problem("\(error)")
        }
        let thread = QuietThread.start("paths") { [core] in
            var thread = PathThread(core)
            thread.run()
        }
        if thread == nil { throw Self.failure("raise the limit of processes (ulimit -u)") }
    }

    deinit { send(.end) }

    private static func failure(_ remedy: String) -> Problem {
        Problem("\(String(cString: strerror(errno))); \(remedy)")
    }

    /// Watches a path. Calls `done` once, on the thread, or in ``remove(_:)`` if that comes before the thread has
    /// begun.
    public func add(_ id: UInt64, _ path: FilePath, _ wanted: PathEvents, done: @escaping @Sendable (Outcome) -> Void) {
        send(.add(id, path, wanted, done))
    }

    /// Watches a path, and blocks the calling thread until the path is watched or cannot be: for `patience` at most,
    /// and not beyond `deadline`, because a file system that does not respond delays all paths.
    public func addAndWait(
        _ id: UInt64,
        _ path: FilePath,
        _ wanted: PathEvents,
        by deadline: ContinuousClock.Instant? = nil
    ) -> Outcome {
        let isDone = DispatchSemaphore(value: 0)
        let outcome = Locked(Outcome.watched)
        // The watcher's thread signals by itself, and needs no other thread for it.
        add(id, path, wanted) { result in
            outcome.withLock { $0 = result }
            isDone.signal()
        }
        let left = min(patience, max(.zero, deadline.map { $0 - .now } ?? patience))
        guard isDone.wait(timeout: .now() + left / .seconds(1)) == .success else {
            remove(id)
            return .impossible("the file system of a watched path does not respond")
        }
        return outcome.withLock { $0 }
    }

    /// Stops watching a path. One call of `changed` with it may still follow.
    public func remove(_ id: UInt64) {
        let done = core.commands.withLock { commands -> (@Sendable (Outcome) -> Void)? in
            for (index, command) in commands.enumerated().reversed() {
                guard case .add(id, _, _, let done) = command else { continue }
                // Commands that have not begun must not accumulate behind a slow path.
                commands.remove(at: index)
                return done
            }
            commands.append(.remove(id))
            return nil
        }
        if let done { done(.watched) } else { core.event.signal() }
    }

    public var figures: Figures { core.figures.withLock { $0 } }

    private func send(_ command: Command) {
        core.commands.withLock { $0.append(command) }
        core.event.signal()
    }
}

/// The thread of a ``PathWatcher``: waits for inotify, commands and due paths, and carries out the table's decisions.
struct PathThread {
    private let core: PathWatcher.Core
    private var events: InotifyEvents
    private var table = PathTable()
    /// Whether the ``PathWatcher`` is gone. The thread then ends.
    private var hasEnded = false

    init(_ core: PathWatcher.Core) {
        self.core = core
        events = InotifyEvents(core.inotify)
    }

    mutating func run() {
        while !hasEnded {
            wait()
            let now = ContinuousClock.now
            events.drain { table.take($0, at: now) }
            let commands = core.commands.withLock { commands in
                defer { commands = [] }
                return commands
            }
            for command in commands { carryOut(command) }
            lookAgain()
        }
    }

    private func wait() {
        var descriptors = [
            pollfd(fd: core.inotify, events: CShort(POLLIN), revents: 0),
            pollfd(fd: core.event.descriptor, events: CShort(POLLIN), revents: 0),
        ]
        // Without a deadline if no path is due.
        _ = poll(&descriptors, nfds_t(descriptors.count), table.nextDue.map(milliseconds(until:)) ?? -1)
        if descriptors[1].revents != 0 { core.event.clear() }
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

struct InotifyEvents {
    private let descriptor: CInt
    private var buffer = [UInt8](repeating: 0, count: 65_536)

    init(_ descriptor: CInt) { self.descriptor = descriptor }

    /// Passes the pending events to `body`, in a few reads: events may arrive faster than they are read.
    mutating func drain(_ body: (WatchEvent) -> Void) {
        for _ in 0..<16 {
            let count = read(descriptor, &buffer, buffer.count)
            guard count > 0 else { return }
            Self.parse(buffer[..<count], body)
        }
    }

    /// Format (inotify(7)): watch, mask, cookie, length of the name, 32 bits each; the name, padded with zeros.
    static func parse(_ bytes: ArraySlice<UInt8>, _ body: (WatchEvent) -> Void) {
        var rest = bytes
        func number(_ offset: Int) -> UInt32 {
            rest.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) }
        }
        while rest.count >= 16 {
            let length = Int(number(12))
            guard rest.count >= 16 + length else { return }
            let name = rest.dropFirst(16).prefix(length).prefix { $0 != 0 }
            body(
                WatchEvent(watch: Watch(bitPattern: number(0)), mask: number(4), name: name.isEmpty ? nil : Array(name))
            )
            rest = rest.dropFirst(16 + length)
        }
    }
}
