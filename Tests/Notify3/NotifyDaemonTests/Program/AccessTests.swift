import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Testing

// Several users on one bus: Rules, a.5.
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
        // A directory from which every user may run programs.
        programs = try TemporaryDirectory("programs")
        chmod(programs.path, 0o755)
        try await copy("notify-probe")
    }

    private func copy(_ program: String) async throws {
        // Another process copies it. If this process had the file open for writing, the next child would inherit the
        // descriptor, and the file could not be run.
        let copying = try ChildProcess("cp", [ChildProcess.built(program), programs.path])
        #expect(await copying.exitStatus() == 0)
    }

    private func start(_ bus: PrivateBus? = nil, groups: String = "65534") async throws -> ChildProcess {
        let process = try ChildProcess(
            "setpriv",
            [
                "--reuid=\(Self.user)", "--regid=\(Self.user)", "--groups=\(groups)", "\(programs.path)/notify-probe",
                "notifyd",
            ],
            environment: (bus ?? daemon.bus).environment
        )
        try await process.line { $0.hasPrefix("ready") }
        return process
    }

    /// Returns the process's reply to a call.
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

    // A process in a sandbox does not see the configuration.
    @Test func onlyNamesThatAUserMayReadAreRelayed() async throws {
        let other = try await start()
        let center = "org.notifycenter.Darwin1"
        #expect(try await answer(other, "Relay as:\(center).secret.x") == "refused NotAuthorized")
        #expect(try await answer(other, "Relay as:\(center).a,\(center).user.uid.__30") == "refused NotAuthorized")
        #expect(try await answer(other, "Relay as:\(center).a,\(center).r.x,\(center)") == "ok ")
        #expect(try await answer(other, "EndRelay as:\(center).a,\(center).none") == "ok ")
        #expect(try await answer(other, "Relay as:org.freedesktop.DBus") == "refused InvalidRequest")
    }

    @Test func aFloodOfRelayedPostsEndsWhereItsUserHasNoRoom() async throws {
        var receivers: [ChildProcess] = []
        for _ in 0..<3 {
            receivers.append(try await start())
            #expect(try await answer(receivers[receivers.count - 1], "Relay as:org.notifycenter.Darwin1.a") == "ok ")
        }
        let center = DarwinNotifyCenter(bus: daemon.bus.bus)
        for _ in 0..<20_000 { try center.post("a") }
        try await center.flush()
        let dropped = try await client.status().firstMatch(of: /dropped (\d+)/).flatMap { Int($0.1) } ?? 0
        // Each receiver was paused. Its user has half of its room again after 40 s.
        #expect((3..<30).contains(dropped))
        #expect(try await client.state("served") == 0)
        // Relayed posts use neither the room nor the turns of its calls.
        #expect(try await answer(receivers[0], "GetState s:open") == "ok 0")
    }

    @Test func onlyAuthorizedUsersSetAState() async throws {
        let other = try await start()
        #expect(try await answer(other, "SetState s:r.x t:5 t:1") == "refused NotAuthorized")
        #expect(try await answer(other, "SetState s:user.uid.0 t:5 t:1") == "refused NotAuthorized")
        #expect(try await answer(other, "SetState s:user.uid.65534.x t:5 t:1") == "ok ")
        #expect(try await answer(other, "SetState s:open t:5 t:1") == "ok ")
        try await client.set("r.x", 6)
        #expect(try await answer(other, "GetState s:r.x") == "ok 6")
        for name in ["secret.x", "user.uid.0.x"] {
            #expect(try await answer(other, "GetState s:\(name)") == "refused NotAuthorized")
        }
        #expect(try await client.state("user.uid.65534.x") == 5)
    }

    @Test func theGroupsAreThoseOfTheCaller() async throws {
        let (member, stranger) = (try await start(groups: "65534,4242"), try await start())
        #expect(try await answer(member, "SetState s:g.x t:5 t:1") == "ok ")
        #expect(try await answer(stranger, "SetState s:g.x t:6 t:2") == "refused NotAuthorized")
    }

    @Test func aNameThatMayNotBeRegisteredIsNotEntered() async throws {
        let other = try await start()
        #expect(try await answer(other, "Enter as:secret.x,r.x,user.uid.0.x") == "ok ")
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

    // Rules, a.14: notifyd does not tell what the kernel hides about other users' processes.
    @Test func aListHasTheCallersProcessesAndForRootAll() async throws {
        let other = try await start()
        try await client.enter("rooms")
        client.answers(["rooms"])
        _ = try await answer(other, "Enter as:others")
        let all = try await client.list()
        #expect(Set(all.processes.map(\.user)) == [0, UInt32(Self.user)])
        let page = try await answer(other, "List t:0")
        #expect(page.contains("others"))
        #expect(!page.contains("rooms"))
        let status = try await answer(other, "Status")
        #expect(!status.contains("calls:"))
    }

    // Rules, a.14: one user cannot use up the room of other users.
    @Test func aUserHasALimitForAllOfItsConnections() async throws {
        let others = [try await start(), try await start(), try await start(), try await start(), try await start()]
        for (index, other) in others.enumerated() {
            let names = (0..<4096).map { "n\(index).\($0)" }.joined(separator: ",")
            let expected = index < 4 ? "ok " : "refused LimitsExceeded"
            #expect(try await answer(other, "Enter as:\(names)") == expected)
        }
        try await client.set("mine", 5)
        #expect(try await client.state("mine") == 5)
        let status = try String(contentsOfFile: "/proc/\(daemon.process.identifier)/status", encoding: .utf8)
        let resident = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        let kibibytes = resident?.split(whereSeparator: { !$0.isNumber }).first.flatMap { Int($0) }
        #expect(try #require(kibibytes) < 64 << 10)
    }

    // Rules, a.5: notifyd's connection may post what the bus's policy forbids to the caller.
    @Test func namesThatEverybodyMayPostAreNotPostedByNotifyd() async throws {
        let other = try await start()
        #expect(try await answer(other, "Post s:open") == "refused NotAuthorized")
        #expect(try await answer(other, "Post s:r.x") == "refused NotAuthorized")
        #expect(try await answer(other, "Post s:user.uid.65534.x") == "ok ")
        #expect(await client.refusal { try await client.call(.post, .string("open")) } == "NotAuthorized")
        #expect(await client.refusal { try await client.call(.post, .string("r.x")) } == nil)
    }

    // notifyd runs as a user without rights: its bus name decides what it may do.
    @Test func aNotifydWithoutRightsPostsReservedNames() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        let bus = try PrivateBus(options)
        try await copy("notifyd")
        let file = "\(programs.path)/notify.conf"
        try "reserve r. 0 0 rwr-r-\nmonitor r.x \(programs.path)/watched\n".write(
            toFile: file,
            atomically: true,
            encoding: .utf8
        )
        chmod(file, 0o644)
        let server = try ChildProcess(
            "setpriv",
            ["--reuid=\(Self.user)", "--regid=\(Self.user)", "--clear-groups", "\(programs.path)/notifyd"]
                + ["--configuration", file],
            environment: bus.environment
        )
        let root = try Client(bus)
        try await eventually {
            guard server.isRunning else { throw ChildProcess.Ended(server) }
            return try await root.connection.owner(of: NotifydProtocol.busName) != nil
        }
        let posts = SharedLines()
        let center = DarwinNotifyCenter(connection: root.connection)
        let observation = try await center.observe("r.x") { posts.append($0.name.rawValue) }
        #expect(await root.refusal { try await root.call(.post, .string("r.x")) } == nil)
        try await eventually { posts.lines.count == 1 }
        // The watch is set on another thread. A change before that is seen with the next change.
        try await eventually("the configured path is posted") {
            try UUID().uuidString.write(toFile: "\(programs.path)/watched", atomically: false, encoding: .utf8)
            return posts.lines.count > 1
        }
        // Other tests may use all inotify instances for a moment. notifyd then reports that and tries again.
        let complaints = server.errorText.split(separator: "\n").filter { !$0.contains("max_user_instances") }
        #expect(complaints.isEmpty)
        withExtendedLifetime(observation) {}
    }
}
