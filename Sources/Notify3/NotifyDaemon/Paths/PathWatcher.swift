import DBusTransport
import Glibc
import NotifydProtocol
import Synchronization

/// Watches paths with one inotify instance, on a thread of its own with all signals blocked (Rules, a.13).
///
/// Its end of life ends the thread.
final class PathWatcher: Sendable {
    /// The result of an attempt to watch a path.
    enum Outcome: Hashable, Sendable {
        /// From here on, changes are reported; or the path was removed meanwhile.
        case watched
        /// The client may not read a part of the path, or notifyd cannot act as the client.
        case denied
        case impossible(String)
    }

    /// A command to the thread.
    enum Command: Sendable {
        case add(UInt64, FilePath, PathEvents, Identity, @Sendable (Outcome) -> Void)
        case remove(UInt64)
        case end
    }

    /// Figures for the status.
    struct Figures: Hashable, Sendable {
        var paths = 0
        var watches = 0
    }

    private let core: Core

    /// The part that the thread and this object share. It is separate, so that the thread does not keep this object alive.
    final class Core: Sendable {
        let commands = Locked<[Command]>([])
        /// The thread writes them, so that a reader does not have to wait for the thread, which a file system may block.
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

    /// The kernel has no inotify instance or thread left.
    struct Failure: Error {
        /// The reason, and the remedy.
        let message: String
    }

    /// - Parameter changed: called on the thread with the paths at which a wanted event happened.
    init(changed: @escaping @Sendable ([UInt64]) -> Void) throws(Failure) {
        let inotify = inotify_init1(CInt(IN_CLOEXEC) | CInt(IN_NONBLOCK))
        guard inotify >= 0 else { throw Self.failure("raise fs.inotify.max_user_instances") }
        do throws(DBusError) {
            core = Core(event: try EventDescriptor("watch paths"), inotify: inotify, changed: changed)
        } catch {
            close(inotify)
            throw Failure(message: "\(error)")
        }
        guard PathThread.start(core) else { throw Self.failure("raise the limit of processes (ulimit -u)") }
    }

    deinit { send(.end) }

    private static func failure(_ remedy: String) -> Failure {
        Failure(message: "\(String(cString: strerror(errno))); \(remedy)")
    }

    /// Watches a path. Calls `done` once, on the thread; if ``remove(_:)`` comes before the thread has begun, that calls it instead.
    func add(
        _ id: UInt64,
        _ path: FilePath,
        _ wanted: PathEvents,
        as identity: Identity,
        done: @escaping @Sendable (Outcome) -> Void
    ) {
        send(.add(id, path, wanted, identity, done))
    }

    /// Ends the watching of a path. One call of `changed` with it may still be on its way.
    func remove(_ id: UInt64) {
        let done = core.commands.withLock { commands -> (@Sendable (Outcome) -> Void)? in
            for (index, command) in commands.enumerated().reversed() {
                guard case .add(id, _, _, _, let done) = command else { continue }
                // Commands that have not begun must not pile up behind a slow path.
                commands.remove(at: index)
                return done
            }
            commands.append(.remove(id))
            return nil
        }
        if let done { done(.watched) } else { core.event.signal() }
    }

    /// The figures after the last change.
    var figures: Figures { core.figures.withLock { $0 } }

    private func send(_ command: Command) {
        core.commands.withLock { $0.append(command) }
        core.event.signal()
    }
}
