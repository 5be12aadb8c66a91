import DBusTransport
import Foundation
import NotifyCenterTestKit
import NotifydProtocol
import Testing

@Suite struct HostileCallerTests {
    private let daemon: Daemon
    private let client: Client

    init() async throws {
        daemon = try await Daemon()
        client = try Client(daemon.bus)
    }

    private func stillServes() async throws -> Bool {
        let other = try Client(daemon.bus)
        try await other.set("alive", 1)
        return try await other.state("alive") == 1
    }

    @Test func argumentsOfOtherTypesAreRefused() async throws {
        let invalid = "org.freedesktop.DBus.Error.InvalidArgs"
        #expect(await client.refusal { try await client.call(.enter, .string("a")) } == invalid)
        #expect(await client.refusal { try await client.call(.enter, .array([.uint32(1)], of: "u")) } == invalid)
        #expect(await client.refusal { try await client.call(.setState, .string("a")) } == invalid)
        #expect(await client.refusal { try await client.call(.getState) } == invalid)
        #expect(await client.refusal { try await client.call(.monitor, .int32(1), .string("a")) } == invalid)
        let malformed: [DBusValue] = [
            .fields([:]), .fields(["suspensions": .string("x")]),
            .fields(["suspensions": .uint32(0), "names": .array([.fields(["name": .uint32(1)])], of: "a{sv}")]),
        ]
        for report in malformed {
            #expect(await client.refusal { try await client.call(.report, .uint64(0), report) } == "InvalidRequest")
        }
        #expect(try await stillServes())
    }

    @Test func aNameMayBeLongButNotEndless() async throws {
        let long = String(repeating: "n", count: 1 << 20)
        try await client.set(long, 5)
        #expect(try await client.state(long) == 5)
        let endless = String(repeating: "n", count: 9 << 20)
        #expect(await client.refusal { try await client.enter(endless) } == "LimitsExceeded")
        #expect(try await client.state(endless) == 0)
        #expect(try await stillServes())
    }

    @Test func tooManyNamesAreRefused() async throws {
        let names = (0..<100_001).map { "n\($0)" }
        #expect(await client.refusal { try await client.call(.enter, .names(names)) } == "LimitsExceeded")
        #expect(await client.refusal { try await client.call(.enter, .names(Array(names.dropLast()))) } == nil)
        #expect(await client.refusal { try await client.enter("one more") } == "LimitsExceeded")
        #expect(try await stillServes())
    }

    @Test func aFloodIsTakenInOrder() async throws {
        for number in UInt64(1)...20_000 {
            try client.send(.setState, .string("n\(number % 100)"), .uint64(number), .uint64(number))
        }
        #expect(try await client.state("n99") == 19_999)
        #expect(try await stillServes())
    }

    @Test func lineBreaksInNamesAreEscapedInTheStatus() async throws {
        try await client.enter("a\nname “b”: state 9")
        client.answers(["a\nname “b”: state 9"])
        let status = try await client.call(.status).first?.stringValue
        #expect(status?.contains("name “a\\u{a}name “b”: state 9”: state 0\n") == true)
    }

    /// notifyd asks the bus who a client is: a client cannot pretend to be another.
    @Test func signalsInNotifydsNameChangeNothing() async throws {
        try await client.set("a", 5)
        let forged = try DBusMessage.signal(
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "NameOwnerChanged",
            arguments: [.string(client.connection.uniqueName ?? ""), .string(""), .string("")],
            destination: NotifydProtocol.busName
        )
        let other = try Client(daemon.bus)
        try other.connection.send(forged)
        // It comes after it in the bus's order.
        #expect(try await other.state("a") == 5)
    }

    @Test func manyListsShareTheirRounds() async throws {
        try await client.enter("a")
        client.answers(["a"])
        // All at once, as many as one connection may wait for.
        let count = 16
        for _ in 1..<count { try client.send(.list) }
        #expect(try await client.list().processes.count == 1)
        #expect(client.signals.count < count)
    }

    @Test func tooManyListsOfOneConnectionAreRefused() async throws {
        try await client.enter("a")
        // It does not report, so the lists wait.
        client.answers(nil)
        // On a busy machine a round may be over before the next call comes.
        try await eventually("both are refused") {
            for _ in 0..<8 {
                try client.send(.list)
                try client.send(.status)
            }
            let list = await client.refusal { try await client.call(.list) }
            let status = await client.refusal { try await client.call(.status) }
            return list == "LimitsExceeded" && status == "LimitsExceeded"
        }
        let other = try Client(daemon.bus)
        #expect(try await other.list().processes.count == 1)
        // This call comes after the others.
        #expect(await client.refusal { try await client.call(.list) } == nil)
    }
}
