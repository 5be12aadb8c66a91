import DBus
import NotifyCenter
import NotifyCenterTestKit
import Testing

// Rules, a.3 and a.10
@Suite struct SuspensionTests {
    @Test func anotherNotifydLearnsTheCount() async throws {
        let daemon = try await Daemon()
        let client = try Client(daemon.bus)
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
