import Dispatch
import Glibc

/// Looks again when a directory has come to rest after changes, on a queue of its own.
///
/// Unchecked: everything that changes is touched on `queue` only, once `start` was called.
final class DirectoryWatcher: @unchecked Sendable {
    /// Called at the start and after each burst of changes; with an error where later changes may go unseen.
    typealias Look = @Sendable (DirectoryWatch.Errno?) -> Void

    private let look: Look
    private let queue = DispatchQueue(label: "SharedDeviceBroker.DirectoryWatcher")
    private let source: any DispatchSourceRead
    private var watch: DirectoryWatch?
    private var settling: SettlingPeriod
    private var isWakeUpScheduled = false

    /// The readings of a directory, or of a file in it: the first at the call, and then one after each burst of changes. A
    /// reader that is late gets the latest one only. The watch ends when the task that iterates is cancelled, or the sequence
    /// goes. One task may iterate.
    ///
    /// - Parameters:
    ///   - quietPeriod: How long nothing must have happened in the directory: an editor empties a file first and fills it
    ///     then.
    ///   - read: Returns `nil` where nothing is new. Called on the watcher's queue, and once before the return.
    /// - Throws: The error number where inotify is not to be had.
    static func updates<Update: Sendable>(
        of directory: String,
        quietPeriod: Duration,
        read: @escaping @Sendable (DirectoryWatch.Errno?) -> Update?
    ) throws(DirectoryWatch.Errno) -> AsyncStream<Update> {
        let (stream, continuation) = AsyncStream.makeStream(of: Update.self, bufferingPolicy: .bufferingNewest(1))
        let watcher = try DirectoryWatcher(directory: directory, quietPeriod: quietPeriod) { watchError in
            if let update = read(watchError) { continuation.yield(update) }
        }
        continuation.onTermination = { _ in watcher.stop() }
        watcher.start()
        return stream
    }

    private init(
        directory: String,
        quietPeriod: Duration,
        look: @escaping Look
    ) throws(DirectoryWatch.Errno) {
        self.look = look
        settling = SettlingPeriod(quiet: quietPeriod)
        var watch = try DirectoryWatch(directory: directory)
        do {
            try watch.arm()
        } catch {
            watch.end()
            throw error
        }
        source = DispatchSource.makeReadSource(fileDescriptor: watch.descriptor, queue: queue)
        self.watch = consume watch
    }

    /// Looks at the directory as it is, and begins to wait for changes.
    private func start() {
        // Both hold the watcher: it lives until it is stopped.
        source.setEventHandler { self.directoryHasEvents() }
        // Closed here, where Dispatch is done with the descriptor.
        source.setCancelHandler { self.watch.take()?.end() }
        queue.sync {
            look(nil)
            source.activate()
        }
    }

    private func stop() {
        source.cancel()
    }

    private func directoryHasEvents() {
        watch?.drain()
        settling.eventOccurred(at: .now)
        scheduleWakeUp()
    }

    private func scheduleWakeUp() {
        guard !isWakeUpScheduled, let deadline = settling.deadline else { return }
        isWakeUpScheduled = true
        let wait = max(.zero, deadline - .now).components
        let nanoseconds = Int(wait.seconds) * 1_000_000_000 + Int(wait.attoseconds / 1_000_000_000)
        // Weakly: a watcher that was stopped meanwhile has nothing to look at.
        queue.asyncAfter(deadline: .now() + .nanoseconds(nanoseconds)) { [weak self] in self?.wakeUp() }
    }

    private func wakeUp() {
        isWakeUpScheduled = false
        guard !source.isCancelled else { return }
        guard settling.isOver(at: .now) else { return scheduleWakeUp() }
        var watchError: DirectoryWatch.Errno?
        do throws(DirectoryWatch.Errno) {
            try watch?.arm()
        } catch {
            watchError = error
        }
        look(watchError)
    }
}

/// inotify on a directory that need not exist yet: until it does, its nearest ancestor that exists is watched instead.
///
/// It tells that something has happened there, not what: who reads the file afterwards knows better than a list of
/// events that may have overflowed.
struct DirectoryWatch: ~Copyable {
    /// Everything that can change what a file in the directory says, or which directory has that path.
    private static let events =
        UInt32(IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
        | UInt32(IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

    /// Readable when something has happened. Does not block.
    let descriptor: CInt
    private let directory: String
    private var watch: CInt?

    /// - Throws: The error number where inotify is not to be had: too many instances for this user, or too many files.
    init(directory: String) throws(Errno) {
        descriptor = inotify_init1(CInt(IN_CLOEXEC) | CInt(IN_NONBLOCK))
        guard descriptor >= 0 else { throw Errno(number: errno) }
        self.directory = directory
    }

    /// The C library's error number.
    struct Errno: Error {
        let number: CInt
        var message: String { String(cString: strerror(number)) }
    }

    /// Sees to it that the directory, or its nearest ancestor, is watched. To be called at the start and after events.
    ///
    /// Changes before this call may not be reported: read the file after it, not before.
    mutating func arm() throws(Errno) {
        // A directory made between the look and the watch is found by looking again. Whoever makes and removes it all the
        // time, to keep this going for ever, makes events too, and so is heard at the next call.
        for _ in 0..<16 {
            let (found, isAncestor) = try watchNearest()
            if let watch, watch != found { inotify_rm_watch(descriptor, watch) }
            watch = found
            guard isAncestor, access(directory, F_OK) == 0 else { return }
        }
    }

    private func watchNearest() throws(Errno) -> (watch: CInt, isAncestor: Bool) {
        var path = directory
        while true {
            let found = inotify_add_watch(descriptor, path, Self.events)
            if found >= 0 { return (found, path != directory) }
            let code = errno
            guard code == ENOENT || code == ENOTDIR, path != "/", path != "." else { throw Errno(number: code) }
            path = FilePathParts.parent(of: path)
        }
    }

    /// Takes the events that are waiting. Call it when `descriptor` is readable.
    func drain() {
        withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 8) { buffer in
            while read(descriptor, buffer.baseAddress, buffer.count) > 0 {}
        }
    }

    /// Ends the watch. Nothing may be called afterwards.
    consuming func end() { close(descriptor) }
}

enum FilePathParts {
    /// The directory that `path` is in.
    static func parent(of path: String) -> String {
        var path = Substring(path)
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }
}

/// Decides when a burst of events is over. Pure: the caller brings the time.
struct SettlingPeriod: Sendable {
    /// How long nothing must have happened.
    let quiet: Duration
    /// How long a burst may last before it counts as over all the same: a directory that is never quiet must not keep
    /// a change from being seen.
    let longest: Duration

    private var first: ContinuousClock.Instant?
    private var last: ContinuousClock.Instant?

    init(quiet: Duration) {
        self.quiet = quiet
        longest = quiet * 8
    }

    /// When the burst will be over, if nothing more happens; `nil` outside a burst.
    var deadline: ContinuousClock.Instant? {
        guard let first, let last else { return nil }
        return min(last + quiet, first + longest)
    }

    /// Something happened.
    mutating func eventOccurred(at now: ContinuousClock.Instant) {
        first = first ?? now
        last = now
    }

    /// Whether a burst is over now; said once for each.
    mutating func isOver(at now: ContinuousClock.Instant) -> Bool {
        guard let deadline, now >= deadline else { return false }
        first = nil
        last = nil
        return true
    }
}
