import DBusTransport
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import SharedDevice
import Synchronization

/// An app of a test's device: how it is started, and where its data is.
///
/// Each app gets directories of its own, which its environment names: `XDG_DATA_HOME`, `XDG_STATE_HOME`, `XDG_CACHE_HOME`,
/// `XDG_CONFIG_HOME` and `TMPDIR`. What an app leaves there is searched. In arguments, environment and data directories these stand for
/// themselves: `{bus}` the bus's address, `{data}` and `{state}` the directories of `XDG_DATA_HOME` and `XDG_STATE_HOME`, `{home}` the
/// directory that all of the app's directories are in.
public struct TestApp: Sendable, Hashable, Codable {
    /// The identifier that the app gives `SharedDeviceApplication`.
    public var identifier: String
    /// The program: a path, or a name to be found beside the running program, in `SHARED_DEVICE_PROGRAMS` or in `PATH`.
    public var executable: String
    /// What follows the program on its command line.
    public var arguments: [String]
    /// Variables beyond those of the test's process.
    public var environment: [String: String]
    /// Where it has data beside its own directories. They are searched and, at a sign-out, copied; so not the whole disk.
    public var dataDirectories: [String]
    /// The bus name by which the bus can start the app; `nil` where it cannot.
    public var busName: String?
    /// Whether the device has a manifest that names the program. `false` for a program that starts another in its place, which would then
    /// not be the app; a script has none in any case, because its interpreter is the program.
    public var isEnrolled: Bool
    /// Whether the app is started with the device; otherwise ``DeviceApp/start()`` does.
    public var startsWithDevice: Bool

    /// An app; see the properties.
    public init(
        _ identifier: String,
        executable: String,
        arguments: [String] = [],
        environment: [String: String] = [:],
        dataDirectories: [String] = [],
        busName: String? = nil,
        isEnrolled: Bool = true,
        startsWithDevice: Bool = true
    ) {
        self.identifier = identifier
        self.executable = executable
        self.arguments = arguments
        self.environment = environment
        self.dataDirectories = dataDirectories
        self.busName = busName
        self.isEnrolled = isEnrolled
        self.startsWithDevice = startsWithDevice
    }

    /// Whether the broker's ledger calls this app so: by its identifier, and one that has no manifest with its program behind it.
    static func isNamed(_ name: String, _ identifier: String) -> Bool {
        name == identifier || name.hasPrefix("\(identifier) (")
    }

    /// The path of a program that the same package builds: it is beside the running test program.
    public static func built(_ name: String) -> String { ChildProcess.built(name) }
}

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
