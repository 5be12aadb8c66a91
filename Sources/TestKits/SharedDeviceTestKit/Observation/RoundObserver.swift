import DBusTransport
import SharedDevice
import Synchronization

/// Follows the cleanup round of one session, in whatever state broker and bus are, and keeps when it saw what.
final class RoundObserver: Sendable {
    private struct State {
        var report: CleanupReport?
        /// When this object first saw an app at this point.
        var seen: [String: [CleanupReport.Progress: ContinuousClock.Instant]] = [:]
        /// What waits for an app to be told.
        var onTold: [String: @Sendable () -> Void] = [:]
    }

    let session: UInt64
    private let state: SharedState
    private let following: Task<Void, Never>

    /// The state on the heap, for the task that may outlive this object for a moment.
    private final class SharedState: Sendable {
        let content: Locked<State>
        init(_ onTold: [String: @Sendable () -> Void]) { content = Locked(State(onTold: onTold)) }
    }

    /// - Parameter onTold: called once, when the ledger says that the app was told.
    init(
        _ session: UInt64,
        through application: SharedDeviceApplication,
        onTold: [String: @Sendable () -> Void]
    ) {
        self.session = session
        let state = SharedState(onTold)
        self.state = state
        following = Task {
            while !Task.isCancelled {
                let report = try? await application.waitForCleanup(ofSession: session, within: .seconds(600)) {
                    Self.take($0, into: state)
                }
                if report?.isComplete == true { return }
                // No broker, or no bus: asked again.
                try? await Task.sleep(for: .milliseconds(100))
            }
        }
    }

    deinit { following.cancel() }

    /// The round as it was last seen; `nil` before the broker told of it.
    var report: CleanupReport? { state.content.withLock { $0.report } }

    /// When the app was first seen at this point.
    func seen(_ app: String, _ progress: CleanupReport.Progress) -> ContinuousClock.Instant? {
        state.content.withLock { $0.seen[app]?[progress] }
    }

    private static func take(_ report: CleanupReport, into state: SharedState) {
        let due = state.content.withLock { state -> [@Sendable () -> Void] in
            state.report = report
            var due: [@Sendable () -> Void] = []
            for app in report.apps {
                if state.seen[app.identifier]?[app.progress] == nil {
                    state.seen[app.identifier, default: [:]][app.progress] = .now
                }
                guard app.toldAfter != nil,
                    let name = state.onTold.keys.first(where: { TestApp.isNamed(app.identifier, $0) }),
                    let action = state.onTold.removeValue(forKey: name)
                else { continue }
                due.append(action)
            }
            return due
        }
        for action in due { action() }
    }
}
