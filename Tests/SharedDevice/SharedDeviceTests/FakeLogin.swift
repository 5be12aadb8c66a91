import Basics
import DBus
import DBusService
import Glibc
import NotifyCenterTestKit
import Synchronization

/// A logind with one session, on the test's bus.
final class FakeLogin {
    private static let manager = "/org/freedesktop/login1"
    private static let session = "/org/freedesktop/login1/session/_31"

    private let connection: DBusConnection
    private let tokens: [Observation]
    private let state: State

    private final class State: Sendable {
        let isLocked = Locked(false)
        let lists = Locked(0)
    }

    var listCount: Int { state.lists.withLock { $0 } }

    init(_ bus: PrivateBus) async throws {
        let user = geteuid()
        let state = State()
        self.state = state
        connection = try DBusConnection.open(bus.bus)
        let list = DBusInterface.Method("ListSessions", out: [.init("sessions", "a(susso)")]) { _ in
            state.lists.withLock { $0 += 1 }
            let entry = DBusValue.structure([
                .string("1"), .uint32(user), .string("somebody"), .string("seat0"), .objectPath(Self.session),
            ])
            return [.array([entry], of: "(susso)")]
        }
        let properties: [DBusInterface.Property] = [
            .init("User", "(uo)") { .structure([.uint32(user), .objectPath("/org/freedesktop/login1/user/_0")]) },
            .init("Seat", "(so)") {
                .structure([.string("seat0"), .objectPath("/org/freedesktop/login1/seat/seat0")])
            },
            .init("Type", "s") { .string("wayland") },
            .init("Class", "s") { .string("user") },
            .init("LockedHint", "b") { .boolean(state.isLocked.withLock { $0 }) },
        ]
        let (manager, session) = ("org.freedesktop.login1.Manager", "org.freedesktop.login1.Session")
        tokens = [
            try connection.export([DBusInterface(manager, methods: [list])], at: Self.manager),
            try connection.export([DBusInterface(session, properties: properties)], at: Self.session),
        ]
        try await connection.requestName("org.freedesktop.login1")
    }

    deinit { leave() }

    /// Ends this logind.
    func leave() { connection.close() }

    func setLocked(_ locked: Bool) throws {
        state.isLocked.withLock { $0 = locked }
        try send(
            "org.freedesktop.DBus.Properties",
            "PropertiesChanged",
            [.string("org.freedesktop.login1.Session"), .fields(["LockedHint": .boolean(locked)]), .array([], of: "s")]
        )
    }

    func requestLock() throws { try send("org.freedesktop.login1.Session", "Lock", []) }

    func logOut() throws { try tell("SessionRemoved") }

    /// Announces a new session, which is the existing one.
    func announce() throws { try tell("SessionNew") }

    private func tell(_ member: String) throws {
        let arguments = [DBusValue.string("1"), .objectPath(Self.session)]
        try send("org.freedesktop.login1.Manager", member, arguments, path: Self.manager)
    }

    private func send(
        _ interface: String,
        _ member: String,
        _ arguments: [DBusValue],
        path: String = FakeLogin.session
    ) throws { try connection.send(.signal(path: path, interface: interface, member: member, arguments: arguments)) }
}
