import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceTestKit
import Testing

@Suite("An adapter that is killed")
struct KilledAdapterTests {
    private static let points = [
        "stopping", "stopped", "deleting(SharedDevice.DeclaredPath.Checkpoint.opened)",
        "deleting(SharedDevice.DeclaredPath.Checkpoint.buried)",
        "deleting(SharedDevice.DeclaredPath.Checkpoint.unlinked)",
        "deleting(SharedDevice.DeclaredPath.Checkpoint.swept)", "deleted", "verified",
    ]

    private func adapter(_ device: TestDevice, _ directory: String, _ point: String) throws -> ChildProcess {
        try ChildProcess(ChildProcess.built("adapter-probe"), ["adapter", device.bus.address, directory, point])
    }

    @Test("a killed adapter's cleanup is done by the next one before the program starts", arguments: points)
    func killed(point: String) async throws {
        let device = try await TestDevice(cleanup: .strict)
        let directory = try TemporaryDirectory("killed-adapter")
        let data = "\(directory.path)/data"
        let first = try adapter(device, directory.path, point)
        try await first.line { $0 == "started" }
        try await device.signIn("ada")
        try await first.line { $0.hasPrefix("shown open") }
        for name in ["secret", "profile/secret"] { try writeFile("ada's secret", to: "\(data)/\(name)") }
        try await device.beginSignOut(copies: false)
        #expect(await first.exitStatus(within: .seconds(60)) == 128 + SIGKILL, "\(first.lines) \(first.errorText)")
        #expect(try await device.application("org.example.control").currentRoundOwes())
        let second = try adapter(device, directory.path, "never")
        try await second.line { $0 == "started" }
        try await eventually("no app owes a cleanup", within: .seconds(60)) {
            try await !device.application("org.example.control").currentRoundOwes()
        }
        #expect(try ByteSearch(["ada's secret"]).run(under: data).findings.isEmpty)
        let lines = second.lines
        #expect(lines.filter { $0 == "started" }.count == 1)
        let cleaned = try #require(lines.firstIndex { $0.hasPrefix("log stopped") })
        let started = try #require(lines.firstIndex(of: "started"))
        #expect(cleaned < started)
        try await eventually("the command has said which process it is", within: .seconds(60)) {
            processNumber(in: data) != nil
        }
        second.kill()
        await _ = second.exitStatus()
        kill(try #require(processNumber(in: data)), SIGKILL)
    }
}
