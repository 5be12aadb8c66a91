import DBus
import Glibc
import NotifyCenter
import NotifyCenterTestKit
import Testing

// Rules, a.11
@Suite struct StateTests {
    private let daemon: Daemon
    private let client: Client

    init() async throws {
        daemon = try await Daemon()
        client = try Client(daemon.bus)
    }

    @Test func callsOfOneClientKeepTheirOrder() async throws {
        for round in UInt64(1)...200 {
            let connection = try Client(daemon.bus)
            // The first calls wait until the bus has identified the caller.
            let name = "a\(round)"
            try connection.send(.setState, .string(name), .uint64(round), .uint64(round))
            try connection.send(.leave, .names([name]))
            try connection.send(.enter, .names([name]))
            #expect(try await connection.state(name) == 0)
            try connection.send(.setState, .string(name), .uint64(round), .uint64(round))
            #expect(try await connection.state(name) == round)
            connection.connection.close()
        }
    }

    /// notifyd asks the bus to identify a new client. Calls of other clients that arrive during that time wait behind
    /// the new client's call.
    @Test func aNameHandedOnToANewClientKeepsItsState() async throws {
        for round in UInt64(1)...100 {
            try await client.set("a", round, at: round)
            let heir = try Client(daemon.bus)
            try heir.send(.enter, .names(["a"]))
            // When this reply arrives, the bus has forwarded everything before it.
            _ = try await heir.connection.owner(of: NotifydProtocol.busName)
            try client.send(.leave, .names(["a"]))
            #expect(try await heir.state("a") == round)
            heir.connection.close()
            try await eventually("notifyd has heard that it is gone") { try await client.state("a") == 0 }
        }
    }

    @Test func oneNameSaysWhichProcessServes() async throws {
        let value = try await client.state("com.apple.system.notify.ipc_version")
        #expect(value == UInt64(daemon.process.identifier) << 32 | 3)
        #expect(
            await client.refusal { try await client.set("com.apple.system.notify.ipc_version", 1) } == "NotAuthorized"
        )
    }

    // Rules, a.14
    @Test func aPostThatIsTooLargeForReceiversIsRefused() async throws {
        let prefix = "user.uid.\(geteuid())."
        for (length, refusal) in [(1 << 19, nil), (1 << 20, "LimitsExceeded"), (5 << 20, "LimitsExceeded")] {
            let name = prefix + String(repeating: "x", count: length - prefix.utf8.count)
            #expect(await client.refusal { try await client.call(.post, .string(name)) } == refusal)
        }
    }

    @Test func aListAsksAllProcessesAndIdentifiesThem() async throws {
        let registration = RegistrationReport(token: 3, kind: .dispatch, suspensions: 1, deliveries: 9)
        try await client.enter("a", "gone")
        client.answers(ProcessReport(names: [NameReport(name: "a", registrations: [registration])]))
        var (names, processes) = try await client.list()
        // notifyd waits for a limited time for a process that does not run.
        try await eventually("the report came in time") {
            if names.contains(where: { $0.name == "gone" }) { (names, processes) = try await client.list() }
            return !names.contains { $0.name == "gone" }
        }
        #expect(Set(client.signals) == ["Tell"])
        #expect(names.map(\.name) == ["a", "com.apple.system.notify.ipc_version"])
        #expect(processes.map(\.process) == [UInt32(getpid())])
        #expect(processes.first?.user == geteuid())
        #expect(processes.first?.connection == client.connection.uniqueName)
        #expect(processes.first?.report.names.first?.registrations == [registration])
    }

    /// For example a stopped process.
    @Test func aProcessThatDoesNotAnswerIsListedWithWhatIsKnown() async throws {
        client.answers(nil)
        try await client.enter("a")
        #expect(try await client.list().processes.first?.report.names.map(\.name) == ["a"])
    }
}
