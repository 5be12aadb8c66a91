import Basics
import DBus
import FoundationEssentials
import NotifyCenter
import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization

/// An app of a test device: how it is started, and where its data is.
///
/// Each app gets its own directories, which its environment names: `XDG_DATA_HOME`, `XDG_STATE_HOME`, `XDG_CACHE_HOME`,
/// `XDG_CONFIG_HOME` and `TMPDIR`. Searches cover them.
///
/// Arguments, environment and data directories may contain placeholders: `{bus}` is the bus's address, `{data}` and
/// `{state}` are the directories of `XDG_DATA_HOME` and `XDG_STATE_HOME`, `{home}` is the parent of the app's own
/// directories, and `{programs}` is the directory of `shared-device`.
public struct TestApp: Sendable, Hashable, Codable {
    /// The identifier that the app passes to `SharedDeviceApplication`.
    public var identifier: String
    /// The program: a path, or a name. The kit looks a name up in the device's `programs`, in the directory that
    /// `SHARED_DEVICE_PROGRAMS` names, in the directory of the running program and in `PATH`, in this order.
    public var executable: String
    /// The arguments on the program's command line.
    public var arguments: [String]
    /// Environment variables in addition to those of the test's process.
    public var environment: [String: String]
    /// Directories with data of the app outside its own directories. Searches cover them, and each sign-out copies
    /// them, so keep them small.
    public var dataDirectories: [String]
    /// The bus name by which the bus can start the app; `nil` if it cannot.
    public var busName: String?
    /// Whether the device has a manifest that names the program. Choose `false` for a program that executes a different
    /// program: only the named one is enrolled. A script never has a manifest, because its program is the interpreter.
    public var isEnrolled: Bool
    /// The users whom the app is for, according to its manifest; `nil` means all.
    public var allowedUsers: AllowedPeople?
    /// Whether the app is started with the device. Otherwise ``DeviceApp/start()`` starts it.
    public var startsWithDevice: Bool

    /// Creates an app; see the properties.
    public init(
        _ identifier: String,
        executable: String,
        arguments: [String] = [],
        environment: [String: String] = [:],
        dataDirectories: [String] = [],
        busName: String? = nil,
        isEnrolled: Bool = true,
        allowedUsers: AllowedPeople? = nil,
        startsWithDevice: Bool = true
    ) {
        (self.identifier, self.executable, self.arguments) = (identifier, executable, arguments)
        (self.environment, self.dataDirectories, self.busName) = (environment, dataDirectories, busName)
        (self.isEnrolled, self.allowedUsers, self.startsWithDevice) = (isEnrolled, allowedUsers, startsWithDevice)
    }

    /// Whether this is the app's name in the broker's ledger, which contains the program if there is no manifest.
    static func isNamed(_ name: String, _ identifier: String) -> Bool {
        name == identifier || name.hasPrefix("\(identifier) (")
    }

    /// The path of a program of the same package, in the directory of the running test program.
    public static func built(_ name: String) -> String { ChildProcess.built(name) }
}

/// The users whom a device or an app is for: `allowedUsers` of the managed configuration or of a manifest. A user whom
/// one entry names is allowed.
public struct AllowedPeople: Sendable, Hashable, Codable {
    /// The names of users.
    public var users: [String]
    /// The names of groups.
    public var groups: [String]

    /// Creates a rule; see the properties.
    public init(users: [String] = [], groups: [String] = []) { (self.users, self.groups) = (users, groups) }

    /// - Parameter members: the users of each group.
    func allows(_ user: String, _ members: [String: [String]]) -> Bool {
        users.contains(user) || groups.contains { members[$0]?.contains(user) == true }
    }

    var json: JSONValue {
        let members = [("users", users), ("groups", groups)].filter { !$0.1.isEmpty }
        return .object(Dictionary(uniqueKeysWithValues: members.map { ($0, .array($1.map { .string($0) })) }))
    }
}

/// The kit's own app, which signs users in and out. It holds no data, says so at once, and is in no report.
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
                // After a failure the change is returned again.
                try? await application.cleanupDone(change)
            }
        }
    }

    deinit { following.cancel() }

    /// Returns the apps that the broker sees on the bus, and the apps that hold data of the current session.
    ///
    /// - Throws: ``DBusError`` if the broker does not respond.
    func connectedApps() async throws -> (running: Set<String>, holding: Set<String>) {
        let answer = try await BrokerAdministration(bus: bus).call(.getRunningApps, timeout: .seconds(10))
        return (Set(answer["apps"]?.stringsValue ?? []), Set(answer["holding"]?.stringsValue ?? []))
    }

    /// Makes the bus start a service, as the broker does for an app with a pending cleanup.
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
