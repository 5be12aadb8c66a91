import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

// Rules, a.12
@Suite struct StartTests {
    @Test(.enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker starts no services without systemd"))
    func theBusStartsItWhenItIsNeeded() async throws {
        let program = ChildProcess.built("notifyd")
        let bus = try PrivateBus(.init(services: [NotifydProtocol.busName: program]))
        let client = try Client(bus)
        client.answers(["a"])
        // `Enter` does not start notifyd.
        #expect(await client.refusal { try await client.enter("a") } != nil)
        let answer = try await client.connection.call(NotifydProtocol.call(.getState, [.string("a")]))
        #expect(answer == [.uint64(0)])
        #expect(client.signals == ["came"])
        let owner = try await client.connection.owner(of: NotifydProtocol.busName)
        let server = try await client.connection.credentials(of: try #require(owner))
        #expect(server.executable == program)
    }

    @Test func oneNotifydServesABusAndEndsWithIt() async throws {
        let daemon = try await Daemon()
        let second = try ChildProcess(ChildProcess.built("notifyd"), environment: daemon.bus.environment)
        #expect(await second.exitStatus() == 69)
        #expect(second.errorText.contains("another connection owns it"))
        #expect(daemon.process.isRunning)
        daemon.bus.stop()
        // The exit counts as a failure, so that a service manager starts notifyd again for the configured paths.
        #expect(await daemon.process.exitStatus() == EX_UNAVAILABLE)
    }

    @Test func processesReportTheirRegistrationsToANewNotifyd() async throws {
        var running = try await Daemon()
        let clients = try (0..<20).map { _ in try Client(running.bus) }
        for (index, client) in clients.enumerated() {
            try await client.queues()
            try await client.enter("shared", "own.\(index)")
            client.answers(
                ProcessReport(names: [
                    NameReport(name: "shared", state: StateReport(value: UInt64(index), time: UInt64(100 - index))),
                    NameReport(name: "own.\(index)", state: StateReport(value: UInt64(index), time: 1)),
                ])
            )
        }
        var (tries, states) = (0, [UInt64?]())
        repeat {
            running = try await running.restarted()
            tries += 1
            // At once: a reader waits until all processes have reported. On a busy machine the time limit may end that
            // wait early.
            states = [try await clients[0].state("shared")]
            for index in clients.indices { states.append(try await clients[0].state("own.\(index)")) }
        } while states != [0] + clients.indices.map { UInt64($0) } && tries < 5
        #expect(states == [0] + clients.indices.map { UInt64($0) })
        #expect(clients.allSatisfy { $0.signals == Array(repeating: "came", count: tries) })
        clients[1].answers(["shared"])
        #expect(try await clients[0].list().processes.count == 20)
        withExtendedLifetime(running) {}
    }

    @Test func aProcessThatDoesNotReportIsNotWaitedForForever() async throws {
        let bus = try PrivateBus()
        let silent = try Client(bus)
        silent.answers(nil)
        try await silent.queues()
        let daemon = try await Daemon(on: bus, configuration: "set p 5")
        #expect(try await Client(bus).state("p") == 5)
        withExtendedLifetime((daemon, silent)) {}
    }

    // A process that only uses the bus, and does not even read, has nothing to report.
    @Test func anIdleConnectionDoesNotDelayTheStart() async throws {
        let bus = try PrivateBus()
        let idle = try await ChildProcess.notifydClient(on: bus)
        idle.suspend()
        // A busy machine may make one start slow, so the test tries others.
        try await eventually("the first state comes at once") {
            let daemon = try await Daemon(on: bus, configuration: "set p 5")
            let client = try Client(bus)
            let began = ContinuousClock.now
            #expect(try await client.state("p") == 5)
            let took = ContinuousClock.now - began
            daemon.process.kill()
            daemon.process.waitUntilExit()
            return took < .milliseconds(500)
        }
    }

    // Rules, a.5
    @Test func itDoesNotStartWithAConfigurationThatItMayNotTrust() async throws {
        let (bus, directory) = (try PrivateBus(), try TemporaryDirectory("notifyd"))
        let file = "\(directory.path)/notify.conf"
        try "set p 5".write(toFile: file, atomically: true, encoding: .utf8)
        chmod(file, 0o666)
        let variables = bus.environment.merging(["NOTIFY_CENTER_CONFIGURATION": file]) { $1 }
        let process = try ChildProcess(ChildProcess.built("notifyd"), environment: variables)
        #expect(await process.exitStatus() == 66)
        #expect(process.errorText.contains("other users may write it; forbid that (chmod go-w)"))
    }

    @Test(arguments: [SIGTERM, SIGINT]) func itEndsCleanly(_ signal: Int32) async throws {
        let daemon = try await Daemon()
        daemon.process.send(signal)
        let outcome = await Outcome(of: daemon.process)
        #expect(outcome.status == 0 && outcome.lines.isEmpty && outcome.errors == "")
    }
}
