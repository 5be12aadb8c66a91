import DeviceConfiguration
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("shared-device status, sign-out, apps and log, with a real broker", .serialized)
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
            let answers: Bool
            let version: String?
        }
        struct Round: Decodable {
            struct App: Decodable {
                let identifier: String
                let progress: String
                let running: Bool?
                let finishedAfter: Double?
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

    private struct App: Decodable {
        struct Duty: Decodable {
            let session: UInt64
            let account: String?
            let progress: String
        }
        let identifier: String
        let running: Bool?
        let holdsCurrent: Bool
        let owes: [Duty]
        let lastCleanedAt: String?
    }

    private func entries(_ lines: [String]) throws -> [Entry] {
        try lines.map { try JSONDecoder().decode(Entry.self, from: Data($0.utf8)) }
    }

    /// An app of this process that cleans up at each change.
    private func follow(_ application: SharedDeviceApplication) -> Task<Void, any Error> {
        Task {
            for await change in application.accountChanges where !change.previousAccounts.isEmpty {
                try await application.cleanupDone(change, detail: "3 files")
            }
        }
    }

    // MARK: status

    @Test("status tells who is signed in, and the round after the sign-out, with and without a broker")
    func status() async throws {
        let device = try await TestDevice()
        let app = device.application("desk")
        try await app.signIn("ada")
        let signedIn = try await AdministrationCommand("status", "--json", on: device)
        #expect(signedIn.status == 0 && signedIn.errors.isEmpty)
        let before = try signedIn.json(Status.self)
        #expect(before.mode == "shared" && before.account == "ada" && before.organization == "Contoso")
        #expect(before.broker.answers && before.broker.version != nil)
        #expect(before.signedInAt?.hasSuffix("Z") == true)
        #expect(before.round == nil && before.signInHeldFor == [])
        try await app.signOutCurrent()
        let after = try await AdministrationCommand("status", "--json", on: device).json(Status.self)
        #expect(after.account == nil && after.signedInAt == nil && after.epoch == before.epoch + 1)
        let round = try #require(after.round)
        #expect(round.session == before.epoch && round.outcome == "open")
        #expect(round.apps.map(\.identifier) == ["org.example.desk"])
        #expect(round.apps.first?.running == true)
        let table = try await AdministrationCommand("status", on: device)
        #expect(table.output.contains("signed in") && table.output.contains("nobody"))
        #expect(table.lines.contains { $0.hasPrefix("desk ") } && !table.output.contains("org.example.desk"))
        let long = try await AdministrationCommand("status", "--long", on: device)
        #expect(long.output.contains("org.example.desk"))
        #expect(!table.output.contains("\u{1B}"), "colours are for terminals")
        device.killBroker()
        let alone = try await AdministrationCommand("status", "--json", on: device)
        #expect(alone.status == 0)
        let stored = try alone.json(Status.self)
        #expect(!stored.broker.answers && stored.organization == nil && stored.signInHeldFor == nil)
        #expect(stored.round?.apps.first?.running == nil)
        #expect(stored.round?.session == before.epoch)
    }

    @Test("without a state directory there is nothing to show: 66, and one line says what helps")
    func noState() async throws {
        let device = try await TestDevice(starts: false)
        try FileManager.default.removeItem(atPath: device.state)
        for command in ["status", "log", "apps"] {
            let outcome = try await AdministrationCommand(command, on: device)
            #expect(outcome.status == EX_NOINPUT, "\(command)")
            #expect(outcome.lines.isEmpty && outcome.errors.contains("--state"))
        }
    }

    // MARK: sign-out

    @Test("an administrator's sign-out that waits shows each step, and ends with 0 when all is clean")
    func signOut() async throws {
        let device = try await TestDevice()
        let app = device.application("desk")
        try await app.signIn("ada")
        let following = follow(app)
        defer { following.cancel() }
        let outcome = try await AdministrationCommand(
            "sign-out",
            "--wait",
            "60",
            "--reason",
            "end of shift",
            on: device
        )
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(outcome.lines.first?.hasPrefix("signed out: session ") == true)
        #expect(outcome.lines.contains { $0.hasPrefix("  +") && $0.contains("s  desk  finished  (3 files)") })
        #expect(outcome.output.contains(": complete"))
        #expect(try await app.getCurrentAccount().current == nil)
        let log = try await AdministrationCommand("log", "--json", "--event", "signed-out", on: device)
        let entry = try #require(try entries(log.lines).first)
        #expect(entry.detail == "end of shift" && entry.account == "ada")
    }

    @Test("when the time is over before all have cleaned up, it ends with 75 and names who owes")
    func signOutTooLate() async throws {
        let device = try await TestDevice()
        try await device.application("desk").signIn("ada")
        let outcome = try await AdministrationCommand("sign-out", "--wait", "0.3", "--json", on: device)
        #expect(outcome.status == EX_TEMPFAIL)
        #expect(outcome.errors.contains("still owing: desk"))
        struct Outcome: Decodable {
            let session: UInt64
            let round: Status.Round
        }
        let json = try outcome.json(Outcome.self)
        #expect(json.round.session == json.session && json.round.outcome == "open")
        let again = try await AdministrationCommand("sign-out", on: device)
        #expect(again.status == EX_NOINPUT)
        #expect(again.errors.contains("nobody is signed in"))
    }

    @Test("without a broker nothing is signed out: 69")
    func signOutWithoutBroker() async throws {
        let device = try await TestDevice(starts: false)
        let outcome = try await AdministrationCommand("sign-out", "--wait", "1", on: device)
        #expect(outcome.status == EX_UNAVAILABLE)
        #expect(outcome.lines.isEmpty)
        let nowhere = try await AdministrationCommand("sign-out", on: device, bus: "unix:path=/nonexistent")
        #expect(nowhere.status == EX_UNAVAILABLE)
    }

    @Test("a wait that is no sensible time is wrong usage", arguments: ["-1", "1e9", "nan", "soon"])
    func wrongWait(_ wait: String) async throws {
        let device = try await TestDevice(starts: false)
        let outcome = try await AdministrationCommand("sign-out", "--wait=\(wait)", on: device)
        #expect(outcome.status == EX_USAGE)
    }

    // MARK: apps

    @Test("apps lists who holds and who owes; a waiver settles it, and the log keeps the reason")
    func apps() async throws {
        let device = try await TestDevice()
        let (desk, other) = (device.application("desk"), device.application("other"))
        try await desk.signIn("ada")
        _ = try await other.getCurrentAccount()
        let before = try await AdministrationCommand("apps", "--json", on: device).json([App].self)
        #expect(before.map(\.identifier) == ["org.example.desk", "org.example.other"])
        #expect(before.allSatisfy { $0.holdsCurrent && $0.owes.isEmpty && $0.running == true })
        try await desk.signOutCurrent()
        let after = try await AdministrationCommand("apps", "--json", on: device).json([App].self)
        #expect(after.allSatisfy { !$0.holdsCurrent && $0.owes.map(\.account) == ["ada"] })
        let session = try #require(after.first?.owes.first).session
        let table = try await AdministrationCommand("apps", on: device)
        #expect(table.lines.count == 3)
        #expect(table.lines.last?.contains("session \(session) of ada (") == true)
        #expect(table.lines.dropFirst().map { $0.prefix { $0 != " " } } == ["desk", "other"])
        let long = try await AdministrationCommand("apps", "--long", on: device)
        #expect(long.lines.last?.hasPrefix("org.example.other") == true)
        let waiver = try await AdministrationCommand(
            "apps",
            "waive",
            // As the table has it.
            "other",
            "--reason",
            "was removed",
            on: device
        )
        #expect(waiver.status == 0, "\(waiver.errors)")
        #expect(waiver.output == "waived what other owed of session \(session)")
        let again = try await AdministrationCommand("apps", "waive", "org.example.other", "--reason", "x", on: device)
        #expect(again.status == EX_NOINPUT && again.lines.isEmpty)
        let last = try await AdministrationCommand("apps", "--json", on: device).json([App].self)
        #expect(last.map(\.owes.count) == [1, 0])
        let log = try await AdministrationCommand("log", "--json", "--event", "waived", on: device)
        #expect(try entries(log.lines).map(\.detail) == ["was removed"])
        let unknown = try await AdministrationCommand("apps", "waive", "nobody", "--reason", "x", on: device)
        #expect(unknown.status == EX_NOINPUT && unknown.errors.contains("there is no app nobody"), "\(unknown.errors)")
        let ofOther = try await AdministrationCommand("log", "--json", "--app", "other", on: device)
        #expect(!ofOther.lines.isEmpty && ofOther.lines.allSatisfy { $0.contains("org.example.other") })
        let noReason = try await AdministrationCommand("apps", "waive", "org.example.desk", on: device)
        #expect(noReason.status == EX_USAGE)
    }

    @Test(
        "another user may neither sign out nor waive: 77",
        .enabled(if: geteuid() == 0, "only root can be two users")
    )
    func notPermitted() async throws {
        var options = PrivateBus.Options()
        options.admitsOtherUsers = true
        let device = try await TestDevice(bus: PrivateBus(options))
        try await device.application("desk").signIn("ada")
        let program = ChildProcess.built("shared-device")
        for arguments in ["sign-out", "apps waive org.example.desk --reason x"] {
            let process = try ChildProcess(
                "su",
                ["-s", "/bin/sh", "nobody", "-c", "exec '\(program)' \(arguments) --bus '\(device.bus.address)'"]
            )
            let status = await process.exitStatus()
            // Where the build's folder is closed to others, they cannot even start it.
            if status == 126 || status == 127 { continue }
            #expect(status == EX_NOPERM, "\(process.errorText)")
        }
        #expect(try await AdministrationCommand("status", "--json", on: device).json(Status.self).account == "ada")
    }

    @Test("a name that several apps are shown by is refused with the names that tell them apart")
    func ambiguousName() async throws {
        let device = try await TestDevice()
        for vendor in ["one", "two"] {
            let app = SharedDeviceApplication(
                identifier: "org.\(vendor).notes",
                bus: device.bus.bus,
                stateDirectory: "\(device.directory.path)/apps/\(vendor)"
            )
            if vendor == "one" { try await app.signIn("ada") }
            _ = try await app.getCurrentAccount()
        }
        let table = try await AdministrationCommand("apps", on: device)
        let shown = table.lines.dropFirst().map { String($0.prefix { $0 != " " }) }
        #expect(shown == ["org.one.notes", "org.two.notes"], "\(table.output)")
        let waiver = try await AdministrationCommand("apps", "waive", "notes", "--reason", "x", on: device)
        #expect(waiver.status == EX_DATAERR)
        #expect(shown.allSatisfy { waiver.errors.contains("\n  \($0)") }, "\(waiver.errors)")
    }

    @Test("enrolling a program writes a manifest that the broker takes, never over another one")
    func enrol() async throws {
        let device = try await TestDevice(starts: false)
        let apps = "\(device.directory.path)/manifests"
        let program = ChildProcess.built("point-of-sale")
        func enrol(_ arguments: String...) async throws -> TestDevice.Outcome {
            try await device.run(["apps", "enrol"] + arguments + ["--apps", apps, "--state", device.state])
        }
        let nameless = try await enrol(program)
        #expect(
            nameless.status == EX_USAGE && nameless.errors.contains("--id org.example.point-of-sale"),
            "\(nameless.errors)"
        )
        let first = try await enrol(program, "--id", "org.example.shop", "--user", "root")
        try #require(first.status == 0, "\(first.errors)")
        let file = "\(apps)/org.example.shop.json"
        let manifest = try AppManifest(json: Data(contentsOf: URL(fileURLWithPath: file)), file: file)
        #expect(manifest.identifier == "org.example.shop" && manifest.identity.user == 0)
        #expect(manifest.identity.executable?.hasSuffix("/point-of-sale") == true)
        #expect(AppManifestDirectory(path: apps).load().problems.isEmpty)
        let again = try await enrol(program, "--id", "org.example.shop")
        #expect(again.status == EX_CANTCREAT && again.errors.contains("--force"), "\(again.errors)")
        #expect(try await enrol(program, "--id", "org.example.shop", "--force").status == 0)
        #expect(try await enrol(program, "--id", "noDots").status == EX_DATAERR)
        #expect(try await enrol("\(device.directory.path)", "--id", "org.example.x").status == EX_NOINPUT)
        #expect(try FileManager.default.contentsOfDirectory(atPath: apps) == ["org.example.shop.json"])
    }

    @Test(
        "a usage error is short and has the remedy",
        arguments: [["--foo"], ["sign-out", "--foo"], ["apps", "waive"], ["dance"]]
    )
    func usageErrors(_ arguments: [String]) async throws {
        let process = try ChildProcess(ChildProcess.built("shared-device"), arguments)
        #expect(await process.exitStatus() == EX_USAGE)
        let lines = process.errorText.split(separator: "\n")
        #expect(lines.count <= 4 && lines.first?.hasPrefix("Error: ") == true, "\(process.errorText)")
        #expect(process.errorText.contains("--help"))
    }

    // MARK: log

    @Test("the log tells a session from sign-in to the last receipt, and lets through what was asked for")
    func log() async throws {
        let device = try await TestDevice()
        let app = device.application("desk")
        try await app.signIn("ada")
        let following = follow(app)
        defer { following.cancel() }
        let first = try await AdministrationCommand("sign-out", "--wait", "60", on: device)
        try #require(first.status == 0)
        let all = try entries(try await AdministrationCommand("log", "--json", on: device).lines)
        #expect(all.map(\.sequence) == all.map(\.sequence).sorted())
        let session = try #require(all.first { $0.event == "signed-in" }?.session)
        let ofSession = try entries(
            try await AdministrationCommand("log", "--json", "--session", "\(session)", on: device).lines
        )
        let steps = ofSession.map(\.event).filter { $0 != "announced" && $0 != "told" }
        #expect(steps == ["signed-in", "held", "signed-out", "finished", "completed"])
        let ofApp = try entries(
            try await AdministrationCommand("log", "--json", "--app", "org.example.desk", on: device).lines
        )
        #expect(!ofApp.isEmpty && ofApp.allSatisfy { $0.app == "org.example.desk" })
        let last = try entries(try await AdministrationCommand("log", "--json", "--last", "2", on: device).lines)
        #expect(last.map(\.sequence) == all.suffix(2).map(\.sequence))
        #expect(try await AdministrationCommand("log", "--since", "2100-01-01", on: device).lines.isEmpty)
        let recent = try await AdministrationCommand("log", "--since", "1h", on: device)
        #expect(recent.lines.count == all.count)
        #expect(recent.lines.contains { $0.contains("signed-in") && $0.contains("ada") })
        for wrong in [["--event", "nonsense"], ["--since", "yesterday"], ["--last", "x"]] {
            let outcome = try await AdministrationCommand("log", wrong[0], wrong[1], on: device)
            #expect(outcome.status == EX_USAGE, "\(wrong)")
        }
    }

    @Test("a log that is followed goes on with what happens")
    func followLog() async throws {
        let device = try await TestDevice()
        let process = try ChildProcess(
            ChildProcess.built("shared-device"),
            ["log", "--follow", "--json", "--event", "signed-in", "--state", device.state]
        )
        let app = device.application("desk")
        for user in ["ada", "grace"] {
            try await app.signIn(user)
            try await process.line { $0.contains(#""account":"\#(user)""#) }
            for change in [try await app.getCurrentAccount().current].compactMap(\.self) {
                try await app.signout(with: change)
            }
        }
        let events = try entries(process.lines).map(\.event)
        #expect(events == ["signed-in", "signed-in"])
        process.send(SIGTERM)
        #expect(await process.exitStatus() == 128 + SIGTERM)
    }

    @Test("an app that is refused in a loop leaves a few entries")
    func refusals() async throws {
        let device = try await TestDevice()
        let app = device.application("hammer")
        let start = ContinuousClock.now
        for _ in 0..<60 {
            let refused = await code {
                _ = try await app.signIn("ada", password: "")
            }
            #expect(refused != nil)
        }
        try await eventually("they are in the log") {
            try await !AdministrationCommand("log", "--event", "refused", on: device).lines.isEmpty
        }
        let entries = try entries(
            try await AdministrationCommand("log", "--json", "--event", "refused", on: device).lines
        )
        let reasons = Set(entries.compactMap { $0.detail?.split(separator: " ").first })
        // Ten a minute of each reason; a minute that is over adds the line that counts the rest.
        let minutes = Int((ContinuousClock.now - start) / .seconds(60))
        #expect(entries.count <= (10 + 11 * minutes) * reasons.count, "\(entries.count)")
    }

    @Test("what an app calls itself does not move the terminal's cursor")
    func controlCharacters() async throws {
        let device = try await TestDevice()
        let app = SharedDeviceApplication(
            identifier: "evil\u{1B}[2J\u{202E}app",
            bus: device.bus.bus,
            stateDirectory: "\(device.directory.path)/apps/evil"
        )
        #expect(await code { try await app.signIn("ada") } == .appNotEligible)
        try await eventually("the log names it") {
            let output = try await AdministrationCommand("log", on: device).output
            #expect(!output.contains("\u{1B}") && !output.contains("\u{202E}"))
            return output.contains("evil\u{FFFD}[2J\u{FFFD}app")
        }
    }

    @Test("each command explains itself", arguments: ["status", "sign-out", "apps list", "log", "apps waive"])
    func help(_ command: String) async throws {
        let process = try ChildProcess(
            ChildProcess.built("shared-device"),
            command.split(separator: " ").map(String.init) + ["--help"]
        )
        #expect(await process.exitStatus() == 0)
        try await process.line { $0.hasPrefix("OVERVIEW: ") }
        try await process.line { $0.contains("--json") }
    }
}
