import Basics
import DBus
import Foundation
import MSAL
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization

/// A device for one test: a private bus, the real broker as a process, and the users `ada` and `grace`, whose passwords
/// are “correct horse ada” and “correct horse grace”.
final class MSALTestDevice {
    let bus: PrivateBus
    let directory: TemporaryDirectory
    private(set) var broker: ChildProcess?

    init(starts: Bool = true) async throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("msal-test")
        try configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, "organization": "Contoso"}"#)
        try FileManager.default.copyItem(atPath: try await Users.state.value, toPath: state)
        if starts { try await startBroker() }
    }

    struct Unexpected: Error, CustomStringConvertible {
        let description: String
    }

    private var state: String { "\(directory.path)/state" }
    private var configuration: String { "\(directory.path)/managed.json" }

    func configure(_ json: String) throws {
        try json.write(toFile: configuration, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: configuration)
    }

    func startBroker() async throws {
        broker = try await ChildProcess.service(
            ChildProcess.built("shared-device-broker"),
            ["--state", state, "--configuration", configuration, "--bus", bus.address]
        )
    }

    func killBroker() {
        broker?.kill()
        broker?.waitUntilExit()
    }

    /// An app of this device; the same name is the same app after a restart.
    func application(
        _ name: String = "app",
        configure: (MSALPublicClientApplicationConfig) -> Void = { _ in }
    ) throws -> MSALPublicClientApplication {
        let configuration = MSALPublicClientApplicationConfig(clientId: "org.example.\(name)")
        configure(configuration)
        return try MSALPublicClientApplication(
            configuration: configuration,
            bus: bus.bus,
            stateDirectory: "\(directory.path)/apps/\(name)"
        )
    }

    /// Runs `body` in a process of the app that then ends. On return the bus has no connection of it: until the broker
    /// has seen the end, it assumes that the process may store data.
    func endedApplication<Value>(
        configure: (MSALPublicClientApplicationConfig) -> Void = { _ in },
        _ body: (MSALPublicClientApplication) async throws -> Value
    ) async throws -> Value {
        let observer = try DBusConnection.open(bus.bus)
        let others = try await connections(observer)
        var application: MSALPublicClientApplication? = try application(configure: configure)
        let value = try await body(application!)
        application = nil
        try await eventually("the app's process has ended") { try await connections(observer).isSubset(of: others) }
        return value
    }

    private func connections(_ observer: DBusConnection) async throws -> Set<String> {
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

    var control: Control { Control(device: self) }
}

/// The broker's state with the users. It is created once and copied for each device, because a slow password hash per
/// device would take most of the tests' time.
private enum Users {
    private static let directory = Locked<TemporaryDirectory?>(nil)

    static let state = Task {
        let made = try TemporaryDirectory("msal-users")
        directory.withLock { $0 = made }
        atexit { Users.directory.withLock { $0 = nil } }
        let state = "\(made.path)/state"
        for user in ["ada", "grace"] {
            let add = try ChildProcess(
                ChildProcess.built("shared-device"),
                ["user", "add", user, "--display-name", user.capitalized, "--password-stdin", "--state", state]
            )
            try add.write("correct horse \(user)")
            try add.closeInput()
            guard await add.exitStatus() == 0 else { throw MSALTestDevice.Unexpected(description: add.errorText) }
        }
        return state
    }
}

/// Signs users in and out through an app of the shared device that cleans up at once.
struct Control {
    private let application: SharedDeviceApplication

    init(device: MSALTestDevice) {
        application = SharedDeviceApplication(
            identifier: "org.example.control",
            bus: device.bus.bus,
            stateDirectory: "\(device.directory.path)/apps/control"
        )
    }

    func signIn(_ user: String) async throws {
        try await cleanUp()
        let parameters = InteractiveTokenParameters(scopes: ["orders.read"], loginHint: user) { hint in
            Credentials(username: hint ?? "", password: "correct horse \(user)")
        }
        _ = try await application.acquireToken(with: parameters)
    }

    func signOut() async throws {
        guard let account = try await application.getCurrentAccount().current else {
            throw MSALTestDevice.Unexpected(description: "nobody is signed in")
        }
        try await application.signout(with: account)
        try await cleanUp()
    }

    var current: String? {
        get async throws { try await application.getCurrentAccount().current?.username }
    }

    private func cleanUp() async throws {
        for await change in application.accountChanges {
            return try await application.cleanupDone(change)
        }
    }
}
