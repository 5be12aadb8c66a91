import Basics
import Dispatch
import FoundationEssentials

/// Reads directories again, on its own queue, after changes in them have settled. They need not exist yet.
///
/// Unchecked: after `start`, only code on `queue` touches the mutable state.
final class DirectoryWatcher: @unchecked Sendable {
    /// Called at the start and after each burst of changes.
    private let look: @Sendable () -> Void
    private let again: @Sendable () -> Duration?
    private let queue = DispatchQueue(label: "SharedDeviceBroker.DirectoryWatcher")
    /// `nil` after the watcher was stopped.
    private var paths: PathWatcher?
    private var settling: SettlingPeriod
    private var isWakeUpScheduled = false
    private var isLookScheduled = false

    /// The readings of directories, or of a file in one: one at the call, and one after each burst of changes. A slow
    /// reader only receives the latest one. The watch ends when the iterating task is cancelled, or the sequence is
    /// released. Only one task may iterate.
    ///
    /// - Parameters:
    ///   - quietPeriod: How long the directories have to be unchanged: an editor first empties a file, then fills it.
    ///   - read: Returns `nil` if nothing is new. Called on the watcher's queue, first before this function returns.
    ///   - again: When to read once more without a change; `nil` means never. Called after each reading.
    static func updates<Update: Sendable>(
        of directories: [String],
        quietPeriod: Duration,
        read: @escaping @Sendable () -> Update?,
        again: @escaping @Sendable () -> Duration? = { nil }
    ) throws(Problem) -> AsyncStream<Update> {
        let (stream, continuation) = AsyncStream.makeStream(of: Update.self, bufferingPolicy: .bufferingNewest(1))
        let watcher = DirectoryWatcher(quietPeriod: quietPeriod, again: again) {
            if let update = read() { continuation.yield(update) }
        }
        try watcher.start(directories)
        continuation.onTermination = { _ in watcher.stop() }
        return stream
    }

    private init(
        quietPeriod: Duration,
        again: @escaping @Sendable () -> Duration?,
        look: @escaping @Sendable () -> Void
    ) {
        (self.look, self.again) = (look, again)
        settling = SettlingPeriod(quiet: quietPeriod)
    }

    /// Begins to wait for changes, and reads the directories.
    private func start(_ directories: [String]) throws(Problem) {
        paths = try PathWatcher { [weak self] _ in self?.directoryHasChanged() }
        for (index, directory) in directories.enumerated() {
            let path = directory.hasPrefix("/") ? directory : FileManager.default.currentDirectoryPath + "/" + directory
            switch paths?.addAndWait(UInt64(index), FilePath(path), [.all, .contents]) {
            case .watched?, nil: break
            // The reader reports such a directory, and reads again until it is corrected.
            case .denied? where index > 0: break
            case .denied?: throw Problem("the broker may not search a directory of \(path)")
            case .impossible(let message)?: throw Problem(message)
            }
        }
        queue.sync { lookAgain() }
    }

    private func stop() { queue.async { self.paths = nil } }

    private func directoryHasChanged() {
        queue.async {
            self.settling.eventOccurred(at: .now)
            self.scheduleWakeUp()
        }
    }

    private func scheduleWakeUp() {
        guard !isWakeUpScheduled, let deadline = settling.deadline else { return }
        isWakeUpScheduled = true
        after(max(.zero, deadline - .now)) { $0.wakeUp() }
    }

    private func wakeUp() {
        isWakeUpScheduled = false
        guard settling.isOver(at: .now) else { return scheduleWakeUp() }
        lookAgain()
    }

    private func scheduleLook() {
        guard !isLookScheduled, let pause = again() else { return }
        isLookScheduled = true
        after(pause) { watcher in
            watcher.isLookScheduled = false
            // During a burst a file may be half written. The reading after the burst continues.
            if watcher.settling.deadline == nil { watcher.lookAgain() }
        }
    }

    /// Calls `work` on the queue, unless the watcher was stopped before.
    private func after(_ pause: Duration, _ work: @escaping @Sendable (DirectoryWatcher) -> Void) {
        queue.asyncAfter(deadline: .now() + pause / .seconds(1)) { [weak self] in
            if let self, paths != nil { work(self) }
        }
    }

    private func lookAgain() {
        look()
        scheduleLook()
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
        (first, last) = (nil, nil)
        return true
    }
}
