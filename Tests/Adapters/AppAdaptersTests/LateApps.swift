import DBus
import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
@_spi(Extensions) import SharedDeviceTestKit

@testable import AppAdapters

/// A device with an enforced cleanup policy, on a bus that many users reach. It has a tidy app that signs in users, a
/// late app, and a till for tests that need a third. All run as one user other than root.
final class LateApps {
    static let user: uid_t = 65534
    static let desk = "org.example.desk"
    static let late = "org.example.late"

    struct Unexpected: Error, CustomStringConvertible { let description: String }

    let bus: PrivateBus
    let directory: TemporaryDirectory
    private(set) var broker: ChildProcess?
    private var processes: [ChildProcess] = []

    var apps: String { "\(directory.path)/apps" }
    var state: String { "\(directory.path)/broker" }
    var data: String { data(of: "late") }

    init() async throws {
        let policy = "org.notifycenter.SharedDevice1.conf"
        bus = try PrivateBus(.likeSystemBus(policies: [policy], standIns: ["shared-device": "root"]))
        directory = try TemporaryDirectory("late-apps")
        chmod(directory.path, 0o755)
        makeDirectory(apps, mode: 0o755)
        makeDirectory(state)
        // Each test waits for this deadline. The tidy app must meet it even on a busy machine.
        try write(
            #"{"sharedDeviceMode": true, "passwordSignIn": true, "cleanupPolicy": "enforced", "cleanupTimeout": 5}"#,
            to: "managed.json"
        )
        for name in ["desk", "late", "till"] {
            for path in ["\(directory.path)/\(name)", "\(directory.path)/\(name)/data"] {
                makeDirectory(path, owner: Self.user)
            }
            // Each app has its own copy of the program, so that stopping one spares the others.
            try FileManager.default.copyItem(atPath: ChildProcess.built("adapter-probe"), toPath: program(name))
        }
        try enrolApp("desk")
        for user in ["ada", "grace"] { try await addUser(user) }
        try await startBroker()
    }

    deinit {
        for process in processes + [broker].compactMap({ $0 }) {
            process.kill()
            process.waitUntilExit()
        }
    }

    func data(of name: String) -> String { "\(directory.path)/\(name)/data" }

    func program(_ name: String) -> String { "\(directory.path)/\(name)-program" }

    func enrol(_ name: String, _ members: String) throws {
        try write(#"{"id": "org.example.\#(name)", "user": \#(Self.user), \#(members)}"#, to: "apps/\(name).json")
    }

    /// Enrols an app that cleans up itself.
    func enrolApp(_ name: String) throws {
        let cleanup = #"{"by": "app", "delete": ["\#(data(of: name))"]}"#
        try enrol(name, #""executable": "\#(program(name))", "cleanup": \#(cleanup)"#)
    }

    private func write(_ text: String, to name: String) throws {
        let path = "\(directory.path)/\(name)"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        chmod(path, 0o644)
    }

    private func addUser(_ name: String) async throws {
        let program = ChildProcess.built("shared-device")
        let command = try ChildProcess(program, ["user", "add", name, "--password-stdin", "--state", state])
        try command.write("correct horse \(name)")
        try command.closeInput()
        guard await command.exitStatus() == 0 else { throw Unexpected(description: command.errorText) }
    }

    func startBroker() async throws {
        broker = try await ChildProcess.service(
            ChildProcess.built("shared-device-broker"),
            [
                "--state", state, "--configuration", "\(directory.path)/managed.json", "--bus", bus.address,
                "--log-level", "warning",
            ]
        )
    }

    func killBroker() {
        broker?.kill()
        broker?.waitUntilExit()
    }

    func app(_ name: String, _ kind: String) async throws -> ChildProcess {
        let process = try ChildProcess(
            as: Self.user,
            program(name),
            ["app", bus.address, "\(directory.path)/\(name)", "org.example.\(name)", kind]
        )
        processes.append(process)
        try await process.line { $0 == "ready" }
        return process
    }

    private func start(_ program: String, _ arguments: [String]) throws -> ChildProcess {
        let process = try ChildProcess(ChildProcess.built(program), arguments)
        processes.append(process)
        return process
    }

    /// The enforcer as it is installed.
    func enforcer() throws -> ChildProcess {
        let options = ["--bus", bus.address, "--apps", apps, "--state", "\(directory.path)/marks"]
        return try start("shared-device-cleanup", ["enforce"] + options)
    }

    /// An enforcer that sends itself a signal at a checkpoint.
    func enforcer(at point: Enforcer.Checkpoint, _ signal: Int32) async throws -> ChildProcess {
        let process = try start("adapter-probe", ["enforce", bus.address, apps, "\(point)", "\(signal)"])
        try await process.line { $0 == "ready" }
        return process
    }

    /// The late app's adapter, run by root.
    func adapter() throws -> ChildProcess {
        let options = ["--bus", bus.address, "--apps", apps, "--state", "\(directory.path)/marks/\(Self.late)"]
        return try start("shared-device-cleanup", [Self.late] + options)
    }

    func signOut() async throws {
        _ = try await BrokerAdministration(bus: bus.bus).call(.signOutAnyone, ["reason": .string("test")])
    }

    /// Makes the desk sign in a user, with retries.
    func signIn(_ name: String, at desk: ChildProcess) async throws {
        try await eventually("\(name) signs in") {
            let before = desk.lines.count
            try desk.write(name)
            try await eventually("the desk responds", within: .seconds(60)) {
                desk.lines.dropFirst(before).contains { $0 == "signed in \(name)" || $0.hasPrefix("refused \(name)") }
            }
            return desk.lines.dropFirst(before).contains("signed in \(name)")
        }
    }

    func status() async throws -> [String: Any] {
        let command = try ChildProcess(
            ChildProcess.built("shared-device"),
            ["status", "--json", "--state", state, "--bus", bus.address]
        )
        guard await command.exitStatus() == 0 else { throw Unexpected(description: command.errorText) }
        let output = Data(command.lines.joined(separator: "\n").utf8)
        return try JSONSerialization.jsonObject(with: output) as? [String: Any] ?? [:]
    }

    func progress(of name: String = "late") async throws -> String? {
        let round = try await status()["round"] as? [String: Any]
        let apps = round?["apps"] as? [[String: Any]]
        return apps?.first { $0["identifier"] as? String == "org.example.\(name)" }?["progress"] as? String
    }

    func isClean() throws -> Bool {
        try ByteSearch(["secret of ada", "secret of somebody"]).run(under: data).findings.isEmpty
    }
}
