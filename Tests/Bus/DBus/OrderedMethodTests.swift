import NotifyCenterTestKit
import Synchronization
import Testing

@testable import Basics
@testable import DBus

@Suite("Methods that receive their calls in order")
struct OrderedMethodTests {
    private let bus: PrivateBus
    private let client: DBusConnection
    private let server: DBusConnection

    init() throws {
        bus = try PrivateBus()
        client = try DBusConnection.open(bus.bus)
        server = try DBusConnection.open(bus.bus)
    }

    private func message(_ member: String, _ arguments: [DBusValue]) throws -> DBusMessage {
        try .methodCall(
            destination: try #require(server.uniqueName),
            path: "/counter",
            interface: "org.example.Counter",
            member: member,
            arguments: arguments,
            options: [.noReply]
        )
    }

    @Test("calls and signals of one client arrive in the order of sending")
    func order() async throws {
        let arrived = Locked<[UInt32]>([])
        @Sendable func add(_ value: DBusValue?) {
            if case .uint32(let number) = value { arrived.withLock { $0.append(number) } }
        }
        let count = DBusInterface.Method(
            "Count",
            in: [.init("number", "u")],
            inOrder: { call, _ in add(call.arguments[0]) }
        )
        let object = try server.export([DBusInterface("org.example.Counter", methods: [count])], at: "/counter")
        let lease = try await server.addMatch(MatchRule(interface: "org.example.Signal"))
        let handler = server.onSignal { message in
            guard message.interface == "org.example.Signal" else { return }
            add(try? message.arguments().first)
        }
        for number in UInt32(0)..<1000 {
            if number.isMultiple(of: 2) {
                try client.send(try message("Count", [.uint32(number)]))
            } else {
                let signal = try DBusMessage.signal(
                    path: "/counter",
                    interface: "org.example.Signal",
                    member: "Count",
                    arguments: [.uint32(number)]
                )
                try client.send(signal)
            }
        }
        try await eventually { arrived.withLock { $0.count } == 1000 }
        #expect(arrived.withLock { $0 } == Array(0..<1000))
        withExtendedLifetime((object, lease, handler)) {}
    }

    @Test("a method may respond later and from another thread; errors carry their names")
    func answers() async throws {
        let method = DBusInterface.Method(
            "Echo",
            in: [.init("text", "s")],
            out: [.init("text", "s")],
            inOrder: { call, reply in
                Task {
                    let isKnown = call.arguments != [.string("unknown")]
                    reply.send(
                        isKnown ? .success(call.arguments) : .failure(.init(name: "org.example.Error.No", message: ""))
                    )
                }
            }
        )
        let object = try server.export([DBusInterface("org.example.Counter", methods: [method])], at: "/counter")
        func call(_ argument: DBusValue) async throws -> [DBusValue] {
            try await client.call(
                .methodCall(
                    destination: try #require(server.uniqueName),
                    path: "/counter",
                    interface: "org.example.Counter",
                    member: "Echo",
                    arguments: [argument]
                )
            )
        }
        #expect(try await call(.string("hello")) == [.string("hello")])
        let refusal = await #expect(throws: DBusError.self) { try await call(.string("unknown")) }
        #expect(refusal?.name == "org.example.Error.No")
        let wrong = await #expect(throws: DBusError.self) { try await call(.uint32(1)) }
        #expect(wrong?.name == "org.freedesktop.DBus.Error.InvalidArgs")
        withExtendedLifetime(object) {}
    }

    @Test("a user's groups are those of the machine; an unknown user has none")
    func groups() {
        #expect(UserGroups.of(0).contains(0))
        #expect(UserGroups.of(3_999_999_999) == [])
    }
}
