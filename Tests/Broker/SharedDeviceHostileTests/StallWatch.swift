import DBusTransport
import Foundation
import NotifyCenterTestKit
import Synchronization

/// Knows when this machine stood still, as virtual ones do: what is timed meanwhile says nothing of the broker.
final class StallWatch: Sendable {
    /// Longer than the load of these tests keeps a thread from its turn that sleeps nearly always.
    private static let stall = Duration.milliseconds(300)
    private static let beat: useconds_t = 5_000

    private struct State {
        var isOver = false
        /// When the thread woke last, and when it last woke so late.
        var (woken, stalled) = (ContinuousClock.now, ContinuousClock.Instant?.none)
    }

    /// Shared with the thread.
    private final class Shared: Sendable {
        let state = Locked(State())
    }

    private let shared = Shared()

    init() {
        // Swift's own threads may all be busy.
        Thread.detachNewThread { [shared] in
            var isOver = false
            while !isOver {
                usleep(Self.beat)
                isOver = shared.state.withLock { state in
                    let now = ContinuousClock.now
                    if now - state.woken > Self.stall { state.stalled = now }
                    state.woken = now
                    return state.isOver
                }
            }
        }
    }

    deinit { shared.state.withLock { $0.isOver = true } }

    /// Times `body` until the machine has not stood still in `count` of the times, and three times as often at most.
    ///
    /// - Returns: these times, the shortest first; the longest of all where there are too few.
    func times(_ count: Int, _ body: () async throws -> Duration) async throws -> [Duration] {
        var (times, disturbed): ([Duration], [Duration]) = ([], [])
        while times.count < count, times.count + disturbed.count < 3 * count {
            let start = ContinuousClock.now
            let time = try await body()
            let end = ContinuousClock.now
            // A stall is noted only when it is over.
            try await eventually("the thread has looked") { shared.state.withLock { $0.woken > end } }
            let isDisturbed = shared.state.withLock { $0.stalled.map { $0 > start } ?? false }
            if isDisturbed { disturbed.append(time) } else { times.append(time) }
        }
        if !disturbed.isEmpty { print("the machine stood still: \(disturbed.sorted()) are measured again") }
        return Array((times.count < count ? times + disturbed : times).sorted().suffix(count))
    }
}
