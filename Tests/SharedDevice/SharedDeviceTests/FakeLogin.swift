import DBusTransport
import Glibc
import NotifyCenterTestKit
import Synchronization

/// A logind with one session, on a bus of the test's own.
final class FakeLogin {
    private static let manager = "/org/freedesktop/login1"
    private static let session = "/org/freedesktop/login1/session/_31"

    private let connection: DBusConnection
    private let tokens: [Observation]
    private let isLocked: LockedFlag

    private final class LockedFlag: Sendable {
        private let value = Locked(false)
        var current: Bool { value.withLock { $0 } }
        func set(_ new: Bool) { value.withLock { $0 = new } }
    }

    init(_ bus: PrivateBus, seat: String = "seat0", type: String = "wayland") async throws {
        let user = geteuid()
        let flag = LockedFlag()
        self.isLocked = flag
        connection = try DBusConnection.open(bus.bus)
        tokens = [
            try connection.export(
                [
                    DBusInterface(
                        "org.freedesktop.login1.Manager",
                        methods: [
                            DBusInterface.Method("ListSessions", out: [.init("sessions", "a(susso)")]) { _ in
                                let entry = DBusValue.structure([
                                    .string("1"), .uint32(user), .string("somebody"), .string(seat),
                                    .objectPath(Self.session),
                                ])
                                return [.array([entry], of: "(susso)")]
                            }
                        ]
                    )
                ],
                at: Self.manager
            ),
            try connection.export(
                [
                    DBusInterface(
                        "org.freedesktop.login1.Session",
                        properties: [
                            .init("User", "(uo)") {
                                .structure([.uint32(user), .objectPath("/org/freedesktop/login1/user/_0")])
                            },
                            .init("Seat", "(so)") {
                                .structure([.string(seat), .objectPath("/org/freedesktop/login1/seat/seat0")])
                            },
                            .init("Type", "s") { .string(type) },
                            .init("Class", "s") { .string("user") },
                            .init("LockedHint", "b") { .boolean(flag.current) },
                        ]
                    )
                ],
                at: Self.session
            ),
        ]
        try await connection.requestName("org.freedesktop.login1")
    }

    deinit { connection.close() }

    /// The screen is locked, or unlocked, as a desktop reports it.
    func setLocked(_ locked: Bool) throws {
        isLocked.set(locked)
        try send(
            "org.freedesktop.DBus.Properties",
            "PropertiesChanged",
            [
                .string("org.freedesktop.login1.Session"), .fields(["LockedHint": .boolean(locked)]),
                .array([], of: "s"),
            ]
        )
    }

    /// `loginctl lock-session`.
    func requestLock() throws { try send("org.freedesktop.login1.Session", "Lock", []) }

    /// The session ends.
    func logOut() throws {
        let signal = try DBusMessage.signal(
            path: Self.manager,
            interface: "org.freedesktop.login1.Manager",
            member: "SessionRemoved",
            arguments: [.string("1"), .objectPath(Self.session)]
        )
        try connection.send(signal)
    }

    private func send(_ interface: String, _ member: String, _ arguments: [DBusValue]) throws {
        let signal = try DBusMessage.signal(
            path: Self.session,
            interface: interface,
            member: member,
            arguments: arguments
        )
        try connection.send(signal)
    }
}
