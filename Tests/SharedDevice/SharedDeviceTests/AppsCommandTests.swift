import DeviceConfiguration
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("shared-device apps with a real broker", .serialized)
struct AppsCommandTests {
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
    }

    @Test("apps lists holders and pending apps; a waiver by a unique name settles")
    func apps() async throws {
        let device = try await DeviceOnPrivateBus()
        let (desk, other) = (device.application("desk"), device.application("other"))
        try await desk.signIn("ada")
        _ = try await other.getCurrentAccount()
        let before = try await device.command("apps", "--json").json([App].self)
        #expect(before.map(\.identifier) == ["org.example.desk", "org.example.other"])
        #expect(before.allSatisfy { $0.holdsCurrent && $0.owes.isEmpty && $0.running == true })
        try await desk.signOutCurrent()
        try await device.signOutIsWritten()
        let after = try await device.command("apps", "--json").json([App].self)
        #expect(after.allSatisfy { !$0.holdsCurrent && $0.owes.map(\.account) == ["ada"] })
        let session = try #require(after.first?.owes.first).session
        let table = try await device.command("apps")
        #expect(table.lines.count == 3 && table.lines.last?.contains("session \(session) of ada (") == true)
        #expect(table.lines.dropFirst().map { $0.prefix { $0 != " " } } == ["desk", "other"])
        let long = try await device.command("apps", "--long")
        #expect(long.lines.last?.hasPrefix("org.example.other") == true)
        let waiver = try await device.command("apps", "waive", "other", "--reason", "was removed")
        #expect(waiver.status == 0, "\(waiver.errors)")
        #expect(waiver.output == "waived what other owed of session \(session)")
        let again = try await device.command("apps", "waive", "org.example.other", "--reason", "x")
        #expect(again.status == EX_NOINPUT && again.lines.isEmpty)
        let last = try await device.command("apps", "--json").json([App].self)
        #expect(last.map(\.owes.count) == [1, 0])
        let log = try await device.command("log", "--json", "--event", "waived")
        #expect(log.lines.count == 1 && log.output.contains("was removed"))
        let unknown = try await device.command("apps", "waive", "nobody", "--reason", "x")
        #expect(unknown.status == EX_NOINPUT && unknown.errors.contains("there is no app nobody"), "\(unknown.errors)")
        let ofOther = try await device.command("log", "--json", "--app", "other")
        #expect(!ofOther.lines.isEmpty && ofOther.lines.allSatisfy { $0.contains("org.example.other") })
        let noReason = try await device.command("apps", "waive", "org.example.desk")
        #expect(noReason.status == EX_USAGE)
        for vendor in ["one", "two"] {
            let app = device.application(vendor, identifier: "org.\(vendor).notes")
            if vendor == "one" { try await app.signIn("ada") }
            _ = try await app.getCurrentAccount()
        }
        let names = try await device.command("apps").lines.map { String($0.prefix { $0 != " " }) }
        let notes = ["org.one.notes", "org.two.notes"]
        #expect(names.filter { $0.hasSuffix("notes") } == notes, "\(names)")
        let ambiguous = try await device.command("apps", "waive", "notes", "--reason", "x")
        #expect(ambiguous.status == EX_DATAERR)
        #expect(notes.allSatisfy { ambiguous.errors.contains("\n  \($0)") }, "\(ambiguous.errors)")
    }

    @Test("enrolling writes a valid manifest, overwrites none, and names a missing right")
    func enrol() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let apps = "\(device.directory.path)/manifests"
        let program = ChildProcess.built("point-of-sale")
        func enrol(_ arguments: String...) async throws -> CommandOutcome {
            try await CommandOutcome(["apps", "enrol"] + arguments + ["--apps", apps, "--state", device.state])
        }
        let nameless = try await enrol(program)
        let remedy = "--id org.example.point-of-sale"
        #expect(nameless.status == EX_USAGE && nameless.errors.contains(remedy), "\(nameless.errors)")
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
        #expect(try await enrol(device.directory.path, "--id", "org.example.x").status == EX_NOINPUT)
        #expect(try FileManager.default.contentsOfDirectory(atPath: apps) == ["org.example.shop.json"])
        // Root may make any directory.
        guard geteuid() != 0 else { return }
        try #require(chmod(device.directory.path, 0o500) == 0)
        defer { chmod(device.directory.path, 0o700) }
        let options = ["--id", "org.example.shop", "--apps", "\(device.directory.path)/other", "--state", device.state]
        let outcome = try await CommandOutcome(["apps", "enrol", program] + options)
        #expect(outcome.status == EX_CANTCREAT && outcome.errors.contains("Permission denied"), "\(outcome.errors)")
    }

    @Test("symbolic links in an untrusted folder do not redirect enrolling", .needsRoot)
    func enrolInSomebodysFolder() async throws {
        let directory = try TemporaryDirectory("enrol")
        let (apps, precious) = ("\(directory.path)/apps", "\(directory.path)/precious")
        try Data("precious".utf8).write(to: URL(fileURLWithPath: precious))
        try #require(mkdir(apps, 0o755) == 0 && chown(apps, 65534, 65534) == 0)
        let file = "\(apps)/org.example.shop.json"
        // The shell executes the program, which keeps the shell's process id, so the name of its temporary file is
        // known.
        let enrol = #""$1" apps enrol "$2" --id org.example.shop --apps "$3" --force"#
        func run(_ script: String) throws -> ChildProcess {
            let programs = ["shared-device", "point-of-sale"].map(ChildProcess.built)
            return try ChildProcess("/bin/sh", ["-c", script, "sh"] + programs + [apps, file, precious])
        }
        let atDraft = try run(#"ln -s "$5" "$4.$$" && exec "# + enrol)
        #expect(await atDraft.exitStatus() == EX_CANTCREAT)
        #expect(atDraft.errorText.contains("cannot write \(file)"), "\(atDraft.errorText)")
        let atFile = try run(#"ln -s "$5" "$4" && exec "# + enrol)
        #expect(await atFile.exitStatus() == 0, "\(atFile.errorText)")
        #expect(try String(contentsOfFile: precious, encoding: .utf8) == "precious")
        var information = stat()
        #expect(lstat(file, &information) == 0 && information.st_mode & S_IFMT == S_IFREG, "the link is replaced")
    }
}
