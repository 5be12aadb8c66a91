import Basics
import DBus
package import OpenIDConnect
import Synchronization

/// A clock that advances only when code waits on it.
package final class TestClock: Sendable {
    private let passed = Locked(Duration.zero)
    private let waits = Locked<[Duration]>([])
    private let start = ContinuousClock.now

    package init() {}

    package var now: ContinuousClock.Instant { start + passed.withLock { $0 } }
    /// The duration of each wait.
    package var waited: [Duration] { waits.withLock { $0 } }

    package func advance(by duration: Duration) { passed.withLock { $0 += duration } }

    /// The wall clock is the real one, which the provider uses to date its tokens.
    package var clock: OpenIDConnectClient.Clock {
        OpenIDConnectClient.Clock(
            now: { self.now },
            wait: { duration in
                self.waits.withLock { $0.append(duration) }
                self.advance(by: duration)
            }
        )
    }
}
