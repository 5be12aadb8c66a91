import Foundation
import NotifyCenterTestKit
import Testing

// Packaging/install, with other files in the place of what is built.
@Suite struct InstallScriptTests {
    private let directory: TemporaryDirectory
    private let variables: [String: String]

    init() throws {
        directory = try TemporaryDirectory("install script")
        let built = "\(directory.path)/built"
        variables = ["DESTDIR": "\(directory.path)/root of another", "STATIC_SCRATCH": built]
        for file in ["library/release/libdarwin-notify.so", "release/notifyd", "release/notifyutil"] {
            let url = URL(fileURLWithPath: "\(built)/\(file)")
            try FileManager.default.createDirectory(
                at: url.deletingLastPathComponent(),
                withIntermediateDirectories: true
            )
            try FileManager.default.copyItem(at: URL(fileURLWithPath: "/bin/true"), to: url)
        }
    }

    private func install(_ prefix: String, _ arguments: [String] = []) async throws -> Int32 {
        let script = try ChildProcess(
            Installation.package("Packaging/install"),
            arguments,
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

    @Test func aPrefixWithBlanksIsNamedAsOneWord() async throws {
        #expect(try await install("/opt/a b & c") == 0)
        let services = "opt/a b & c/share/dbus-1/services/org.notifycenter.Notifyd1.service"
        #expect(try text(services).contains("\nExec=\"/opt/a b & c/bin/notifyd\"\n"))
        let unit = try text("opt/a b & c/lib/systemd/system/notifyd.service")
        #expect(unit.contains("\nExecStart=\"/opt/a b & c/bin/notifyd\" --system\n"))
        #expect(try await install("/opt/a b & c", ["--remove"]) == 0)
        #expect(files == [])
    }

    @Test(arguments: ["/a\"b", "/a%b", "/a$b", "/a|b", "/a\\b", "relative"])
    func aPrefixThatCouldNotBeNamedIsRefused(_ prefix: String) async throws {
        #expect(try await install(prefix) == 64)
        #expect(files == [])
    }

    /// dbus-daemon reads policies below /usr/share and /etc, but not below /usr/local.
    @Test(arguments: [("/usr", "usr/share/dbus-1"), ("/usr/local", "etc/dbus-1")])
    func thePolicyIsWhereTheSystemBusLooks(_ prefix: String, _ folder: String) async throws {
        #expect(try await install(prefix) == 0)
        let policies = files.filter { $0.hasSuffix("org.notifycenter.Notifyd1.conf") }
        #expect(policies == ["\(folder)/system.d/org.notifycenter.Notifyd1.conf"])
        #expect(try await install(prefix, ["--remove"]) == 0)
        #expect(files == [])
    }
}
