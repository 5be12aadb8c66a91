import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit

/// notifyd as a process, on a private bus.
final class Daemon: Sendable {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    let process: ChildProcess

    /// Starts notifyd. On return it owns its name.
    init(_ options: PrivateBus.Options = .init(), configuration: String = "") async throws {
        bus = try PrivateBus(options)
        directory = try TemporaryDirectory("notifyd")
        let file = "\(directory.path)/notify.conf"
        try configuration.write(toFile: file, atomically: true, encoding: .utf8)
        process = try Self.start(bus, directory, file)
        try await isServing()
        // The reply comes after notifyd's first request to all processes, so no client of the test receives that
        // request.
        _ = try await DBusConnection.open(bus.bus).call(NotifydProtocol.call(.getState, [.string("none")]))
    }

    /// Starts notifyd on an existing bus.
    init(on bus: PrivateBus, directory: TemporaryDirectory) async throws {
        (self.bus, self.directory) = (bus, directory)
        process = try Self.start(bus, directory, "\(directory.path)/notify.conf")
        try await isServing()
    }

    private static func start(_ bus: PrivateBus, _ directory: TemporaryDirectory, _ file: String) throws -> ChildProcess
    {
        try ChildProcess(
            ChildProcess.built("notifyd"),
            ["--configuration", file],
            environment: bus.environment.merging(["XDG_RUNTIME_DIR": directory.path]) { $1 }
        )
    }

    private func isServing() async throws {
        let connection = try DBusConnection.open(bus.bus)
        try await eventually("notifyd owns its name") {
            guard process.isRunning else { throw ChildProcess.Ended(process) }
            return try await connection.owner(of: NotifydProtocol.busName) != nil
        }
    }

    func configure(_ text: String) throws {
        try text.write(toFile: "\(directory.path)/notify.conf", atomically: true, encoding: .utf8)
    }

    /// Returns the status that a signal makes notifyd write.
    func statusFile(_ signal: Int32) async throws -> String {
        let path = "\(directory.path)/notifyd_\(process.identifier).status"
        try? FileManager.default.removeItem(atPath: path)
        process.send(signal)
        try await eventually("the status is written") { try contents(path)?.hasSuffix("\n") == true }
        return try contents(path) ?? ""
    }

    private func contents(_ path: String) throws -> String? { try? String(contentsOfFile: path, encoding: .utf8) }
}
