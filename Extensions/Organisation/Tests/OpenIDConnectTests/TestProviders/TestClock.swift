import Basics
import DBus
package import OpenIDConnect
import Synchronization

/// A clock that advances only when code waits on it; with `holds`, only when the test advances it. A waiting task then
/// checks it every 5 ms.
package final class TestClock: Sendable {
    private let passed = Locked(Duration.zero)
    private let begun = Locked<[Duration]>([])
    private let start = ContinuousClock.now
    private let holds: Bool

    package init(holds: Bool = false) { self.holds = holds }

    package var now: ContinuousClock.Instant { start + passed.withLock { $0 } }
    /// The duration of each wait that has begun.
    package var waited: [Duration] { begun.withLock { $0 } }
    /// The number of waits that have begun.
    package var waits: Int { waited.count }

    package func advance(by duration: Duration) { passed.withLock { $0 += duration } }

    /// The wall clock is the real one, which the provider uses to date its tokens.
    package var clock: OpenIDConnectClient.Clock {
        OpenIDConnectClient.Clock(
            now: { self.now },
            wait: { duration in
                let end = self.now + duration
                self.begun.withLock { $0.append(duration) }
                guard self.holds else { return self.advance(by: duration) }
                while self.now < end { try await Task.sleep(for: .milliseconds(5)) }
            }
        )
    }
}
