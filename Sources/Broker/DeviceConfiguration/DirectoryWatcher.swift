import Dispatch
import Glibc

/// Reads a directory again, on its own queue, after changes in it have settled.
///
/// Unchecked: after `start`, only code on `queue` touches the mutable state.
final class DirectoryWatcher: @unchecked Sendable {
    /// Called at the start and after each burst of changes. An error means that later changes may go unnoticed.
    typealias Look = @Sendable (DirectoryWatch.Errno?) -> Void

    private let look: Look
    private let again: @Sendable () -> Duration?
    private let queue = DispatchQueue(label: "SharedDeviceBroker.DirectoryWatcher")
    private let source: any DispatchSourceRead
    private var watch: DirectoryWatch?
    private var settling: SettlingPeriod
    private var isWakeUpScheduled = false
    private var isLookScheduled = false

    /// The readings of a directory, or of a file in it: one at the call, and one after each burst of changes. A slow
    /// reader only receives the latest one. The watch ends when the iterating task is cancelled, or the sequence is
    /// released. Only one task may iterate.
    ///
    /// - Parameters:
    ///   - quietPeriod: How long the directory has to be unchanged: an editor empties a file first and then fills it.
    ///   - read: Returns `nil` if nothing is new. Called on the watcher's queue, the first time before this function
    ///     returns.
    ///   - again: When to read once more without a change; `nil` means never. Called after each reading.
    /// - Throws: The error number if the kernel grants no inotify instance.
    static func updates<Update: Sendable>(
        of directory: String,
        quietPeriod: Duration,
        read: @escaping @Sendable (DirectoryWatch.Errno?) -> Update?,
        again: @escaping @Sendable () -> Duration? = { nil }
    ) throws(DirectoryWatch.Errno) -> AsyncStream<Update> {
        let (stream, continuation) = AsyncStream.makeStream(of: Update.self, bufferingPolicy: .bufferingNewest(1))
        let look: Look = { watchError in
            if let update = read(watchError) { continuation.yield(update) }
        }
        let watcher = try DirectoryWatcher(directory: directory, quietPeriod: quietPeriod, look: look, again: again)
        continuation.onTermination = { _ in watcher.stop() }
        watcher.start()
        return stream
    }

    private init(
        directory: String,
        quietPeriod: Duration,
        look: @escaping Look,
        again: @escaping @Sendable () -> Duration?
    ) throws(DirectoryWatch.Errno) {
        (self.look, self.again) = (look, again)
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

    /// Reads the directory, and begins to wait for changes.
    private func start() {
        // Both closures hold the watcher, which therefore lives until it is stopped.
        source.setEventHandler { self.directoryHasEvents() }
        // Dispatch uses the descriptor until the cancel handler runs.
        source.setCancelHandler { self.watch.take()?.end() }
        queue.sync {
            look(nil)
            scheduleLook()
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
        // Weak: a watcher that was stopped in between reads nothing more.
        queue.asyncAfter(deadline: .now() + .nanoseconds(nanoseconds)) { [weak self] in self?.wakeUp() }
    }

    private func wakeUp() {
        isWakeUpScheduled = false
        guard !source.isCancelled else { return }
        guard settling.isOver(at: .now) else { return scheduleWakeUp() }
        lookAgain()
    }

    private func scheduleLook() {
        guard !isLookScheduled, let pause = again() else { return }
        isLookScheduled = true
        queue.asyncAfter(deadline: .now() + .milliseconds(Int(pause / .milliseconds(1)))) { [weak self] in
            guard let self, !source.isCancelled else { return }
            isLookScheduled = false
            // During a burst a file may be half written. The reading after the burst continues.
            if settling.deadline == nil { lookAgain() }
        }
    }

    private func lookAgain() {
        var watchError: DirectoryWatch.Errno?
        do throws(DirectoryWatch.Errno) {
            try watch?.arm()
        } catch {
            watchError = error
        }
        look(watchError)
        scheduleLook()
    }
}

/// inotify on a directory that need not exist yet: until it does, its nearest existing ancestor is watched instead.
///
/// It reports only that something happened. Reading the file afterwards is more reliable than a list of events, which
/// may have overflowed.
struct DirectoryWatch: ~Copyable {
    /// All events that can change a file of the directory, or the directory at that path.
    private static let events =
        UInt32(IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
        | UInt32(IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

    /// Readable when something has happened. Does not block.
    let descriptor: CInt
    private let directory: String
    private var watch: CInt?

    /// - Throws: The error number if the kernel grants no inotify instance: this user has too many, or too many files.
    init(directory: String) throws(Errno) {
        descriptor = inotify_init1(CInt(IN_CLOEXEC) | CInt(IN_NONBLOCK))
        guard descriptor >= 0 else { throw Errno(number: errno) }
        self.directory = directory
    }

    struct Errno: Error {
        let number: CInt
        var message: String { String(cString: strerror(number)) }
    }

    /// Watches the directory, or its nearest existing ancestor. Call it at the start and after events.
    ///
    /// Changes before this call may go unreported, so read the file afterwards.
    mutating func arm() throws(Errno) {
        // The second iteration finds a directory that was created between the first iteration and its watch. The loop
        // is bounded: a process that creates and removes the directory constantly causes events, which lead to another
        // call.
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

    /// Discards the queued events. Call it when `descriptor` is readable.
    func drain() {
        withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 8) { buffer in
            while read(descriptor, buffer.baseAddress, buffer.count) > 0 {}
        }
    }

    consuming func end() { close(descriptor) }
}

enum FilePathParts {
    static func parent(of path: String) -> String {
        var path = Substring(path)
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }
}

/// Decides when a burst of events is over. Pure: the caller passes the time.
public struct SettlingPeriod: Sendable {
    /// How long it has to be quiet.
    let quiet: Duration
    /// The longest burst: a directory that is never quiet must not hide a change.
    let longest: Duration

    private var first: ContinuousClock.Instant?
    private var last: ContinuousClock.Instant?

    public init(quiet: Duration) {
        self.quiet = quiet
        longest = quiet * 8
    }

    /// When the burst will be over if nothing more happens; `nil` outside a burst.
    public var deadline: ContinuousClock.Instant? {
        guard let first, let last else { return nil }
        return min(last + quiet, first + longest)
    }

    public mutating func eventOccurred(at now: ContinuousClock.Instant) {
        first = first ?? now
        last = now
    }

    /// Whether a burst has just ended. Returns `true` once for each burst.
    public mutating func isOver(at now: ContinuousClock.Instant) -> Bool {
        guard let deadline, now >= deadline else { return false }
        first = nil
        last = nil
        return true
    }
}
