import Foundation
import MSAL
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@Suite("A ported app in Swift 5 mode")
struct PortedAppTests {
    private static let folder = URL(filePath: #filePath).deletingLastPathComponent()

    @Test("it contains the documentation's snippets verbatim", arguments: ["detect", "current-account", "sign-out"])
    func wordForWord(_ name: String) throws {
        let printed = try String(contentsOf: Self.folder.appending(path: "Fixtures/\(name).swift.txt"), encoding: .utf8)
        let source = try String(
            contentsOf: Self.folder.appending(path: "../../Programs/ported-shared-device-app/ViewController.swift"),
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
        #expect(text.joined(separator: "\n") + "\n" == printed && printed.count > 200)
    }

    /// The only line of the documentation's snippets that is not Swift.
    private static let placeholder = "let account = .... /* account retrieved above */"

    /// Starts the app in one of its forms on the device's bus, and waits until it takes input. The person types ada's
    /// name and password.
    private func start(_ form: String? = nil, on device: DeviceOnPrivateBus) async throws -> ChildProcess {
        let folder = device.directory.path
        _ = try device.directory.writeScript("xdg-open", "echo \"$1\" >>\(folder)/opened")
        let path = "\(folder):\(ProcessInfo.processInfo.environment["PATH"] ?? "")"
        let variables = ["XDG_STATE_HOME": folder, "PATH": path]
        let app = try ChildProcess(
            ChildProcess.built("ported-shared-device-app"),
            ["ada", "correct horse ada"] + (form.map { [$0] } ?? []),
            environment: device.bus.environment.merging(variables) { $1 }
        )
        try await app.line { $0 == "ready" }
        return app
    }

    private func deviceWithPage() async throws -> DeviceOnPrivateBus {
        try await DeviceOnPrivateBus(configuration: #""endSessionURL": "\#(Self.page)""#)
    }

    private static let page = "https://login.example/logout"

    private func opened(on device: DeviceOnPrivateBus) throws -> String {
        try String(contentsOfFile: "\(device.directory.path)/opened", encoding: .utf8)
    }

    @Test("it handles sign-in, remote sign-out, cleanup and its own sign-out")
    func runs() async throws {
        let device = try await deviceWithPage()
        let control = ControlApp(on: device)
        let app = try await start(on: device)
        try await app.presses("detect", "shared true")
        try await app.presses("account", "current - previous -")
        try await app.presses("sign-in", "signed in ada for api://myapi/scope")
        try await app.line { $0 == "broadcast" }
        try await app.line { $0 == "current ada previous -" }
        try await control.signOut()
        try await app.line { $0 == "cleaned ada" }
        try await app.line { $0 == "current - previous ada" }
        try app.write("sign-in")
        try await eventually("it has signed in again") {
            app.lines.count { $0.hasPrefix("signed in ada") } == 2
                && app.lines.drop { $0 != "current - previous ada" }.contains("current ada previous -")
        }
        // Overlapping requests may each report the same sign-out.
        let cleaned = app.lines.count { $0 == "cleaned ada" }
        try await app.presses("sign-out", "signed out true")
        #expect(try opened(on: device) == "\(Self.page)\n")
        try await eventually("the app learns of its sign-out") { app.lines.count { $0 == "cleaned ada" } > cleaned }
        try app.write("quit")
        #expect(await app.exitStatus() == 0)
        #expect(app.errorText == "")
        #expect(FileManager.default.fileExists(atPath: "\(device.directory.path)/org.example.ported"))
    }

    @Test("a SwiftUI proxy signs in through its view controller, refreshes and signs out")
    func proxy() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = ControlApp(on: device)
        let app = try await start("proxy", on: device)
        try await app.presses("mode", "mode shared true")
        try await app.presses("account", "account - true")
        try await app.presses("sign-in", "signed in ada true true")
        try await app.presses("refresh", "refreshed ada true false")
        try app.write("open-url")
        try await app.presses("account", "account ada true")
        try await control.signOut()
        try await app.presses("refresh", "refreshed - false true")
        // The failed refresh has cleared the form's account, so there is no account to sign out.
        try await app.presses("sign-out", "signed out true")
        #expect(try await control.current == nil)
    }

    @Test("a hybrid plugin uses authorities, an observer and a global sign-out")
    func hybrid() async throws {
        let device = try await deviceWithPage()
        let control = ControlApp(on: device)
        let app = try await start("hybrid", on: device)
        #expect(app.lines.contains("resolved known=2"))
        let token =
            "resolved authority=https://contoso.b2clogin.com/contoso/policy environment=contoso.b2clogin.com "
            + "hasHeader=true hasIdToken=false isPerson=true isSSOAccount=true isTenant=true username=ada"
        try await app.presses("sign-in", token)
        try await app.line { $0 == "account changed" }
        try app.write("refresh")
        try await eventually("it has another token") { app.lines.count { $0 == token } == 2 }
        // A prompt type other than “if necessary” requires a sign-out first.
        try await app.presses("sign-in", "rejected no token: -50000")
        // Removing the account from the app signs no account out.
        try await app.presses("forget", "resolved left=0")
        #expect(try await control.current == "ada")
        try await app.presses("sign-out", "resolved success=true")
        #expect(try opened(on: device) == "\(Self.page)\n")
        #expect(try await control.current == nil)
    }

    @Test("a plugin can set authorities and no-op settings, and turn off the broker")
    func channel() async throws {
        let device = try await DeviceOnPrivateBus()
        let app = try await start("channel", on: device)
        #expect(app.lines.contains("created https://contoso.b2clogin.com/contoso org.example.channel 1"))
        try await app.presses("sign-in", "token ada https://contoso.ciamlogin.com/contoso true")
        try await app.presses("refresh", "token ada https://adfs.contoso.example/adfs true")
        try await app.presses("remove", "removed")
        try await app.presses("refresh", "no account")
        // An account is signed in already, so single sign-on shows no prompt.
        try app.write("sign-in")
        try await eventually("it has a token again") {
            app.lines.count { $0.hasPrefix("token ada https://contoso") } == 2
        }
        try app.write("no-broker")
        try await app.presses("sign-in", "error INTERNAL \(MSALInternalError.internalBrokerNotAvailable.rawValue)")
        #expect(!app.lines.contains { $0.hasPrefix("[MSAL]") })
    }

    @Test("a provider wraps the block in an async function; removal signs no account out")
    func provider() async throws {
        let device = try await DeviceOnPrivateBus()
        let control = ControlApp(on: device)
        let app = try await start("provider", on: device)
        try await app.presses("sign-out", "no account")
        try await app.presses("sign-in", "provided Ada true true")
        try await app.presses("sign-out", "removed 0")
        #expect(try await control.current == "ada")
    }
}

extension ChildProcess {
    fileprivate func presses(_ button: String, _ answer: String) async throws {
        try write(button)
        try await line { $0 == answer }
    }
}
