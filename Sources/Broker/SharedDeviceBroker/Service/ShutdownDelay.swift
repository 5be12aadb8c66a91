import Basics
import DBus
import Logging
import NotifyCenter
import Synchronization

/// logind's inhibitor lock of the mode “delay”. A shutdown waits while the lock is held, up to logind's
/// `InhibitDelayMaxSec` (5 seconds by default).
final class ShutdownDelay: Sendable {
    private struct State {
        var lock: DBusDescriptor?
        /// A released lock is not taken again, because a shutdown may be in progress.
        var isReleased = false
        var problem: String?
    }

    private let state = Locked(State())
    private let log: Logger

    init(log: Logger) { self.log = log }

    /// Takes the lock, unless it is held or was released.
    func take(_ connection: DBusConnection) async {
        guard state.withLock({ $0.lock == nil && !$0.isReleased }) else { return }
        var (lock, problem): (DBusDescriptor?, String?) = (nil, nil)
        do throws(DBusError) {
            let answer = try await connection.call(
                LoginWatch.call(
                    "Inhibit",
                    [
                        .string("shutdown"), .string("shared-device-broker"),
                        .string("apps delete the data of the person who is logged in"), .string("delay"),
                    ]
                )
            )
            if case .descriptor(let descriptor)? = answer.first { lock = descriptor }
        } catch {
            problem = "\(error)"
        }
        let isNews = state.withLock { state in
            // A lock that arrives after the release is dropped at once.
            state.lock = state.isReleased ? nil : lock
            defer { state.problem = problem }
            return state.problem != problem
        }
        if let problem, isNews {
            log.warning("a shutdown does not wait for the cleanup", metadata: ["reason": "\(problem)"])
        }
    }

    func release() {
        let lock = state.withLock { state in
            defer { (state.lock, state.isReleased) = (nil, true) }
            return state.lock
        }
        withExtendedLifetime(lock) {}
    }

    /// The shutdown was cancelled: delay the next one, too.
    func renew() { state.withLock { $0.isReleased = false } }
}
