import DBus
import NotifyCenter
import NotifyCenterTestKit

/// Starts notifyd, because not every bus starts services. On return it owns its bus name.
///
/// notifyd needs one of the user's inotify instances. The kernel frees those of ended processes with a delay, so this
/// function tries again if there is none.
///
/// - Parameter launcher: The command that runs the program, for example as another user.
func startNotifyd(
    on bus: PrivateBus,
    _ arguments: [String] = [],
    environment: [String: String] = [:],
    program: String = ChildProcess.built("notifyd"),
    by launcher: [String] = []
) async throws -> ChildProcess {
    let connection = try DBusConnection.open(bus.bus)
    let command = launcher + [program] + arguments
    func start() throws -> ChildProcess {
        let variables = bus.environment.merging(environment) { $1 }
        return try ChildProcess(command[0], Array(command.dropFirst()), environment: variables)
    }
    var notifyd = try start()
    try await eventually("notifyd owns its name") {
        if !notifyd.isRunning {
            guard notifyd.errorText.contains("max_user_instances") else { throw ChildProcess.Ended(notifyd) }
            try await Task.sleep(for: .milliseconds(200))
            notifyd = try start()
        }
        return try await connection.owner(of: NotifydProtocol.busName) != nil
    }
    return notifyd
}

extension ChildProcess {
    /// A process ended that should run.
    struct Ended: Error, CustomStringConvertible {
        let description: String

        init(_ process: ChildProcess) {
            description = "it ended with \(process.waitUntilExit()): \(process.errorText) \(process.lines.suffix(3))"
        }
    }
}
