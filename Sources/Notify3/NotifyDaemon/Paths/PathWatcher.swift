import DBusTransport
import Glibc
import NotifydProtocol
import Synchronization

/// Watches paths with one inotify instance, on a thread of its own with all signals blocked (Rules, a.13).
///
/// Its end of life ends the thread.
final class PathWatcher: Sendable {
    /// How the wish to watch a path ended.
    enum Outcome: Hashable, Sendable {
        /// From here on, changes are told; or nobody wants to be told any more.
        case watched
        /// The client may not read something on the way, or may not be acted for.
        case denied
        case impossible(String)
    }

    /// What the thread is to do.
    enum Command: Sendable {
        case add(UInt64, FilePath, PathEvents, Identity, @Sendable (Outcome) -> Void)
        case remove(UInt64)
        case end
    }

    /// What there is, for people.
    struct Figures: Hashable, Sendable {
        var paths = 0
        var watches = 0
    }

    private let core: Core

    /// What the thread and this object share; apart, so that the thread does not keep this object alive.
    final class Core: Sendable {
        let commands = Locked<[Command]>([])
        /// Written by the thread, so that nobody waits for it, which a file system that hangs may hold.
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

    /// The machine grants no inotify instance or thread.
    struct Failure: Error {
        /// What happened, and the remedy.
        let message: String
    }

    /// - Parameter changed: called on the thread with the paths at which something happened that they want to be told of.
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

    /// Watches a path. `done` is called on the thread, once; where ``remove(_:)`` comes before its turn, by that instead.
    func add(
        _ id: UInt64,
        _ path: FilePath,
        _ wanted: PathEvents,
        as identity: Identity,
        done: @escaping @Sendable (Outcome) -> Void
    ) {
        send(.add(id, path, wanted, identity, done))
    }

    /// Watches it no more. One call with it may be on its way.
    func remove(_ id: UInt64) {
        let done = core.commands.withLock { commands -> (@Sendable (Outcome) -> Void)? in
            for (index, command) in commands.enumerated().reversed() {
                guard case .add(id, _, _, _, let done) = command else { continue }
                // What has not begun does not pile up behind a path that takes long.
                commands.remove(at: index)
                return done
            }
            commands.append(.remove(id))
            return nil
        }
        if let done { done(.watched) } else { core.event.signal() }
    }

    /// As of the last change.
    var figures: Figures { core.figures.withLock { $0 } }

    private func send(_ command: Command) {
        core.commands.withLock { $0.append(command) }
        core.event.signal()
    }
}
