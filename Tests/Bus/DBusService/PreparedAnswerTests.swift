import NotifyCenterTestKit
import Testing

@testable import DBus
@testable import DBusService

@Suite("Prepared responses")
struct PreparedAnswerTests {
    private func method(_ name: String, _ reply: @escaping @Sendable (CallReply) -> Void) -> DBusInterface.Method {
        DBusInterface.Method(name, out: [.init("answer", "a{sv}")], reading: { _, call in reply(call) })
    }

    @Test("a prepared response reaches each caller like a written one, or is refused")
    func callers() async throws {
        let served = try ServedBus()
        let fields: [String: DBusValue] = [
            "epoch": .uint64(7), "owed": .array([.fields(["epoch": .uint64(5)])], of: "a{sv}"),
        ]
        let prepared = try PreparedAnswer([.fields(fields)])
        try served.serve([
            method("Prepared") { $0.send(prepared) }, method("Written") { $0.send(.success([.fields(fields)])) },
        ])
        let clients = try (0..<3).map { _ in try DBusConnection.open(served.bus.bus) }
        let written = try await served.client.call(try served.call("Written"))
        #expect(written.first?.fieldsValue == fields)
        try await withThrowingTaskGroup(of: [DBusValue].self) { group in
            for client in clients {
                for _ in 0..<20 { group.addTask { try await client.call(try served.call("Prepared")) } }
            }
            for try await answer in group { #expect(answer == written) }
        }
        let error = #expect(throws: DBusError.self) { try PreparedAnswer([.string("a\0b")]) }
        #expect(error?.code == .invalidArgument)
    }
}
