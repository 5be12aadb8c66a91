import FoundationEssentials
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

/// Programs as an ordinary user runs them: root reads all memory, and here it is without its rights.
private struct OrdinaryUser {
    let bus: PrivateBus
    let directory: TemporaryDirectory

    init() throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("private-memory")
        try FileManager.default.createDirectory(atPath: directory.path + "/apps", withIntermediateDirectories: false)
        let keys = #""sharedDeviceMode": true, "requiresEnrolment": true, "microsoftBroker": true"#
        try write("{\(keys)}", to: "managed-configuration.json")
    }

    func write(_ text: String, to name: String) throws {
        try text.write(toFile: "\(directory.path)/\(name)", atomically: true, encoding: .utf8)
    }

    func start(_ program: String, _ arguments: [String]) throws -> ChildProcess {
        // setpriv becomes the program, and keeps its number.
        let rights = geteuid() == 0 ? ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] : []
        let words = rights + [program] + arguments
        return try ChildProcess(
            words[0],
            Array(words.dropFirst()),
            environment: [
                "XDG_RUNTIME_DIR": directory.path, "DISPLAY": "", "WAYLAND_DISPLAY": "",
                "DBUS_SESSION_BUS_ADDRESS": bus.address, "XDG_DATA_HOME": directory.path + "/data",
                "XDG_DATA_DIRS": directory.path + "/share",
            ]
        )
    }

    func service(_ program: String, _ more: [String] = []) async throws -> ChildProcess {
        let configuration = directory.path + "/managed-configuration.json"
        let arguments = ["--bus", bus.address, "--configuration", configuration]
        let process = try start(ChildProcess.built(program), arguments + more)
        _ = try await process.line { $0 == "ready" }
        return process
    }

    /// Whether a program of the same user reads this file of the process.
    func reads(_ file: String, of process: ChildProcess) async throws -> Bool {
        let reader = try start("cat", ["/proc/\(process.identifier)/\(file)"])
        let status = await reader.exitStatus()
        #expect(status == 0 || reader.errorText.contains("ermission denied"), "\(reader.errorText)")
        return status == 0
    }
}

@Suite("Programs that see passwords and tokens keep their memory to themselves")
struct PrivateMemoryTests {
    /// What shows variables, and where memory is: who may read these may read all of it.
    private static let files = ["environ", "maps"]

    @Test("no other program of the same user looks into the broker, what speaks to the provider, or Microsoft's bridge")
    func services() async throws {
        let user = try OrdinaryUser()
        let others = try user.start("sleep", ["1000"])
        try await eventually("another program is read") { try await user.reads("environ", of: others) }
        let broker = try await user.service("shared-device-broker", ["--state", user.directory.path + "/state"])
        let identity = try await user.service("shared-device-identity")
        let bridge = try await user.service(
            "shared-device-microsoft-broker",
            ["--state", user.directory.path + "/bridge"]
        )
        for file in Self.files {
            #expect(try await user.reads(file, of: others), "\(file)")
            #expect(try await !user.reads(file, of: broker), "\(file)")
            #expect(try await !user.reads(file, of: identity), "\(file)")
            #expect(try await !user.reads(file, of: bridge), "\(file)")
        }
    }

    @Test(
        "nor into the prompt, from before it asks for a password; and a broker of the same user knows it by its manifest"
    )
    func prompt() async throws {
        let user = try OrdinaryUser()
        let program = ChildProcess.built("shared-device-sign-in")
        try user.write(
            #"{"id": "\#(BrokerProtocol.promptIdentifier)", "executable": "\#(program)"}"#,
            to: "apps/sign-in.json"
        )
        let broker = try await user.service("shared-device-broker", ["--state", user.directory.path + "/state"])
        let prompt = try user.start(program, ["--bus", user.bus.address, "--page", "--browser", "none"])
        try await eventually("the page's address; it says \(prompt.errorText)") {
            try #require(prompt.isRunning, "\(prompt.errorText)")
            return prompt.errorText.contains("http://")
        }
        for file in Self.files { #expect(try await !user.reads(file, of: prompt), "\(file)") }
        prompt.send(SIGTERM)
        #expect(await prompt.exitStatus() == 1)
        withExtendedLifetime(broker) {}
    }
}
