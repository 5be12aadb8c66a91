import Basics
import DBus
import Foundation
import NotifyCenterTestKit
import Synchronization

/// Detects when this machine stood still, as virtual machines do. A time measured during a stall says nothing about the
/// broker.
final class StallWatch: Sendable {
    /// Longer than these tests' load ever delays a thread that nearly always sleeps.
    private static let stall = Duration.milliseconds(300)
    private static let beat: useconds_t = 5_000

    /// When the thread last woke, and when it last woke late.
    private struct State {
        var woken = ContinuousClock.now
        var stalled: ContinuousClock.Instant?
    }

    private let state = Locked(State())

    init() {
        // A separate thread, because all threads of Swift's pool may be busy.
        Thread.detachNewThread { [weak self] in
            while true {
                usleep(Self.beat)
                guard let self else { return }
                state.withLock { state in
                    let now = ContinuousClock.now
                    if now - state.woken > Self.stall { state.stalled = now }
                    state.woken = now
                }
            }
        }
    }

    /// Times `body` until `count` runs had no stall, with at most three times as many runs.
    ///
    /// - Returns: the times without a stall, shortest first, or the longest of all times if there are too few.
    func times(_ count: Int, _ body: () async throws -> Duration) async throws -> [Duration] {
        var (times, disturbed): ([Duration], [Duration]) = ([], [])
        while times.count < count, times.count + disturbed.count < 3 * count {
            let start = ContinuousClock.now
            let time = try await body()
            let end = ContinuousClock.now
            // A stall is noted only after it has ended.
            try await eventually("the thread has looked") { state.withLock { $0.woken > end } }
            let isDisturbed = state.withLock { $0.stalled.map { $0 > start } ?? false }
            if isDisturbed { disturbed.append(time) } else { times.append(time) }
        }
        if !disturbed.isEmpty { print("the machine stood still: \(disturbed.sorted()) are measured again") }
        return Array((times.count < count ? times + disturbed : times).sorted().suffix(count))
    }
}
