import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

/// A device with a manifest of the kiosk, and the program that serves it.
struct Kiosk {
    static let identifier = "org.example.kiosk"

    let device: TestDevice
    let directory: TemporaryDirectory
    var data: String { "\(directory.path)/data" }
    var manifests: String { "\(device.directory)/configuration/apps" }
    private var state: String { "\(device.directory)/broker" }

    init() async throws {
        device = try await TestDevice(cleanup: .strict)
        directory = try TemporaryDirectory("kiosk")
        // The kiosk's user can traverse the directory and owns only its data.
        #expect(chmod(directory.path, 0o755) == 0 && mkdir("\(directory.path)/data", 0o700) == 0)
    }

    func enrol(_ cleanup: String, user: UInt32) throws { try enrol(cleanup, user: "\(user)", quoted: false) }

    func enrol(_ cleanup: String, user: String, quoted: Bool = true) throws {
        let user = quoted ? "\"\(user)\"" : user
        let program = ChildProcess.built("shared-device-cleanup")
        let text =
            #"{"id": "\#(Self.identifier)", "user": \#(user), "executable": "\#(program)", "cleanup": \#(cleanup)}"#
        try text.write(toFile: "\(manifests)/kiosk.json", atomically: true, encoding: .utf8)
        succeed(chmod("\(manifests)/kiosk.json", 0o644))
    }

    func adapter(_ environment: [String: String] = [:]) throws -> ChildProcess {
        try ChildProcess(
            ChildProcess.built("shared-device-cleanup"),
            [Self.identifier, "--bus", device.bus.address, "--apps", manifests, "--state", "\(directory.path)/state"],
            environment: environment
        )
    }

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
