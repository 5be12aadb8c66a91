import DBusTransport
import NotifyCenter
import NotifyCenterTestKit
import SharedDevice
import Synchronization

/// The kit's own app on the device, by which it signs people in and out. It holds nothing, reports that at once, and is left out of every
/// report.
final class ControlApp: Sendable {
    static let identifier = "org.notifycenter.test-kit.control"

    let application: SharedDeviceApplication
    private let bus: Bus
    private let following: Task<Void, Never>

    init(on host: DeviceHost) {
        bus = host.bus.bus
        let application = SharedDeviceApplication(
            identifier: Self.identifier,
            bus: host.bus.bus,
            stateDirectory: "\(host.directory)/control"
        )
        self.application = application
        following = Task {
            for await change in application.accountChanges {
                // What fails is handed out again.
                try? await application.cleanupDone(change)
            }
        }
    }

    deinit { following.cancel() }

    /// The apps that have a process on the bus, and those that hold data of the current session, as the broker sees them.
    ///
    /// - Throws: ``DBusError`` where the broker does not answer.
    func connectedApps() async throws -> (running: Set<String>, holding: Set<String>) {
        let message = try DBusMessage.methodCall(
            destination: BrokerProtocol.busName,
            path: BrokerProtocol.path,
            interface: BrokerProtocol.interface,
            member: BrokerProtocol.Method.getRunningApps.rawValue,
            arguments: [.fields([:])]
        )
        let answer = try await DBusConnection.open(bus).call(message, timeout: .seconds(10)).first?.fieldsValue ?? [:]
        return (Set(answer["apps"]?.stringsValue ?? []), Set(answer["holding"]?.stringsValue ?? []))
    }

    /// Has the bus start a service, as the broker does for an app that owes a cleanup.
    func activate(_ name: String) async throws {
        let message = try DBusMessage.methodCall(
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "StartServiceByName",
            arguments: [.string(name), .uint32(0)]
        )
        _ = try await DBusConnection.open(bus).call(message, timeout: .seconds(30))
    }
}
