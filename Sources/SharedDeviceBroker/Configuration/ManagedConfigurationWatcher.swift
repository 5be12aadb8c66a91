import Dispatch
import Glibc

extension ManagedConfigurationFile {
    /// What the file says now, and then each time that something else is in force, or something else is wrong.
    ///
    /// The first update is the file as it is at the call; from then on no change is missed, however the file is written:
    /// in place, by renaming another over it, by removing and making it anew, or with its directory. What follows one
    /// another quickly is one change. A reader that is late gets the latest update only, which says everything.
    ///
    /// The watch ends when the task that iterates is cancelled, or the sequence goes. One task may iterate.
    ///
    /// - Parameter quietPeriod: How long nothing must have happened in the directory before the file is read: an editor
    ///   empties a file first and fills it then.
    /// - Throws: `ManagedConfigurationError`: `cannotWatch`.
    package func updates(
        quietPeriod: Duration = .milliseconds(250)
    ) throws(ManagedConfigurationError) -> AsyncStream<ManagedConfigurationUpdate> {
        let (stream, continuation) = AsyncStream.makeStream(
            of: ManagedConfigurationUpdate.self,
            bufferingPolicy: .bufferingNewest(1)
        )
        let watcher = try ManagedConfigurationWatcher(
            file: self,
            quietPeriod: quietPeriod,
            continuation: continuation
        )
        continuation.onTermination = { _ in watcher.stop() }
        watcher.start()
        return stream
    }
}

/// Reads the file when its directory has come to rest, on a queue of its own.
///
/// Unchecked: everything that changes is touched on `queue` only, once `start` was called.
private final class ManagedConfigurationWatcher: @unchecked Sendable {
    private let file: ManagedConfigurationFile
    private let continuation: AsyncStream<ManagedConfigurationUpdate>.Continuation
    private let queue = DispatchQueue(label: "SharedDeviceBroker.ManagedConfigurationWatcher")
    private let source: any DispatchSourceRead
    private var watch: DirectoryWatch?
    private var monitor = ManagedConfigurationMonitor()
    private var settling: SettlingPeriod
    private var isWakeUpScheduled = false

    init(
        file: ManagedConfigurationFile,
        quietPeriod: Duration,
        continuation: AsyncStream<ManagedConfigurationUpdate>.Continuation
    ) throws(ManagedConfigurationError) {
        self.file = file
        self.continuation = continuation
        settling = SettlingPeriod(quiet: quietPeriod)
        var watch: DirectoryWatch
        do {
            watch = try DirectoryWatch(directory: FilePathParts.parent(of: file.path))
        } catch {
            throw Self.cannotWatch(file, error)
        }
        do {
            try watch.arm()
        } catch {
            watch.end()
            throw Self.cannotWatch(file, error)
        }
        source = DispatchSource.makeReadSource(fileDescriptor: watch.descriptor, queue: queue)
        self.watch = consume watch
    }

    /// Announces the file as it is, and begins to wait for changes.
    func start() {
        // Both hold the watcher: it lives until it is stopped.
        source.setEventHandler { self.directoryHasEvents() }
        // Closed here, where Dispatch is done with the descriptor.
        source.setCancelHandler { self.watch.take()?.end() }
        queue.sync {
            announce(file.reading, nil)
            source.activate()
        }
    }

    func stop() {
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
        // Weakly: a watcher that was stopped meanwhile has nothing to read for.
        queue.asyncAfter(deadline: .now() + .nanoseconds(nanoseconds)) { [weak self] in self?.wakeUp() }
    }

    private func wakeUp() {
        isWakeUpScheduled = false
        guard !source.isCancelled else { return }
        guard settling.isOver(at: .now) else { return scheduleWakeUp() }
        var watchProblem: ManagedConfigurationError?
        do throws(DirectoryWatch.Errno) {
            try watch?.arm()
        } catch {
            watchProblem = Self.cannotWatch(file, error)
        }
        announce(file.reading, watchProblem)
    }

    private func announce(
        _ reading: Result<ManagedConfigurationFile.Content, ManagedConfigurationError>,
        _ watchProblem: ManagedConfigurationError?
    ) {
        if let update = monitor.fileWasRead(reading, watchProblem: watchProblem) { continuation.yield(update) }
    }

    private static func cannotWatch(
        _ file: ManagedConfigurationFile,
        _ error: DirectoryWatch.Errno
    ) -> ManagedConfigurationError {
        ManagedConfigurationError(
            .cannotWatch,
            file: file.path,
            message: "the system cannot tell of changes to it: \(error.message)",
            remedy: "raise fs.inotify.max_user_instances or max_user_watches, see that the directory may be read, and "
                + "start the broker again"
        )
    }
}

extension ManagedConfigurationFile {
    fileprivate var reading: Result<Content, ManagedConfigurationError> {
        do throws(ManagedConfigurationError) {
            return .success(try load())
        } catch {
            return .failure(error)
        }
    }
}
