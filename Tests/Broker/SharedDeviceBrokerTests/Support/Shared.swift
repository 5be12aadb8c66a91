import DBusTransport
import Synchronization

/// A value that a test and its helpers share: a lock that can be stored in a struct, and passed on.
final class Shared<Value: Sendable>: Sendable {
    private let locked: Locked<Value>

    init(_ value: Value) { locked = Locked(value) }

    func withLock<Result: Sendable>(_ body: @Sendable (inout Value) -> Result) -> Result {
        locked.withLock { value in
            var copy = value
            defer { value = copy }
            return body(&copy)
        }
    }
}
