import DBus
import Foundation
import NotifyCenterTestKit

/// The mock of logind in python3-dbusmock, in a separate process on the test's bus. Its authors wrote it independently,
/// after the real logind.
final class MockLogind {
    private static let manager = "/org/freedesktop/login1"
    private static let managerInterface = "org.freedesktop.login1.Manager"
    private static let sessionInterface = "org.freedesktop.login1.Session"
    private static let python = "/usr/bin/python3"

    /// Debian's package works only with Debian's Python.
    static let isInstalled = FileManager.default.fileExists(atPath: "/usr/lib/python3/dist-packages/dbusmock")

    private let process: ChildProcess
    private let connection: DBusConnection

    init(_ bus: PrivateBus) async throws {
        process = try ChildProcess(
            Self.python,
            ["-m", "dbusmock", "--session", "--template", "logind"],
            environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address]
        )
        let connection = try DBusConnection.open(bus.bus)
        self.connection = connection
        try await eventually("the mock is there") { try await connection.owner(of: "org.freedesktop.login1") != nil }
        try await obey(true)
    }

    deinit {
        connection.close()
        process.kill()
        process.waitUntilExit()
    }

    func logIn(
        _ session: String,
        as user: UInt32,
        _ name: String,
        seat: String = "seat0",
        began: Date = Date()
    ) async throws {
        try await mock("AddSession", [.string(session), .string(seat), .uint32(user), .string(name), .boolean(false)])
        // The session becomes active together with its start time: at a real logind, the start time of a session never
        // changes.
        let awake = Double(DispatchTime.now().uptimeNanoseconds) / 1000 - Date().timeIntervalSince(began) * 1_000_000
        try await set(
            session,
            [
                "Timestamp": .uint64(UInt64(began.timeIntervalSince1970 * 1_000_000)),
                "TimestampMonotonic": .uint64(UInt64(max(1, awake))), "Active": .boolean(true),
                "State": .string("active"),
            ]
        )
        try await emit("SessionNew", "so", [.string(session), .objectPath(Self.path(session))])
    }

    func logOut(_ session: String) async throws {
        try await mock("RemoveObject", [.string(Self.path(session))])
        let arguments = [DBusValue.string(session), .objectPath(Self.path(session))]
        try await emit("SessionRemoved", "so", arguments)
    }

    func set(_ session: String, _ properties: [String: DBusValue]) async throws {
        let arguments = [DBusValue.string(Self.sessionInterface), .fields(properties)]
        try await mock("UpdateProperties", arguments, path: Self.path(session))
    }

    /// Sets whether it ends sessions on request.
    func obey(_ obeys: Bool) async throws {
        let code =
            obeys
            ? """
            path = '/org/freedesktop/login1/session/' + args[0]
            self.RemoveObject(path)
            self.EmitSignal('\(Self.managerInterface)', 'SessionRemoved', 'so', [args[0], dbus.ObjectPath(path)])
            """
            : "raise dbus.exceptions.DBusException('not today', name='org.freedesktop.DBus.Error.AccessDenied')"
        let arguments = [Self.managerInterface, "TerminateSession", "s", "", code].map(DBusValue.string)
        try await mock("AddMethod", arguments)
    }

    func sessions() async throws -> [String] { try await list("ListSessions").compactMap { $0.first?.stringValue } }

    /// The programs that delay a shutdown.
    func delays() async throws -> [String] {
        try await list("ListInhibitors").filter { $0.count > 3 && $0[3].stringValue == "delay" }
            .compactMap { $0[1].stringValue }
    }

    private func list(_ member: String) async throws -> [[DBusValue]] {
        let answer = try await connection.call(Self.call(Self.managerInterface, member))
        return (answer.first?.elementsValue ?? []).compactMap { entry in
            guard case .structure(let members) = entry else { return nil }
            return members
        }
    }

    func prepareForShutdown() async throws { try await emit("PrepareForShutdown", "b", [.boolean(true)]) }

    private static func path(_ session: String) -> String { "\(manager)/session/\(session)" }

    private static func call(
        _ interface: String,
        _ member: String,
        _ arguments: [DBusValue] = [],
        path: String = manager
    ) throws -> DBusMessage {
        try DBusMessage.methodCall(
            destination: "org.freedesktop.login1",
            path: path,
            interface: interface,
            member: member,
            arguments: arguments
        )
    }

    private func emit(_ name: String, _ signature: String, _ arguments: [DBusValue]) async throws {
        let values = DBusValue.array(arguments.map { .variant($0) }, of: "v")
        try await mock("EmitSignal", [.string(Self.managerInterface), .string(name), .string(signature), values])
    }

    private func mock(_ member: String, _ arguments: [DBusValue], path: String = manager) async throws {
        _ = try await connection.call(Self.call("org.freedesktop.DBus.Mock", member, arguments, path: path))
    }
}
