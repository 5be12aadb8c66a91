import NotifyCenterTestKit
import Testing

@testable import DBus
@testable import DBusService

@Suite("Responses and signals are judged before their bodies are read")
struct HeaderJudgementTests {
    private let served: ServedBus
    private var server: DBusConnection { served.server }
    private var client: DBusConnection { served.client }

    init() throws { served = try ServedBus() }

    private func send(_ member: String, bytes: Int, to receiver: String? = nil) throws {
        let signal = try DBusMessage.signal(
            path: "/org/example",
            interface: "org.example.Signals",
            member: member,
            arguments: [.bytes(Array(repeating: 1, count: bytes))],
            destination: receiver
        )
        try server.send(signal)
    }

    /// Records the members of the signals that the client reads.
    private func hear() -> (heard: Noted<String>, observation: Observation) {
        let heard = Noted<String>()
        let observation = client.onSignal { message in
            if message.interface == "org.example.Signals" { heard.note(message.member ?? "") }
        }
        return (heard, observation)
    }

    @Test("a response larger than its call permits ends the call; later ones arrive")
    func largeAnswer() async throws {
        let get = DBusInterface.Method("Get", in: [.init("count", "u")], out: [.init("bytes", "ay")]) { call in
            [.bytes(Array(repeating: 1, count: Int(call.arguments.first?.unsignedValue ?? 0)))]
        }
        try served.serve([get])
        func answer(_ count: UInt32) async throws -> Result<[DBusValue], DBusError> {
            let held = HeldMessage(try served.call("Get", [.uint32(count)]))
            return await withCheckedContinuation { continuation in
                client.call(held.message.sharedReference(), largestAnswer: 10_000) {
                    continuation.resume(returning: $0)
                }
            }
        }
        for count in [1_000_000, 10_001] as [UInt32] {
            guard case .failure(let error) = try await answer(count) else {
                Issue.record("\(count) bytes are read")
                continue
            }
            #expect(error.code == .limitsExceeded && error.name == nil)
        }
        #expect(try await answer(9_000).get() == [.bytes(Array(repeating: 1, count: 9_000))])
    }

    @Test("only expected senders may send a large directed signal; any may send a small one")
    func directedSignals() async throws {
        let (heard, observation) = hear()
        // Makes the client read.
        try await client.flush()
        let receiver = try #require(client.uniqueName)
        try send("Small", bytes: 1000, to: receiver)
        try send("Unexpected", bytes: 1 << 20, to: receiver)
        try await server.flush()
        try await client.flush()
        #expect(heard.all == ["Small"])
        client.expectSignals(from: try #require(server.uniqueName))
        try send("Expected", bytes: 1 << 20, to: receiver)
        try await server.flush()
        try await client.flush()
        #expect(heard.all == ["Small", "Expected"])
        withExtendedLifetime(observation) {}
    }

    @Test("a signal of 4 MiB arrives, and one of over 8 MiB is not read")
    func largeSignals() async throws {
        let (heard, observation) = hear()
        let lease = try await client.addMatch(MatchRule(interface: "org.example.Signals"))
        try send("Large", bytes: 4 << 20)
        try send("TooLarge", bytes: 8 << 20)
        try send("Last", bytes: 1)
        try await server.flush()
        try await client.flush()
        #expect(heard.all == ["Large", "Last"])
        withExtendedLifetime((observation, lease)) {}
    }
}
