import DBusTransport
import Synchronization

/// What callbacks have heard, in order; from whatever thread.
final class Heard: Sendable {
    private let items = Locked<[String]>([])

    var all: [String] { items.withLock { $0 } }
    func note(_ item: String) { items.withLock { $0.append(item) } }
}
