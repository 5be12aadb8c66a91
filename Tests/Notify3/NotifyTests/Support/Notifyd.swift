import DBus
import NotifyCenter
import NotifyCenterTestKit

/// Starts notifyd, because not every bus starts services. On return it owns its bus name.
func startNotifyd(on bus: PrivateBus) async throws -> ChildProcess {
    let notifyd = try ChildProcess(ChildProcess.built("notifyd"), environment: bus.environment)
    let connection = try DBusConnection.open(bus.bus)
    try await eventually("notifyd runs") { try await connection.owner(of: NotifydProtocol.busName) != nil }
    return notifyd
}
