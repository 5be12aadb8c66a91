import Foundation
import NotifyCenterTestKit
import Testing

// Packaging/install, with other files in place of the built ones.
@Suite struct InstallScriptTests {
    private let directory: TemporaryDirectory
    private let variables: [String: String]

    init() throws {
        directory = try TemporaryDirectory("install script")
        let built = "\(directory.path)/built"
        variables = ["DESTDIR": "\(directory.path)/root of another", "STATIC_SCRATCH": built]
        let programs = [
            "notifyd", "notifyutil", "notify-center", "shared-device", "shared-device-broker", "shared-device-cleanup",
            "shared-device-sign-in", "shared-device-identity", "shared-device-microsoft-broker",
        ]
        let completions = ["notify-center", "shared-device"].flatMap { program in
            ["\(program).bash", "_\(program)", "\(program).fish"].map { "completions/\($0)" }
        }
        for file in ["release/libdarwin-notify.so"] + programs.map({ "release/\($0)" }) + completions {
            let url = URL(fileURLWithPath: "\(built)/\(file)")
            let folder = url.deletingLastPathComponent()
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            try FileManager.default.copyItem(at: URL(fileURLWithPath: "/bin/true"), to: url)
        }
    }

    private func install(_ part: String, _ prefix: String, _ arguments: String...) async throws -> Int32 {
        let script = try ChildProcess(
            packagePath("Packaging/install"),
            [part] + arguments,
            environment: variables.merging(["PREFIX": prefix]) { $1 }
        )
        return await script.exitStatus()
    }

    private var files: [String] {
        let found = FileManager.default.enumerator(atPath: "\(directory.path)/root of another")?.allObjects ?? []
        return found.compactMap { $0 as? String }.filter { path in
            var status = stat()
            return lstat("\(directory.path)/root of another/\(path)", &status) == 0
                && status.st_mode & S_IFMT != S_IFDIR
        }
    }

    private func text(_ file: String) throws -> String {
        try String(contentsOfFile: "\(directory.path)/root of another/\(file)", encoding: .utf8)
    }

    /// dbus-daemon reads policies below /usr/share and /etc, but not below /usr/local.
    @Test func eachPartIsInstalledWhereTheSystemLooksAndRemovedAlone() async throws {
        let parts = [
            ("notify", "Notifyd1", "notifyd", "--system"),
            ("shared-device", "SharedDevice1", "shared-device-broker", "--bus system --state %S/shared-device"),
        ]
        let prefixes = [
            ("/usr", "usr/share/dbus-1"), ("/usr/local", "etc/dbus-1"), ("/opt/a b & c", "opt/a b & c/share/dbus-1"),
        ]
        for (prefix, folder) in prefixes {
            let inside = prefix.dropFirst()
            var before: [Set<String>] = []
            for (part, service, unit, option) in parts {
                before.append(Set(files))
                #expect(try await install(part, prefix) == 0)
                let policies = files.filter { $0.hasSuffix("org.notifycenter.\(service).conf") }
                #expect(policies == ["\(folder)/system.d/org.notifycenter.\(service).conf"])
                // A prefix with blanks is named as one word.
                let program = "\"\(prefix)/bin/\(unit)\""
                let activation = try text("\(inside)/share/dbus-1/services/org.notifycenter.\(service).service")
                #expect(activation.contains("\nExec=\(program)\n"))
                let start = try text("\(inside)/lib/systemd/system/\(unit).service")
                #expect(start.contains("\nExecStart=\(program) \(option)\n"))
            }
            let own = ["bin/shared-device", "share/man/man8/shared-device-broker.8"].map { "\(inside)/\($0)" }
            #expect(before[1].isDisjoint(with: own) && Set(files).isSuperset(of: own))
            for (part, files) in zip(parts, before).reversed() {
                #expect(try await install(part.0, prefix, "--remove") == 0)
                #expect(Set(self.files) == files, "\(part.0) in \(prefix)")
            }
        }
    }

    @Test func invalidPrefixesAndUnknownPartsAreRefused() async throws {
        let prefixes = ["/a\"b", "/a%b", "/a$b", "/a|b", "/a\\b", "relative"].map { ("notify", $0) }
        for (part, prefix) in prefixes + ["", "--remove", "notifyd"].map({ ($0, "/usr") }) {
            #expect(try await install(part, prefix) == 64, "\(part) in \(prefix)")
            #expect(files == [])
        }
    }

    @Test func theLibraryHasTheVersionThatProgramsPrint() async throws {
        #expect(try await install("notify", "/usr") == 0)
        for program in ["notifyd", "notifyutil"] {
            let outcome = try await Outcome(of: ChildProcess(ChildProcess.built(program), ["--version"]))
            let words = try #require(outcome.lines.first).split(separator: " ")
            #expect(outcome.status == 0 && words.first == program[...])
            #expect(files.contains("usr/lib/libdarwin-notify.so.\(words.last ?? "")"))
            #expect(try text("usr/lib/pkgconfig/darwin-notify.pc").contains("\nVersion: \(words.last ?? "")\n"))
        }
    }
}
