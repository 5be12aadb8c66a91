import DBusTransport
package import OpenIDConnect
import Synchronization

/// A clock that goes on only when somebody waits by it.
package final class TestClock: Sendable {
    private let passed = Locked(Duration.zero)
    private let waits = Locked<[Duration]>([])
    private let start = ContinuousClock.now

    package init() {}

    package var now: ContinuousClock.Instant { start + passed.withLock { $0 } }
    /// How long was waited each time.
    package var waited: [Duration] { waits.withLock { $0 } }

    package func advance(by duration: Duration) { passed.withLock { $0 += duration } }

    /// The wall clock stays the real one, by which the provider dates its tokens.
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
