import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus
@testable import DBusService

/// A private bus, with a connection that serves objects and another that calls them.
struct ServedBus {
    let bus: PrivateBus
    let server: DBusConnection
    let client: DBusConnection
    private let objects = Noted<Observation>()

    init() throws {
        bus = try PrivateBus()
        server = try DBusConnection.open(bus.bus)
        client = try DBusConnection.open(bus.bus)
    }

    /// Serves an object at `/object` as long as this value lives.
    func serve(
        _ methods: [DBusInterface.Method],
        properties: [DBusInterface.Property] = [],
        limits: CallLimits = CallLimits(),
        admit: CallAdmission.Decision? = nil
    ) throws {
        let interface = DBusInterface("org.example.Object", methods: methods, properties: properties)
        objects.note(try server.export([interface], at: "/object", limits: limits, admit: admit))
    }

    /// Returns a call of a method of the object.
    func call(_ member: String, _ arguments: [DBusValue] = []) throws -> DBusMessage {
        try .ofObject(member, arguments, at: server.uniqueName)
    }
}

extension DBusMessage {
    /// Returns a call of a method of `org.example.Object` at `/object`.
    static func ofObject(
        _ member: String,
        _ arguments: [DBusValue] = [],
        at destination: String?,
        options: CallOptions = []
    ) throws -> DBusMessage {
        try .methodCall(
            destination: try #require(destination),
            path: "/object",
            interface: "org.example.Object",
            member: member,
            arguments: arguments,
            options: options
        )
    }

    /// Returns a signal `Ping` of `org.example.Ping`, or of another interface.
    static func ping(_ interface: String = "org.example.Ping", bytes: Int = 0) throws(DBusError) -> DBusMessage {
        let arguments: [DBusValue] = bytes == 0 ? [] : [.bytes(Array(repeating: 7, count: bytes))]
        return try .signal(path: "/a", interface: interface, member: "Ping", arguments: arguments)
    }
}

extension MatchRule {
    static let ping = MatchRule(interface: "org.example.Ping")
    static let pong = MatchRule(interface: "org.example.Pong")
}

extension DBusConnection {
    /// Returns the error of a call; `nil` if the call succeeds.
    func refusal(of message: consuming DBusMessage) async -> DBusError? {
        do throws(DBusError) {
            _ = try await call(message, timeout: .seconds(600))
            return nil
        } catch {
            return error
        }
    }
}

/// Returns the error that `body` throws; `nil` if it throws none.
func failure<Value>(of body: () throws(DBusError) -> Value) -> DBusError? {
    do throws(DBusError) {
        _ = try body()
        return nil
    } catch {
        return error
    }
}

/// Counts the pings that arrive during its lifetime.
final class Counter: Sendable {
    private final class Count: Sendable { let value = Locked(0) }

    private let count = Count()
    private let connection: DBusConnection
    private let observation: Observation
    private let lease: MatchRuleLease?
    var arrived: Int { count.value.withLock { $0 } }

    /// - Parameter rule: the rule to add; `nil` if the connection has one for pings.
    init(_ connection: DBusConnection, _ rule: MatchRule? = .ping) throws {
        self.connection = connection
        observation = connection.onSignal { [count] message in
            if message.interface == "org.example.Ping" { count.value.withLock { $0 += 1 } }
        }
        let add = { (rule: MatchRule) throws(DBusError) in try connection.addMatch(rule) }
        lease = try rule.map { try add($0) }
    }
}

/// Values that handlers and tasks recorded, in order.
final class Noted<Value: Sendable>: Sendable {
    private let values = Locked<[Value]>([])
    var all: [Value] { values.withLock { $0 } }
    func note(_ value: Value) { values.withLock { $0.append(value) } }
}

/// Makes a socket, and binds or connects it to the path. Also returns whether that succeeded.
func unixSocket(
    at path: String,
    kind: __socket_type = SOCK_STREAM,
    _ use: (CInt, UnsafePointer<sockaddr>, socklen_t) -> CInt
) -> (socket: CInt, isUsed: Bool) {
    let kinds = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | kind.rawValue
    let socket = Glibc.socket(AF_UNIX, CInt(kinds), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
    let isUsed = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            use(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
        }
    }
    return (socket, isUsed)
}

extension Trait where Self == ConditionTrait {
    /// The condition that the bus is dbus-daemon's, for a reason that dbus-broker gives.
    static func ofDaemon(_ reason: Comment? = nil) -> Self {
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, reason)
    }
}
