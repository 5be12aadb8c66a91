import DBusTransport
import DeviceStorage
import EmbeddedDirectory
import Foundation
import Glibc
import Identity
import NotifyCenterTestKit
import SharedDevice
import Testing

/// A device of the test's own: a private bus, the real broker, the users `ada` and `grace` with the passwords “correct horse NAME”, and prompts as
/// processes.
final class PromptDevice {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    let broker: ChildProcess

    init() async throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("prompt")
        let configuration = "\(directory.path)/managed.json"
        try #"{"sharedDeviceMode": true, "organization": "Contoso"}"#
            .write(toFile: configuration, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: configuration)
        let users = try UserDirectory(
            database: DeviceDatabase(directory: "\(directory.path)/state"),
            passwordCost: .minimal
        )
        for user in ["ada", "grace"] {
            try users.add(username: user, displayName: user.capitalized, password: Secret("correct horse \(user)"))
        }
        broker = try await ChildProcess.service(
            ChildProcess.built("shared-device-broker"),
            ["--state", "\(directory.path)/state", "--configuration", configuration, "--bus", bus.address]
        )
    }

    /// Where prompts keep their browsers' profiles.
    var profiles: String { "\(directory.path)/sign-in" }

    /// What is below ``profiles``.
    var profilesLeft: [String] { (try? FileManager.default.contentsOfDirectory(atPath: profiles)) ?? [] }

    var program: String { ChildProcess.built("shared-device-sign-in") }

    var environment: [String: String] { ["XDG_RUNTIME_DIR": directory.path, "DISPLAY": "", "WAYLAND_DISPLAY": ""] }

    /// A prompt without a terminal.
    func prompt(_ arguments: String..., environment: [String: String] = [:]) throws -> ChildProcess {
        // A session of its own has no terminal, whatever the test has.
        try ChildProcess(
            "setsid",
            ["--wait", program, "--bus", bus.address] + arguments,
            environment: self.environment.merging(environment) { $1 }
        )
    }

    /// A prompt on a page that the test opens itself; with the page's address.
    func page(_ arguments: String...) async throws -> (prompt: ChildProcess, address: String) {
        let prompt = try ChildProcess(
            program,
            ["--bus", bus.address, "--page", "--browser", "none", "--json"] + arguments,
            environment: environment
        )
        var address = ""
        try await eventually("the address is written") {
            try #require(prompt.isRunning, "\(prompt.errorText)")
            address = prompt.errorText.split(separator: " ").last.map(String.init) ?? ""
            return address.hasPrefix("http://")
        }
        return (prompt, address)
    }

    /// A prompt at a terminal of its own: what the child is given is typed, and its output is the screen.
    func terminal(hint: String? = nil, _ arguments: String...) throws -> ChildProcess {
        var environment = environment
        environment["SHARED_DEVICE_LOGIN_HINT"] = hint
        // Each question ends a line, so that the test sees it.
        let terminal = """
            import os, pty, sys
            shown = lambda screen: os.read(screen, 4096).replace(b": ", b": \\n")
            sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], shown)))
            """
        return try ChildProcess(
            "python3",
            ["-c", terminal, program, "--bus", bus.address] + arguments,
            environment: environment
        )
    }

    /// An app of this device, in the test's process.
    func application(_ name: String = "app") -> SharedDeviceApplication {
        SharedDeviceApplication(
            identifier: "org.example.\(name)",
            bus: bus.bus,
            stateDirectory: "\(directory.path)/apps/\(name)"
        )
    }

    func user() async throws -> String? { try await application().getCurrentAccount().current?.username }
}

/// What a prompt says with `--json`.
struct PromptResult: Decodable, Equatable {
    var username: String?
    var epoch: UInt64?
    var code: String?
    var message: String?

    init(username: String? = nil, epoch: UInt64? = nil, code: String? = nil, message: String? = nil) {
        (self.username, self.epoch, self.code, self.message) = (username, epoch, code, message)
    }

    init(_ prompt: ChildProcess) throws {
        self = try JSONDecoder().decode(Self.self, from: Data(prompt.lines.joined().utf8))
    }
}

/// A browser that understands what the test needs: one request, one answer.
enum Page {
    /// Sends a request by curl, which is another program than ours.
    static func get(_ address: String, _ arguments: String...) async throws -> (status: Int, text: String) {
        let curl = try ChildProcess(
            "curl",
            ["--silent", "--show-error", "--max-time", "60", "--include", "--write-out", "\n%{http_code}", address]
                + arguments
        )
        _ = await curl.exitStatus()
        let lines = curl.lines
        return (Int(lines.last ?? "") ?? 0, lines.dropLast().joined(separator: "\n"))
    }

    static func post(_ address: String, _ user: String, _ password: String) async throws -> (status: Int, text: String)
    {
        try await get(address, "--data-urlencode", "username=\(user)", "--data-urlencode", "password=\(password)")
    }
}
