import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("shared-device status, sign-out and log with a real broker", .serialized)
struct AdministrationTests {
    private struct Entry: Decodable {
        let sequence: Int
        let at: String
        let event: String
        let session: UInt64?
        let app: String?
        let account: String?
        let detail: String?
    }

    private struct Status: Decodable {
        struct Broker: Decodable {
            let responds: Bool
            let version: String?
        }
        struct Round: Decodable {
            struct App: Decodable {
                let identifier: String
                let progress: String
                let running: Bool?
            }
            let session: UInt64
            let outcome: String
            let apps: [App]
        }
        let mode: String
        let epoch: UInt64
        let organization: String?
        let account: String?
        let signedInAt: String?
        let broker: Broker
        let signInHeldFor: [String]?
        let round: Round?
    }

    private func entries(_ lines: [String]) throws -> [Entry] {
        try lines.map { try JSONDecoder().decode(Entry.self, from: Data($0.utf8)) }
    }

    private func entries(_ device: DeviceOnPrivateBus, _ option: String, _ value: String) async throws -> [Entry] {
        try entries(try await device.command("log", "--json", option, value).lines)
    }

    @Test("status shows the account and the round, with and without a broker")
    func status() async throws {
        let device = try await DeviceOnPrivateBus()
        let app = device.application("desk")
        try await app.signIn("ada")
        let signedIn = try await device.command("status", "--json")
        #expect(signedIn.status == 0 && signedIn.errors.isEmpty)
        let before = try signedIn.json(Status.self)
        #expect(before.mode == "shared" && before.account == "ada" && before.organization == "Contoso")
        #expect(before.broker.responds && before.broker.version != nil && before.signedInAt?.hasSuffix("Z") == true)
        #expect(before.round == nil && before.signInHeldFor == [])
        try await app.signOutCurrent()
        try await device.signOutIsWritten()
        let after = try await device.command("status", "--json").json(Status.self)
        #expect(after.account == nil && after.signedInAt == nil && after.epoch == before.epoch + 1)
        let round = try #require(after.round)
        #expect(round.session == before.epoch && round.outcome == "open")
        #expect(round.apps.map(\.identifier) == ["org.example.desk"] && round.apps.first?.running == true)
        let table = try await device.command("status")
        #expect(table.output.contains("signed in") && table.output.contains("no account"))
        #expect(table.lines.contains { $0.hasPrefix("desk ") } && !table.output.contains("org.example.desk"))
        let long = try await device.command("status", "--long")
        #expect(long.output.contains("org.example.desk"))
        #expect(!table.output.contains("\u{1B}"), "colours are for terminals")
        device.killBroker()
        let alone = try await device.command("status", "--json")
        #expect(alone.status == 0)
        let stored = try alone.json(Status.self)
        #expect(!stored.broker.responds && stored.organization == nil && stored.signInHeldFor == nil)
        #expect(stored.round?.apps.first?.running == nil && stored.round?.session == before.epoch)
    }

