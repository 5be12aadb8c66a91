import DBus
import Foundation
import NotifyCenter
import NotifyCenterTestKit

/// notifyd as a process, on a private bus.
final class Daemon: Sendable {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    let process: ChildProcess

    /// Starts a bus and notifyd.
    convenience init(_ options: PrivateBus.Options = .init(), configuration: String = "") async throws {
        try await self.init(on: PrivateBus(options), configuration: configuration)
        // The reply comes after notifyd's first request to all processes, so no client of the test receives that
        // request.
        _ = try await DBusConnection.open(bus.bus).call(NotifydProtocol.call(.getState, [.string("none")]))
    }

    /// Starts notifyd on an existing bus. On return it owns its name.
    ///
    /// - Parameter directory: The directory of an earlier notifyd, with its configuration; `nil` for a new one.
    init(on bus: PrivateBus, directory: TemporaryDirectory? = nil, configuration: String? = nil) async throws {
        let directory = try directory ?? TemporaryDirectory("notifyd")
        (self.bus, self.directory) = (bus, directory)
        let file = "\(directory.path)/notify.conf"
        try configuration?.write(toFile: file, atomically: true, encoding: .utf8)
        process = try await startNotifyd(
            on: bus,
            ["--configuration", file],
            environment: ["XDG_RUNTIME_DIR": directory.path]
        )
    }

    /// Kills notifyd, and starts another one in its place.
    func restarted() async throws -> Daemon {
        process.kill()
        process.waitUntilExit()
        return try await Daemon(on: bus, directory: directory)
    }

    /// Replaces the configuration, and makes notifyd read it.
    func reload(_ configuration: String) throws {
        try configuration.write(toFile: "\(directory.path)/notify.conf", atomically: true, encoding: .utf8)
        process.send(SIGHUP)
    }

    /// Returns the status that a signal makes notifyd write.
    func statusFile(_ signal: Int32) async throws -> String {
        let path = "\(directory.path)/notifyd_\(process.identifier).status"
        try? FileManager.default.removeItem(atPath: path)
        process.send(signal)
        var text = ""
        try await eventually("the status is written") {
            text = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
            return text.hasSuffix("\n")
        }
        return text
    }
}
