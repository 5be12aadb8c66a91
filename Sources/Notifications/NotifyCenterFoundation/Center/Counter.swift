import DBusTransport
import Synchronization

/// A number that goes up.
final class Counter: Sendable {
    private let count = Locked<UInt64>(0)

    var value: UInt64 { count.withLock { $0 } }

    func increment() { count.withLock { $0 += 1 } }
}