    @Test("without a broker commands exit with 69, and without a state directory with 66")
    func noBroker() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let outcome = try await device.command("sign-out", "--wait", "1")
        #expect(outcome.status == EX_UNAVAILABLE && outcome.lines.isEmpty)
        let nowhere = "unix:path=/nonexistent/bus"
        #expect(try await device.command("sign-out", bus: nowhere).status == EX_UNAVAILABLE)
        #expect(try await CommandOutcome(["watch", "--json", "--bus", nowhere]).status == EX_UNAVAILABLE)
        try FileManager.default.removeItem(atPath: device.state)
        for command in ["status", "log", "apps"] {
            let outcome = try await device.command(command)
            #expect(outcome.status == EX_NOINPUT, "\(command)")
            #expect(outcome.lines.isEmpty && outcome.errors.contains("--state"), "\(command): \(outcome.errors)")
        }
    }

    @Test("a sign-out that times out exits with 75 and names the pending apps")
    func signOutTooLate() async throws {
        let device = try await DeviceOnPrivateBus()
        try await device.application("desk").signIn("ada")
        let outcome = try await device.command("sign-out", "--wait", "0.5", "--json")
        #expect(outcome.status == EX_TEMPFAIL && outcome.errors.contains("still owing: desk"))
        struct Outcome: Decodable {
            let session: UInt64
            let round: Status.Round
        }
        let json = try outcome.json(Outcome.self)
        #expect(json.round.session == json.session && json.round.outcome == "open")
        #expect(json.round.apps.first?.running != nil, "the broker responds, and says which apps run")
        let again = try await device.command("sign-out")
        #expect(again.status == EX_NOINPUT && again.errors.contains("no account is signed in"))
    }

    @Test("another user may neither sign out nor waive: exit status 77", .needsRoot)
    func notPermitted() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        let device = try await DeviceOnPrivateBus(bus: PrivateBus(options))
        try await device.application("desk").signIn("ada")
        let program = ChildProcess.built("shared-device")
        for arguments in ["sign-out", "apps waive org.example.desk --reason x"] {
            let script = "exec '\(program)' \(arguments) --bus '\(device.bus.address)'"
            let process = try ChildProcess("su", ["-s", "/bin/sh", "nobody", "-c", script])
            let status = await process.exitStatus()
            // If the build folder is closed to other users, they cannot even start the program.
            if status == 126 || status == 127 { continue }
            #expect(status == EX_NOPERM, "\(process.errorText)")
        }
        #expect(try await device.command("status", "--json").json(Status.self).account == "ada")
    }

    @Test("a usage error is short and has a remedy, and each command has a help text")
    func usage() async throws {
        for (arguments, remedy) in [
            (["--foo"], "--help"), (["sign-out", "--foo"], "--help"), (["apps", "waive"], "--help"),
            (["dance"], "--help"),
            // A command that only asks the broker needs no state directory.
            (["watch", "--state", "x"], "leave out --state"), (["metrics", "--state", "x"], "leave out --state"),
            // Invalid values.
            (["sign-out", "--wait=-1"], ""), (["sign-out", "--wait=1e9"], ""), (["sign-out", "--wait=nan"], ""),
            (["sign-out", "--wait=soon"], ""), (["follow", "--app", "../x"], ""), (["follow"], ""),
            (["follow", "--app", "org.example.x", "--timeout", "0"], ""),
            (["follow", "--app", "org.example.x", "--cleanup", "true", "--step", "a"], ""),
        ] as [([String], String)] {
            let outcome = try await CommandOutcome(arguments)
            let lines = outcome.errors.split(separator: "\n")
            let isShort = lines.count <= 4 && lines.first?.hasPrefix("Error: ") == true
            #expect(outcome.status == EX_USAGE, "\(arguments)")
            #expect(remedy.isEmpty || outcome.errors.contains(remedy), "\(arguments): \(outcome.errors)")
            #expect(remedy != "--help" || isShort, "\(arguments): \(outcome.errors)")
        }
        for command in [["status"], ["sign-out"], ["apps", "list"], ["log"], ["apps", "waive"]] {
            let help = try await CommandOutcome(command + ["--help"])
            #expect(help.status == 0 && help.lines.contains { $0.hasPrefix("OVERVIEW: ") }, "\(command)")
            #expect(help.output.contains("--json"), "\(command)")
        }
    }

    @Test("a waiting sign-out shows each step, and the log has the session up to its end")
    func log() async throws {
        let device = try await DeviceOnPrivateBus()
        let desk = ControlApp(on: device, name: "desk", detail: "3 files")
        try await desk.signIn("ada")
        let outcome = try await device.command("sign-out", "--wait", "60", "--reason", "end of shift")
        try #require(outcome.status == 0, "\(outcome.errors)")
        #expect(outcome.lines.first?.hasPrefix("signed out: session ") == true && outcome.output.contains(": complete"))
        #expect(outcome.lines.contains { $0.hasPrefix("  +") && $0.contains("s  desk  finished  (3 files)") })
        #expect(try await desk.application.getCurrentAccount().current == nil)
        let signedOut = try #require(try await entries(device, "--event", "signed-out").first)
        #expect(signedOut.detail == "end of shift" && signedOut.account == "ada")
        let all = try entries(try await device.command("log", "--json").lines)
        #expect(all.map(\.sequence) == all.map(\.sequence).sorted())
        let session = try #require(all.first { $0.event == "signed-in" }?.session)
        let ofSession = try await entries(device, "--session", "\(session)").map(\.event)
        let steps = ofSession.filter { $0 != "announced" && $0 != "told" }
        #expect(steps == ["signed-in", "held", "signed-out", "finished", "completed"])
        let ofApp = try await entries(device, "--app", "org.example.desk")
        #expect(!ofApp.isEmpty && ofApp.allSatisfy { $0.app == "org.example.desk" })
        #expect(try await entries(device, "--last", "2").map(\.sequence) == all.suffix(2).map(\.sequence))
        #expect(try await device.command("log", "--since", "2100-01-01").lines.isEmpty)
        let recent = try await device.command("log", "--since", "1h")
        #expect(recent.lines.count == all.count)
        #expect(recent.lines.contains { $0.contains("signed-in") && $0.contains("ada") })
        for wrong in [["--event", "nonsense"], ["--since", "yesterday"], ["--last", "x"]] {
            let outcome = try await device.command("log", wrong[0], wrong[1])
            #expect(outcome.status == EX_USAGE, "\(wrong)")
        }
        // Control characters in an app's name do not reach the terminal.
        let evil = device.application("evil", identifier: "evil\u{1B}[2J\u{202E}app")
        #expect(await code { try await evil.signIn("ada") } == .appNotEligible)
        try await eventually("the log names it") {
            let output = try await device.command("log").output
            #expect(!output.contains("\u{1B}") && !output.contains("\u{202E}"))
            return output.contains("evil\u{FFFD}[2J\u{FFFD}app")
        }
    }

    @Test("a followed log shows new entries")
    func followLog() async throws {
        let device = try await DeviceOnPrivateBus()
        let process = try ChildProcess(
            ChildProcess.built("shared-device"),
            ["log", "--follow", "--json", "--event", "signed-in", "--state", device.state]
        )
        let app = device.application("desk")
        for user in ["ada", "grace"] {
            try await app.signIn(user)
            try await process.line { $0.contains(#""account":"\#(user)""#) }
            try await app.signOutCurrent()
        }
        let events = try entries(process.lines).map(\.event)
        #expect(events == ["signed-in", "signed-in"])
        process.send(SIGTERM)
        #expect(await process.exitStatus() == 128 + SIGTERM)
    }
}
