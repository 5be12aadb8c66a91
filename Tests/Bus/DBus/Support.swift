import NotifyCenterTestKit
import Synchronization

@testable import Basics
@testable import DBus

/// Counts the pings that arrive during its lifetime.
final class Counter: Sendable {
    private final class Count: Sendable { let value = Locked(0) }

    private let count = Count()
    private let connection: DBusConnection
    private let observation: Observation
    private let lease: MatchRuleLease
    var arrived: Int { count.value.withLock { $0 } }

    init(_ connection: DBusConnection, _ rule: MatchRule) throws {
        self.connection = connection
        observation = connection.onSignal { [count] message in
            if message.interface == "org.example.Ping" { count.value.withLock { $0 += 1 } }
        }
        let add = { () throws(DBusError) in try connection.addMatch(rule) }
        lease = try add()
    }
}

/// Values that handlers and tasks recorded, in order.
final class Noted<Value: Sendable>: Sendable {
    private let values = Locked<[Value]>([])
    var all: [Value] { values.withLock { $0 } }
    func note(_ value: Value) { values.withLock { $0.append(value) } }
}
