import DBusTransport
import Logging
import NotifyCenter
import Synchronization

/// logind's lock that lets a shutdown wait (an inhibitor of the mode “delay”): as long as it is held, and for no longer than logind's
/// `InhibitDelayMaxSec`, which is 5 seconds unless an administrator sets another.
final class ShutdownDelay: Sendable {
    private struct State {
        var lock: DBusDescriptor?
        /// A lock that was given up is not taken again: the shutdown may be on its way.
        var isReleased = false
        var problem: String?
    }

    private let state = Locked(State())
    private let log: Logger

    init(log: Logger) { self.log = log }

    /// Takes the lock, unless it is held already.
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
            // One that came too late is given up at once.
            state.lock = state.isReleased ? nil : lock
            defer { state.problem = problem }
            return state.problem != problem
        }
        if let problem, isNews {
            log.warning("a shutdown does not wait for the cleanup", metadata: ["reason": "\(problem)"])
        }
    }

    /// Gives the lock up; the shutdown goes on.
    func release() {
        let lock = state.withLock { state in
            defer { (state.lock, state.isReleased) = (nil, true) }
            return state.lock
        }
        withExtendedLifetime(lock) {}
    }

    /// The shutdown was cancelled: the next one is to wait, too.
    func renew() { state.withLock { $0.isReleased = false } }
}
