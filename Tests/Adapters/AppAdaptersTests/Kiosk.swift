import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

/// A device with the manifest of a kiosk, and the adapter of the kiosk.
struct Kiosk {
    static let identifier = "org.example.kiosk"
    /// The kiosk's user in tests that run as root.
    static let user: uid_t = 65534

    let device: TestDevice
    let directory: TemporaryDirectory
    var data: String { "\(directory.path)/data" }
    /// A second directory for data.
    var other: String { "\(directory.path)/other" }
    var manifests: String { "\(device.directory)/configuration/apps" }
    private var state: String { "\(device.directory)/broker" }

    /// - Parameter owner: the owner of the data; `nil` for the user of this process.
    init(owner: uid_t? = nil) async throws {
        device = try await TestDevice(cleanup: .strict)
        directory = try TemporaryDirectory("kiosk")
        // The kiosk's user can traverse the directory and owns only its data.
        succeed(chmod(directory.path, 0o755))
        for path in [data, other] { makeDirectory(path, owner: owner) }
    }

    // MARK: Manifest and adapter

    /// The cleanup of a command that only waits.
    static func cleanup(deleting path: String) -> String {
        #"{"command": ["/bin/sleep", "1000"], "delete": ["\#(path)"]}"#
    }

    /// The cleanup of a shell command that always runs. It deletes the data.
    func cleanup(running script: String) -> String {
        #"{"command": ["/bin/sh", "-c", "\#(script)"], "delete": ["\#(data)"], "start": "always"}"#
    }

    /// - Parameter user: the user's number or quoted name.
    func enrol(_ cleanup: String, user: String = "\(Kiosk.user)") throws {
        let program = ChildProcess.built("shared-device-cleanup")
        let text =
            #"{"id": "\#(Self.identifier)", "user": \#(user), "executable": "\#(program)", "cleanup": \#(cleanup)}"#
        try text.write(toFile: "\(manifests)/kiosk.json", atomically: true, encoding: .utf8)
        succeed(chmod("\(manifests)/kiosk.json", 0o644))
    }

    /// Enrols a command that writes its process number into the data.
    func enrolNumbered() throws { try enrol(cleanup(running: "echo $$ >\(data)/process; exec sleep 1000")) }

    /// Waits for the process number that the command writes, and returns it.
    ///
    /// - Parameter former: the number of an earlier run, which does not count.
    func process(otherThan former: pid_t? = nil) async throws -> pid_t {
        try await eventually("the command runs", within: .seconds(60)) {
            processNumber(in: data).map { $0 != former } ?? false
        }
        return try #require(processNumber(in: data))
    }

    func adapter() throws -> ChildProcess {
        try ChildProcess(
            ChildProcess.built("shared-device-cleanup"),
            [Self.identifier, "--bus", device.bus.address, "--apps", manifests, "--state", "\(directory.path)/state"]
        )
    }

    // MARK: The round

    /// The app's entry in the last round.
    func part() async throws -> CleanupReport.App? {
        let report = try await device.application("org.example.control").cleanupReport()
        return report?.apps.first { $0.identifier == Self.identifier }
    }

    /// Ends a session in which the kiosk holds data, as soon as the broker has read the manifest.
    func endSession() async throws {
        try await eventually("the broker has read the manifest", within: .seconds(60)) {
            try await device.signIn("ada")
            try await device.beginSignOut(copies: false)
            return try await part() != nil
        }
    }

    func owes() async throws -> Bool { try await device.application("org.example.control").currentRoundOwes() }

    func waitUntilFinished() async throws {
        try await eventually("the cleanup is finished", within: .seconds(60)) {
            try await part()?.progress == .finished
        }
    }

    func status() async throws -> String {
        try await administration(["status", "--state", state, "--bus", device.bus.address])
    }

    func log() async throws -> String { try await administration(["log", "--state", state]) }

    private func administration(_ arguments: [String]) async throws -> String {
        let command = try ChildProcess(ChildProcess.built("shared-device"), arguments)
        #expect(await command.exitStatus() == 0, "\(command.errorText)")
        return command.lines.joined(separator: "\n")
    }
}
