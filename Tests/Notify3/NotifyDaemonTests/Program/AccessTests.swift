import DBusTransport
import Foundation
import NotifyCenterTestKit
import NotifydProtocol
import Testing

// Several users on one bus: Rules, a.5 and a.13.
@Suite(.enabled(if: geteuid() == 0 && PrivateBus.Daemon.chosen == .daemon, "root alone has several users"))
struct AccessTests {
    private let daemon: Daemon
    private let client: Client
    private let programs: TemporaryDirectory
    private static let user = 65_534

    init() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        daemon = try await Daemon(
            options,
            configuration: "reserve r. 0 0 rwr-r-\nreserve g. 0 4242 rwrw--\nreserve secret. 0 0 rw----\n"
        )
        client = try Client(daemon.bus)
        // A place from which every user may run it.
        programs = try TemporaryDirectory("programs")
        chmod(programs.path, 0o755)
        try await copy("notifyd-client")
    }

    private func copy(_ program: String) async throws {
        // Another process copies it: a file that this process has open for writing would be inherited by the next child, and could not be run.
        let copying = try ChildProcess("cp", [ChildProcess.built(program), programs.path])
        #expect(await copying.exitStatus() == 0)
    }

    private func start(_ bus: PrivateBus? = nil, groups: String = "65534") async throws -> ChildProcess {
        let process = try ChildProcess(
            "setpriv",
            ["--reuid=\(Self.user)", "--regid=\(Self.user)", "--groups=\(groups)", "\(programs.path)/notifyd-client"],
            environment: (bus ?? daemon.bus).environment
        )
        try await process.line { $0.hasPrefix("ready") }
        return process
    }

    /// The process's answer to a call.
    private func answer(_ process: ChildProcess, _ call: String) async throws -> String {
        let before = process.lines.count { $0.hasPrefix("ok") || $0.hasPrefix("refused") }
        try process.write("call \(call)")
        var answers: [String] = []
        try await eventually("an answer to \(call)") {
            answers = process.lines.filter { $0.hasPrefix("ok") || $0.hasPrefix("refused") }
            return answers.count > before
        }
        return answers.last ?? ""
    }

    @Test func onlyAuthorizedUsersSetAState() async throws {
        let other = try await start()
        #expect(try await answer(other, "SetState s:r.x t:5 t:1") == "refused NotAuthorized")
        #expect(try await answer(other, "SetState s:user.uid.0 t:5 t:1") == "refused NotAuthorized")
        #expect(try await answer(other, "SetState s:user.uid.65534.x t:5 t:1") == "ok ")
        #expect(try await answer(other, "SetState s:open t:5 t:1") == "ok ")
        try await client.set("r.x", 6)
        // Reading a state needs no permission.
        #expect(try await answer(other, "GetState s:r.x") == "ok 6")
        #expect(try await client.state("user.uid.65534.x") == 5)
    }

    @Test func theGroupsAreThoseOfTheCaller() async throws {
        let (member, stranger) = (try await start(groups: "65534,4242"), try await start())
        #expect(try await answer(member, "SetState s:g.x t:5 t:1") == "ok ")
        #expect(try await answer(stranger, "SetState s:g.x t:6 t:2") == "refused NotAuthorized")
    }

    @Test func aNameThatMayNotBeRegisteredIsNotEntered() async throws {
        let other = try await start()
        #expect(try await answer(other, "Enter as:secret.x,r.x,user.uid.0.x").hasPrefix("ok :"))
        let listed = try await client.list().processes.first { $0.user == UInt32(Self.user) }
        #expect(listed?.report.names.map(\.name) == ["r.x"])
        #expect(listed?.process == UInt32(other.identifier))
    }

    @Test func processesOfOthersAreNotSuspended() async throws {
        let other = try await start()
        try await client.enter("a")
        _ = try await answer(other, "Enter as:a")
        #expect(try await answer(other, "SuspendProcess u:\(getpid())") == "refused NotAuthorized")
        #expect(try await answer(other, "SuspendProcess u:\(other.identifier)") == "ok ")
        try await client.call(.resumeProcess, .uint32(UInt32(other.identifier)))
        try await other.line { $0 == "resume" }
    }

    @Test func pathsAreLookedAtAsTheCaller() async throws {
        let directory = try TemporaryDirectory("paths")
        chmod(directory.path, 0o755)
        mkdir("\(directory.path)/private", 0o700)
        for (name, mode) in [("private/f", 0o600), ("secret", 0o600), ("shown", 0o644)] as [(String, mode_t)] {
            try "".write(toFile: "\(directory.path)/\(name)", atomically: false, encoding: .utf8)
            chmod("\(directory.path)/\(name)", mode)
        }
        let other = try await start()
        func monitor(_ token: Int, _ path: String) async throws -> String {
            try await answer(other, "Monitor i:\(token) s:n s:\(directory.path)/\(path) u:0")
        }
        #expect(try await monitor(2, "private/f") == "refused NotAuthorized")
        #expect(try await monitor(3, "secret") == "refused NotAuthorized")
        #expect(try await monitor(4, "shown").hasPrefix("ok :"))
        // notifyd has root's rights again.
        try await client.monitor(5, "\(directory.path)/private/f")
        utimes("\(directory.path)/private/f", nil)
        utimes("\(directory.path)/shown", nil)
        try await other.line { $0 == "changed 4" }
        try await eventually { client.signals.contains("Changed 5") }
        // A directory of one of the caller's groups.
        chown("\(directory.path)/private", 0, 4242)
        chmod("\(directory.path)/private", 0o750)
        chmod("\(directory.path)/private/f", 0o644)
        #expect(try await monitor(6, "private/f") == "refused NotAuthorized")
        let member = try await start(groups: "4242")
        #expect(try await answer(member, "Monitor i:2 s:n s:\(directory.path)/private/f u:0").hasPrefix("ok :"))
    }

    @Test func aNotifydThatIsNotRootMonitorsNoPathForAnotherUser() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        let bus = try PrivateBus(options)
        try await copy("notifyd")
        let server = try ChildProcess(
            "setpriv",
            ["--reuid=\(Self.user)", "--regid=\(Self.user)", "--clear-groups", "\(programs.path)/notifyd"],
            environment: bus.environment
        )
        let root = try Client(bus)
        try await eventually {
            guard server.isRunning else { throw ChildProcess.exited(server) }
            return try await root.connection.owner(of: NotifydProtocol.busName) != nil
        }
        #expect(await root.refusal { try await root.monitor(2, "/etc/hosts") } == "NotAuthorized")
        withExtendedLifetime(server) {}
    }

    // Rules, a.5
    @Test func aNotifydReportsPostsThatReceiversWouldIgnore() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        let bus = try PrivateBus(options)
        try await copy("notifyd")
        let file = "\(programs.path)/notify.conf"
        let monitors = "monitor r.x /etc/hosts\nmonitor g.x /etc/hosts\nmonitor user.uid.65534.x /etc/hosts\n"
        try "reserve r. 0 0 rwr-r-\nreserve g. 0 4242 rwrw--\n\(monitors)"
            .write(toFile: file, atomically: true, encoding: .utf8)
        chmod(file, 0o644)
        let server = try ChildProcess(
            "setpriv",
            ["--reuid=\(Self.user)", "--regid=\(Self.user)", "--groups=4242", "\(programs.path)/notifyd"]
                + ["--configuration", file],
            environment: bus.environment
        )
        try await eventually { server.errorText.contains("user 65534 may not post r.x") }
        let root = try Client(bus)
        try await eventually { try await root.connection.owner(of: NotifydProtocol.busName) != nil }
        #expect(server.errorText.split(separator: "\n").count == 1)
        let status = try await root.call(.status).first?.stringValue
        #expect(status?.contains("paths: 2,") == true)
    }

    /// For instance in some containers.
    @Test func aRootThatMayNotActAsOthersRefusesAndGoesOn() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        let bus = try PrivateBus(options)
        let server = try ChildProcess(
            "setpriv",
            ["--bounding-set=-setgid", "--inh-caps=-setgid", ChildProcess.built("notifyd")],
            environment: bus.environment
        )
        let root = try Client(bus)
        try await eventually {
            guard server.isRunning else { throw ChildProcess.exited(server) }
            return try await root.connection.owner(of: NotifydProtocol.busName) != nil
        }
        let other = try await start(bus)
        #expect(try await answer(other, "Monitor i:2 s:n s:/etc/hosts u:0") == "refused NotAuthorized")
        try await root.monitor(3, "/etc/hosts")
        #expect(server.isRunning)
    }
}
