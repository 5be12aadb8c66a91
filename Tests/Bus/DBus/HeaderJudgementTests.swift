import NotifyCenterTestKit
import Testing

@testable import DBus

@Suite("Responses and signals are judged before their bodies are read")
struct HeaderJudgementTests {
    private let bus: PrivateBus
    private let server: DBusConnection
    private let client: DBusConnection

    init() throws {
        bus = try PrivateBus()
        server = try DBusConnection.open(bus.bus)
        client = try DBusConnection.open(bus.bus)
    }

    private func signal(_ member: String, bytes: Int, to receiver: String? = nil) throws -> DBusMessage {
        try .signal(
            path: "/org/example",
            interface: "org.example.Signals",
            member: member,
            arguments: [.bytes(Array(repeating: 1, count: bytes))],
            destination: receiver
        )
    }

    @Test("a response larger than its call permits ends the call; later ones arrive")
    func largeAnswer() async throws {
        let object = try server.export(
            [
                DBusInterface(
                    "org.example.Object",
                    methods: [
                        .init("Get", in: [.init("count", "u")], out: [.init("bytes", "ay")]) { call in
                            [.bytes(Array(repeating: 1, count: Int(call.arguments.first?.unsignedValue ?? 0)))]
                        }
                    ]
                )
            ],
            at: "/object"
        )
        func get(_ count: UInt32) async throws -> Result<[DBusValue], DBusError> {
            let call = try DBusMessage.methodCall(
                destination: try #require(server.uniqueName),
                path: "/object",
                interface: "org.example.Object",
                member: "Get",
                arguments: [.uint32(count)]
            )
            let held = HeldMessage(call)
            return await withCheckedContinuation { continuation in
                client.call(held.message.sharedReference(), largestAnswer: 10_000) {
                    continuation.resume(returning: $0)
                }
            }
        }
        for count in [1_000_000, 10_001] as [UInt32] {
            guard case .failure(let error) = try await get(count) else {
                Issue.record("\(count) bytes are read")
                continue
            }
            #expect(error.code == .limitsExceeded && error.name == nil)
        }
        #expect(try await get(9_000).get() == [.bytes(Array(repeating: 1, count: 9_000))])
        withExtendedLifetime(object) {}
    }

    @Test("only expected senders may send a large directed signal; any may send a small one")
    func directedSignals() async throws {
        let heard = Noted<String>()
        let observation = client.onSignal { message in
            if message.interface == "org.example.Signals" { heard.note(message.member ?? "") }
        }
        // Makes the client read.
        try await client.flush()
        let receiver = try #require(client.uniqueName)
        try server.send(try signal("Small", bytes: 1000, to: receiver))
        try server.send(try signal("Unexpected", bytes: 1 << 20, to: receiver))
        try await server.flush()
        try await client.flush()
        #expect(heard.all == ["Small"])
        client.expectSignals(from: try #require(server.uniqueName))
        try server.send(try signal("Expected", bytes: 1 << 20, to: receiver))
        try await server.flush()
        try await client.flush()
        #expect(heard.all == ["Small", "Expected"])
        withExtendedLifetime(observation) {}
    }

    @Test("a signal of 4 MiB arrives, and one of over 8 MiB is not read")
    func largeSignals() async throws {
        let heard = Noted<String>()
        let observation = client.onSignal { message in
            if message.interface == "org.example.Signals" { heard.note(message.member ?? "") }
        }
        let lease = try await client.addMatch(MatchRule(interface: "org.example.Signals"))
        try server.send(try signal("Large", bytes: 4 << 20))
        try server.send(try signal("TooLarge", bytes: 8 << 20))
        try server.send(try signal("Last", bytes: 1))
        try await server.flush()
        try await client.flush()
        #expect(heard.all == ["Large", "Last"])
        withExtendedLifetime((observation, lease)) {}
    }
}
