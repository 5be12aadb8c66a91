import Foundation
import NotifyCenterTestKit
import Testing

@Suite("A ported app, in Swift 5 mode")
struct PortedAppTests {
    private static let folder = URL(filePath: #filePath).deletingLastPathComponent()

    @Test("it has the documentation's snippets word for word", arguments: ["detect", "current-account", "sign-out"])
    func wordForWord(_ name: String) throws {
        let printed = try String(contentsOf: Self.folder.appending(path: "Fixtures/\(name).swift.txt"), encoding: .utf8)
        let source = try String(
            contentsOf: Self.folder.appending(path: "PortedSharedDeviceApp/ViewController.swift"),
            encoding: .utf8
        )
        let lines = source.split(separator: "\n", omittingEmptySubsequences: false)
        let begin = try #require(lines.firstIndex { $0.hasSuffix("// printed: \(name)") })
        let end = try #require(lines.firstIndex { $0.hasSuffix("// end of \(name)") })
        let embedded = lines[(begin + 1)..<end].filter { !$0.hasSuffix("// app") }
        let indentation = lines[begin].prefix { $0 == " " }
        let text = embedded.map { line in
            if line.hasSuffix("// placeholder") { return Self.placeholder }
            return line.hasPrefix(indentation) ? String(line.dropFirst(indentation.count)) : String(line)
        }
        #expect(text.joined(separator: "\n") + "\n" == printed)
        #expect(printed.count > 200)
    }

    /// The one line of the documentation that is no Swift.
    private static let placeholder = "let account = .... /* account retrieved above */"

    @Test("it detects shared mode, signs in, hears of a sign-out elsewhere, cleans up and signs out, on the main queue")
    func runs() async throws {
        let device = try await TestDevice()
        let app = try ChildProcess(
            ChildProcess.built("ported-shared-device-app"),
            ["ada", "correct horse ada"],
            environment: device.bus.environment.merging(["XDG_STATE_HOME": device.directory.path]) { $1 }
        )
        try await app.line { $0 == "ready" }
        try app.write("detect")
        try await app.line { $0 == "shared true" }
        try app.write("account")
        try await app.line { $0 == "current - previous -" }
        try app.write("sign-in")
        try await app.line { $0 == "signed in ada for api://myapi/scope" }
        try await app.line { $0 == "broadcast" }
        try await app.line { $0 == "current ada previous -" }
        try await device.control.signOut()
        try await app.line { $0 == "cleaned ada" }
        try await app.line { $0 == "current - previous ada" }
        try app.write("sign-in")
        try await eventually("it has signed in again") {
            app.lines.count { $0.hasPrefix("signed in ada") } == 2
                && app.lines.drop { $0 != "current - previous ada" }.contains("current ada previous -")
        }
        try app.write("sign-out")
        try await app.line { $0 == "signed out true" }
        try await eventually("it has heard of its own sign-out") { app.lines.count { $0 == "cleaned ada" } == 2 }
        try app.write("quit")
        #expect(await app.exitStatus() == 0)
        #expect(app.errorText == "")
        #expect(FileManager.default.fileExists(atPath: "\(device.directory.path)/org.example.ported"))
    }

    @Test("without a broker it is told so, and never that its device is personal")
    func noBroker() async throws {
        let device = try await TestDevice(starts: false)
        let app = try ChildProcess(
            ChildProcess.built("ported-shared-device-app"),
            ["ada", "correct horse ada"],
            environment: device.bus.environment.merging(["XDG_STATE_HOME": device.directory.path]) { $1 }
        )
        try await app.line { $0 == "ready" }
        try app.write("detect")
        try await app.line { $0 == "detect failed -50000" }
        try app.write("account")
        try await app.line { $0 == "account failed -50000" }
        try app.write("sign-in")
        try await app.line { $0.hasPrefix("sign-in failed MSALErrorDomain -50000 could not ") }
        try app.write("quit")
        #expect(await app.exitStatus() == 0)
        #expect(!app.lines.contains { $0.hasPrefix("shared") })
    }
}
