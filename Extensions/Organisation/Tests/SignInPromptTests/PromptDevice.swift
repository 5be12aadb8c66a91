import DBus
import DeviceStorage
import EmbeddedIdentity
import Foundation
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

/// A device for one test: a private bus, the real broker, the users `ada` and `grace` with the passwords “correct horse
/// NAME”, and prompts as processes.
final class PromptDevice: Sendable {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    let users: UserDirectory
    let broker: ChildProcess

    /// - Parameters:
    ///   - configuration: the managed configuration.
    ///   - manifests: the manifests of apps.
    ///   - badges: the numbers of users' badges, by name. The PIN of each is 1234.
    init(
        configuration: String = #"{"sharedDeviceMode": true, "organization": "Contoso"}"#,
        manifests: [String] = [],
        badges: [String: String] = [:]
    ) async throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("prompt")
        let path = directory.path
        try Self.write(configuration, to: "\(path)/managed.json")
        for (number, manifest) in manifests.enumerated() {
            try FileManager.default.createDirectory(atPath: "\(path)/apps", withIntermediateDirectories: true)
            try Self.write(manifest, to: "\(path)/apps/\(number).json")
        }
        users = try UserDirectory(database: DeviceDatabase(directory: "\(path)/state"), passwordCost: .minimal)
        for user in ["ada", "grace"] {
            try users.add(username: user, displayName: user.capitalized, password: Secret("correct horse \(user)"))
        }
        for (user, number) in badges {
            try users.setBadge(Secret(number), ofUserNamed: user)
            try users.setPIN(Secret("1234"), ofUserNamed: user)
        }
        broker = try await ChildProcess.service(
            ChildProcess.built("shared-device-broker"),
            ["--state", "\(path)/state", "--configuration", "\(path)/managed.json", "--bus", bus.address]
        )
    }

    /// Writes a file that every user can read.
    static func write(_ text: String, to path: String) throws {
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: path)
    }

    var program: String { ChildProcess.built("shared-device-sign-in") }

    var environment: [String: String] {
        ["XDG_RUNTIME_DIR": directory.path, "DISPLAY": "", "WAYLAND_DISPLAY": "", "LC_ALL": "C"]
    }

    func prompt(_ arguments: String..., environment: [String: String] = [:]) throws -> ChildProcess {
        // A new session has no controlling terminal, even if the test has one.
        try ChildProcess(
            "setsid",
            ["--wait", program, "--bus", bus.address] + arguments,
            environment: self.environment.merging(environment) { $1 }
        )
    }

    /// A prompt on a page that the test opens, with the page's address.
    func page(_ arguments: String...) async throws -> (prompt: ChildProcess, address: String) {
        let prompt = try ChildProcess(
            program,
            ["--bus", bus.address, "--page", "--browser", "none", "--json"] + arguments,
            // Without a locale, the language of the visiting browser would decide.
            environment: environment.merging(["LC_ALL": "en_US.UTF-8", "LANGUAGE": ""]) { $1 }
        )
        return (prompt, try await prompt.pageAddress())
    }

    /// A prompt at its own terminal. The child's input is typed there, and its output is the screen.
    func terminal(hint: String? = nil, _ arguments: String...) throws -> ChildProcess {
        var environment = environment
        environment["SHARED_DEVICE_LOGIN_HINT"] = hint
        return try Self.atTerminal([program, "--bus", bus.address] + arguments, environment: environment)
    }

    /// A program at its own terminal, which ends each question with a line break, so that the test sees it.
    static func atTerminal(_ command: [String], environment: [String: String] = ["LC_ALL": "C"]) throws -> ChildProcess
    {
        let terminal = """
            import os, pty, sys
            shown = lambda screen: os.read(screen, 4096).replace(b": ", b": \\n")
            sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], shown)))
            """
        return try ChildProcess("python3", ["-c", terminal] + command, environment: environment)
    }

    func user() async throws -> String? {
        let application = SharedDeviceApplication(
            identifier: "org.example.app",
            bus: bus.bus,
            stateDirectory: "\(directory.path)/apps/app"
        )
        return try await application.getCurrentAccount().current?.username
    }
}

extension ChildProcess {
    /// The address of the page, which a prompt writes to its error output.
    func pageAddress() async throws -> String {
        var address = ""
        try await eventually("the address is written") {
            try #require(isRunning, "\(lines) \(errorText)")
            address = errorText.split(separator: " ").last.map(String.init) ?? ""
            return address.hasPrefix("http://")
        }
        return address
    }
}

/// The prompt's output with `--json`.
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

/// A minimal browser for tests: one request, one response.
enum Page {
    /// Sends a request with curl, an independent implementation.
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
    { try await get(address, "--data-urlencode", "username=\(user)", "--data-urlencode", "password=\(password)") }
}
