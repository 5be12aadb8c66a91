import Basics
import DBus
import DeviceStorage
import EmbeddedIdentity
import Foundation
import Identity
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker
import Synchronization
import Testing

/// A device for one test: a private bus, the real broker as a process, and the users `ada` and `grace`, whose passwords
/// are “correct horse ada” and “correct horse grace”.
final class DeviceOnPrivateBus {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    private(set) var broker: ChildProcess?
    var brokerArguments: [String] = []
    /// A command that starts the broker, for instance `env` with variables.
    var brokerCommand: [String] = []

    /// - Parameter configuration: keys in addition to `sharedDeviceMode` and `passwordSignIn`.
    init(
        starts: Bool = true,
        configuration: String = #""organization": "Contoso""#,
        bus: PrivateBus? = nil
    ) async throws {
        self.bus = try bus ?? PrivateBus()
        directory = try TemporaryDirectory("shared-device-test")
        try configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, \#(configuration)}"#)
        for name in Self.ownApplications { try enrol("org.example.\(name)", Self.program) }
        // Cheap hashes, because these tests are about sessions and sign in hundreds of times. `add` makes the command
        // create real hashes.
        let users = try UserDirectory(database: DeviceDatabase(directory: state), passwordCost: .minimal)
        for user in ["ada", "grace"] {
            try users.add(username: user, displayName: user.capitalized, password: Secret("correct horse \(user)"))
        }
        if starts { try await startBroker() }
    }

    static let strict = #""cleanupPolicy": "strict", "requiresEnrolment": false"#
    private static let ownApplications = ["app", "control", "desk", "holder", "one", "other", "waiting"]
    private static var program: String {
        (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
    }

    /// Writes the app's manifest. Call it before the broker starts; a running broker notices it a moment later.
    func enrol(_ identifier: String, _ program: String, more: String = "") throws {
        let manifests = "\(directory.path)/apps"
        try FileManager.default.createDirectory(atPath: manifests, withIntermediateDirectories: true)
        try #"{"id": "\#(identifier)", "executable": "\#(program)"\#(more)}"#
            .write(toFile: "\(manifests)/\(identifier).json", atomically: true, encoding: .utf8)
    }

    struct Unexpected: Error, CustomStringConvertible {
        let description: String
    }

    var state: String { "\(directory.path)/state" }
    var configuration: String { "\(directory.path)/managed.json" }

    func configure(_ json: String) throws {
        try json.write(toFile: configuration, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: configuration)
    }

    func startBroker() async throws {
        let program = brokerCommand + [ChildProcess.built("shared-device-broker")]
        broker = try await ChildProcess.service(
            program[0],
            program.dropFirst() + ["--state", state, "--configuration", configuration, "--bus", bus.address]
                + brokerArguments
        )
    }

    func killBroker() {
        broker?.kill()
        broker?.waitUntilExit()
    }

    /// Kills the broker, as a crash would, and starts it again.
    func restartBroker() async throws {
        killBroker()
        try await startBroker()
    }

    /// An app of this device; the same name is the same app after a restart.
    func application(
        _ name: String = "app",
        identifier: String? = nil,
        busName: String? = nil
    ) -> SharedDeviceApplication {
        SharedDeviceApplication(
            identifier: identifier ?? "org.example.\(name)",
            bus: bus.bus,
            busName: busName,
            stateDirectory: "\(directory.path)/apps/\(name)"
        )
    }

    func database() throws -> SQLiteConnection {
        // The broker may be writing.
        try SQLiteConnection(path: "\(state)/\(DeviceDatabase.fileName)", busyTimeout: .seconds(60))
    }

    /// Whether the broker sees a process of the app on the bus.
    func isRunning(_ identifier: String) async throws -> Bool {
        let answer = try await BrokerAdministration(bus: bus.bus).call(.getRunningApps)
        return answer["apps"]?.stringsValue?.contains(identifier) == true
    }

    /// The unique names of all connections to the bus.
    func connections(_ observer: DBusConnection) async throws -> Set<String> {
        let names = try await observer.call(
            .methodCall(
                destination: "org.freedesktop.DBus",
                path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus",
                member: "ListNames"
            )
        )
        return Set(names.first?.stringsValue?.filter { $0.hasPrefix(":") } ?? [])
    }
}

extension DBusConnection {
    /// Calls a method of the broker's object.
    func callBroker(
        _ interface: String,
        _ member: String,
        _ arguments: [DBusValue] = []
    ) async throws(DBusError) -> [DBusValue] {
        try await call(
            try DBusMessage.methodCall(
                destination: BrokerProtocol.busName,
                path: BrokerProtocol.path,
                interface: interface,
                member: member,
                arguments: arguments
            )
        )
    }
}

extension SharedDeviceApplication {
    @discardableResult
    func signIn(_ user: String, password: String? = nil) async throws(SharedDeviceError) -> TokenResult {
        let parameters = InteractiveTokenParameters(scopes: ["orders.read"], loginHint: user) { hint in
            Credentials(username: hint ?? "", password: password ?? "correct horse \(user)")
        }
        return try await acquireToken(with: parameters)
    }

    func signOutCurrent() async throws {
        guard let account = try await getCurrentAccount().current else { return }
        try await signout(with: account)
    }
}

func code(of body: () async throws -> Void) async -> SharedDeviceError.Code? {
    do {
        try await body()
        return nil
    } catch {
        return (error as? SharedDeviceError)?.code
    }
}

/// An ordered list of events that a test shares with its helpers.
final class Log: Sendable {
    private let entries = Locked<[String]>([])

    var lines: [String] { entries.withLock { $0 } }

    func add(_ line: String) { entries.withLock { $0.append(line) } }
}

extension Trait where Self == ConditionTrait {
    static var needsRoot: Self { .enabled(if: geteuid() == 0, "only root can be several users") }
    static var needsActivation: Self {
        .enabled(if: PrivateBus.Daemon.chosen == .daemon, "dbus-broker starts nothing without systemd")
    }
}
