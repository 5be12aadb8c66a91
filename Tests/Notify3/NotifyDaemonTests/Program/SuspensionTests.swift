import DBusTransport
import NotifyCenterTestKit
import NotifydProtocol
import Testing

// Rules, a.3 and a.10
@Suite struct SuspensionTests {
    private let daemon: Daemon
    private let client: Client
    private let other: ChildProcess

    init() async throws {
        daemon = try await Daemon()
        client = try Client(daemon.bus)
        other = try ChildProcess(ChildProcess.built("notifyd-client"), environment: daemon.bus.environment)
        try other.write("call Enter as:a")
        try await other.line { $0 == "ok " }
    }

    private var process: DBusValue { .uint32(UInt32(other.identifier)) }

    private func suspensions() async throws -> UInt32? {
        try await client.list().processes.first { $0.process == UInt32(other.identifier) }?.report.suspensions
    }

    @Test func aProcessIsToldAndTheCountIsKept() async throws {
        try await client.call(.suspendProcess, process)
        try await client.call(.suspendProcess, process)
        #expect(try await suspensions() == 2)
        try await client.call(.resumeProcess, process)
        #expect(try await suspensions() == 1)
        try await client.call(.resumeProcess, process)
        try await client.call(.resumeProcess, process)
        #expect(try await suspensions() == 0)
        try await eventually { other.lines.count { $0 == "resume" } == 2 }
        #expect(
            other.lines.filter { ["suspend", "resume"].contains($0) } == ["suspend", "suspend", "resume", "resume"]
        )
        #expect(!client.signals.contains("Suspend"))
    }

    @Test func aProcessThatEndedIsForgotten() async throws {
        try await client.call(.suspendProcess, process)
        other.kill()
        try await eventually {
            await client.refusal { try await client.call(.suspendProcess, process) } == "NoSuchProcess"
        }
    }

    @Test func aProcessWithoutRegistrationsIsUnknown() async throws {
        #expect(await client.refusal { try await client.call(.suspendProcess, .uint32(1)) } == "NoSuchProcess")
        #expect(await client.refusal { try await client.call(.resumeProcess, .uint32(0)) } == "NoSuchProcess")
    }

    @Test func anotherNotifydLearnsTheCount() async throws {
        try await client.queues()
        client.answers(ProcessReport(suspensions: 3, names: [NameReport(name: "a")]))
        daemon.process.kill()
        daemon.process.waitUntilExit()
        let second = try await Daemon(on: daemon.bus, directory: daemon.directory)
        try await eventually("it is told how often the process is suspended") {
            let own = try await client.list().processes.first { $0.connection == client.connection.uniqueName }
            return own?.report.suspensions == 3
        }
        withExtendedLifetime(second) {}
    }
}
