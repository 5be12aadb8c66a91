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
        let report = ProcessReport(suspensions: 3, names: [NameReport(name: "a", registrations: [registration])])
        try await client.enter("a", "gone")
        client.answers(report)
        var (names, processes) = try await client.list()
        // notifyd waits for a limited time for a process that does not run.
        try await eventually("the report came in time") {
            if names.contains(where: { $0.name == "gone" }) { (names, processes) = try await client.list() }
            return !names.contains { $0.name == "gone" }
        }
        #expect(Set(client.signals) == ["Tell"])
        // One name says which process serves.
        let version = UInt64(daemon.process.identifier) << 32 | 3
        #expect(names.map(\.name) == ["a", "com.apple.system.notify.ipc_version"])
        #expect(names.map(\.state) == [0, version])
        let connection = client.connection.uniqueName ?? ""
        let own = ProcessListing(connection: connection, process: UInt32(getpid()), user: geteuid(), report: report)
        #expect(processes == [own])
        // A process that does not report, for example because it is stopped, is listed with its known names.
        client.answers(nil)
        #expect(try await client.list().processes.first?.report.names.map(\.name) == ["a"])
    }
}
