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
