import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDeviceTestKit
import Testing

/// The example apps in other languages, on a device with the real broker. Each prints `open` and `hidden`, and stores
/// “the secret of NAME”.
@Suite("Apps in any language")
struct AnyLanguageTests {
    enum Language: String, CaseIterable {
        case shell, python, c, javascript

        var identifier: String { ExampleApps.identifier("\(rawValue)-notes") }

        /// Whether this machine has what the app needs. `make setup` installs it.
        var isInstalled: Bool {
            switch self {
            case .shell: true
            case .python: python != nil
            case .c: succeeds("cc", "--version") && succeeds("pkg-config", "libsystemd")
            case .javascript: succeeds("gjs", "--version")
            }
        }

        func app(in directory: String) async throws -> TestApp {
            switch self {
            case .shell:
                return TestApp(
                    identifier,
                    executable: Self.file("Examples/ShellScript/notes.sh"),
                    environment: ["PATH": "{programs}:/usr/bin:/bin"],
                    isEnrolled: false
                )
            case .python:
                return TestApp(
                    identifier,
                    executable: python ?? "python3",
                    arguments: [Self.file("Examples/PythonNotes/notes.py"), "{data}/notes"],
                    environment: ["PYTHONPATH": Self.file("Clients/python/src")],
                    isEnrolled: false
                )
            case .javascript:
                let arguments = ["-m", Self.file("Examples/JavaScriptNotes/notes.js"), "{data}/notes"]
                return TestApp(identifier, executable: "gjs", arguments: arguments, isEnrolled: false)
            case .c:
                let program = "\(directory)/c-notes"
                let command = #"cc -std=gnu11 -Wall -Wextra -Werror -o "$@" $(pkg-config --cflags --libs libsystemd)"#
                let source = Self.file("Examples/CNotes/notes.c")
                let compile = try ChildProcess("sh", ["-c", command, "sh", program, source])
                let status = await compile.exitStatus()
                try #require(status == 0, "\(compile.errorText)")
                return TestApp(identifier, executable: program, arguments: ["{data}/notes"])
            }
        }

        private var python: String? {
            ["/usr/bin/python3", "python3"].first { succeeds($0, "-c", "import jeepney, asyncio; asyncio.timeout") }
        }

        private func succeeds(_ words: String...) -> Bool {
            guard let process = try? ChildProcess(words[0], Array(words.dropFirst())) else { return false }
            return process.waitUntilExit() == 0
        }

        private static func file(_ path: String) -> String { CheckPlanTests.root.appending(path: path).path }
    }

    @Test("an app deletes data before its receipt, also after a kill", arguments: Language.allCases)
    func signOuts(_ language: Language) async throws {
        guard language.isInstalled else { try Test.cancel("this machine lacks what an app in \(language) needs") }
        let directory = try TemporaryDirectory("any-language")
        let device = try await TestDevice(apps: [try await language.app(in: directory.path)], cleanup: .strict)
        let app = try device.app(language.identifier)
        try await app.line { $0 == "hidden" }
        try await device.signIn("ada")
        try await app.waitForMarker("the secret of ada")
        try await app.line { $0 == "open" }
        try await device.signOut(deadline: .seconds(120)).requireClean(of: "the secret of ada")
        try await device.signIn("grace")
        try await app.waitForMarker("the secret of grace")
        // The app is stopped, and the broker is killed: the broker must not forget the cleanup.
        try await app.stop()
        try await device.beginSignOut()
        await device.killBroker()
        try await device.restartBroker()
        try app.resume()
        try await device.waitUntilClean().requireClean(of: "the secret of grace")
        try await device.signIn("ada")
        try await app.waitForMarker("the secret of ada")
        // If a script's shell is killed, the command continues and cleans up.
        try await app.kill()
        try await device.beginSignOut()
        try app.start()
        try await device.waitUntilClean().requireClean(of: "the secret of ada")
        // It shows the next user only after the cleanup.
        try await device.signIn("grace")
        try await app.waitForMarker("the secret of grace")
    }
}
