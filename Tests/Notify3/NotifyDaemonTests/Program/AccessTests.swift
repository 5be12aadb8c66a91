import DBus
import Foundation
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

// Several users on one bus: Rules, a.5.
@Suite(.enabled(if: geteuid() == 0 && PrivateBus.Daemon.chosen == .daemon, "root alone has several users"))
struct AccessTests {
    private let daemon: Daemon
    private let client: Client
    private static let user: UInt32 = 65_534

    init() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        daemon = try await Daemon(
            options,
            configuration: "reserve r. 0 0 rwr-r-\nreserve g. 0 4242 rwrw--\nreserve secret. 0 0 rw----\n"
        )
        client = try Client(daemon.bus)
    }

    private func start(groups: String = "65534") async throws -> ChildProcess {
        let launcher = ["setpriv", "--reuid=\(Self.user)", "--regid=\(Self.user)", "--groups=\(groups)"]
        return try await .notifydClient(on: daemon.bus, by: launcher)
    }

    @Test func aCallIsAuthorizedByTheUserAndTheGroupsOfItsProcess() async throws {
        let (other, member) = (try await start(), try await start(groups: "65534,4242"))
        try await client.set("r.x", 6)
        try await client.enter("a", "rooms")
        client.answers(["a", "rooms"])
        let center = WireKind.darwin.rawValue
        let (done, refused) = ("ok ", "refused NotAuthorized")
        let calls: [(caller: ChildProcess, call: String, reply: String)] = [
            (other, "SetState s:r.x t:5 t:1", refused), (other, "SetState s:user.uid.0 t:5 t:1", refused),
            (other, "SetState s:user.uid.65534.x t:5 t:1", done), (other, "SetState s:open t:5 t:1", done),
            (other, "GetState s:r.x", "ok 6"), (other, "GetState s:user.uid.65534.x", "ok 5"),
            (other, "GetState s:secret.x", refused), (other, "GetState s:user.uid.0.x", refused),
            (member, "SetState s:g.x t:5 t:1", done), (other, "SetState s:g.x t:6 t:2", refused),
            (other, "SuspendProcess u:\(getpid())", refused),
            // notifyd posts no name that every user may post: its connection would evade what the bus's policy forbids
            // to the caller.
            (other, "Post s:open", refused), (other, "Post s:r.x", refused), (other, "Post s:user.uid.0.x", refused),
            (other, "Post s:user.uid.65534.x", done),
            // Only names that the user may read are relayed, because a process in a sandbox does not see the
            // configuration.
            (other, "Relay as:\(center).secret.x", refused),
            (other, "Relay as:\(center).a,\(center).user.uid.__30", refused),
            (other, "Relay as:\(center).a,\(center).r.x,\(center)", done),
            (other, "EndRelay as:\(center).a,\(center).none", done),
            (other, "Relay as:org.freedesktop.DBus", "refused InvalidRequest"),
        ]
        for (caller, call, reply) in calls { #expect(try await caller.answer(call) == reply, "\(call)") }
        // Rules, a.14: notifyd does not tell what the kernel hides about other users' processes. A name that may not
        // be registered is not entered.
        #expect(try await other.answer("Enter as:others,secret.x") == done)
        let (page, status) = (try await other.answer("List t:0"), try await other.answer("Status"))
        #expect(page.contains("others") && !page.contains("rooms") && !page.contains("secret"), "\(page)")
        #expect(status.hasPrefix(done) && !status.contains("calls:"), "\(status)")
        #expect(try await Set(client.list().processes.map(\.user)) == [0, Self.user])
    }

    @Test func aFloodOfRelayedPostsEndsWhereItsUserHasNoRoom() async throws {
        var receivers: [ChildProcess] = []
        for _ in 0..<3 {
            let receiver = try await start()
            receivers.append(receiver)
            #expect(try await receiver.answer("Relay as:org.notifycenter.Darwin1.a") == "ok ")
        }
        let center = DarwinNotifyCenter(bus: daemon.bus.bus)
        for _ in 0..<20_000 { try center.post("a") }
        try await center.flush()
        let dropped = try await client.dropped()
        // Each receiver was paused. Its user has half of its room again after 40 s.
        #expect((3..<30).contains(dropped))
        #expect(try await client.state("served") == 0)
        // Relayed posts use neither the room nor the turns of its calls.
        #expect(try await receivers[0].answer("GetState s:open") == "ok 0")
    }

    // notifyd runs as a user without rights: its bus name decides what it may do.
    @Test func aNotifydWithoutRightsPostsReservedNames() async throws {
        let directory = try TemporaryDirectory("watched")
        chmod(directory.path, 0o755)
        let (file, watched) = ("\(directory.path)/notify.conf", "\(directory.path)/watched")
        try "reserve r. 0 0 rwr-r-\nmonitor r.x \(watched)\n".write(toFile: file, atomically: true, encoding: .utf8)
        chmod(file, 0o644)
        daemon.process.kill()
        daemon.process.waitUntilExit()
        let server = try await startNotifyd(
            on: daemon.bus,
            ["--configuration", file],
            by: ["setpriv"] + ChildProcess.identity(Self.user)
        )
        let posts = SharedLines()
        let center = DarwinNotifyCenter(connection: client.connection)
        let observation = try await center.observe("r.x") { posts.append($0.name.rawValue) }
        #expect(await client.refusal { try await client.call(.post, .string("r.x")) } == nil)
        try await eventually { posts.lines.count == 1 }
        // The watch is set on another thread. A change before that is seen with the next change.
        try await eventually("the configured path is posted") {
            try UUID().uuidString.write(toFile: watched, atomically: false, encoding: .utf8)
            return posts.lines.count > 1
        }
        // Other tests may use all inotify instances for a moment. notifyd then reports that and tries again.
        #expect(server.errorText.split(separator: "\n").filter { !$0.contains("max_user_instances") } == [])
        withExtendedLifetime(observation) {}
    }
}
