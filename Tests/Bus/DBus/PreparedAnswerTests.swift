import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite("Prepared responses")
struct PreparedAnswerTests {
    private let bus: PrivateBus
    private let server: DBusConnection

    init() throws {
        bus = try PrivateBus()
        server = try DBusConnection.open(bus.bus)
    }

    private func method(_ name: String, _ reply: @escaping @Sendable (CallReply) -> Void) -> DBusInterface.Method {
        DBusInterface.Method(name, out: [.init("answer", "a{sv}")], reading: { _, call in reply(call) })
    }

    private func call(_ client: DBusConnection, _ member: String) async throws -> [DBusValue] {
        try await client.call(
            try .methodCall(
                destination: try #require(server.uniqueName),
                path: "/answers",
                interface: "org.example.Answers",
                member: member
            )
        )
    }

    @Test("a prepared response reaches each caller like one written for it")
    func callers() async throws {
        let fields: [String: DBusValue] = [
            "epoch": .uint64(7), "owed": .array([.fields(["epoch": .uint64(5)])], of: "a{sv}"),
        ]
        let prepared = try PreparedAnswer([.fields(fields)])
        let methods = [
            method("Prepared") { $0.send(prepared) }, method("Written") { $0.send(.success([.fields(fields)])) },
        ]
        let object = try server.export([DBusInterface("org.example.Answers", methods: methods)], at: "/answers")
        let clients = try (0..<3).map { _ in try DBusConnection.open(bus.bus) }
        let written = try await call(clients[0], "Written")
        #expect(written.first?.fieldsValue == fields)
        try await withThrowingTaskGroup(of: [DBusValue].self) { group in
            for client in clients {
                for _ in 0..<20 { group.addTask { try await call(client, "Prepared") } }
            }
            for try await answer in group { #expect(answer == written) }
        }
        withExtendedLifetime(object) {}
    }

    @Test("a prepared response that D-Bus cannot carry is refused")
    func refused() {
        let error = #expect(throws: DBusError.self) { try PreparedAnswer([.string("a\0b")]) }
        #expect(error?.code == .invalidArgument)
    }
}
