import Basics
import DBus
import DeviceConfiguration
import Foundation
import MicrosoftBroker
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization

/// A device for one test: bus, broker, the users `ada` and `grace`, an app in this process, and the bridge as a
/// process.
final class Device: Sendable {
    static let client = "d7b530a4-7680-4c23-a8bf-c52c121d2e87"
    static let scope = "https://graph.microsoft.com/.default"
    static let program = ChildProcess.built("shared-device-microsoft-broker")

    private let device: PromptDevice
    var bus: PrivateBus { device.bus }
    var directory: TemporaryDirectory { device.directory }
    var broker: ChildProcess { device.broker }
    private let policy: String
    private let serving = Locked<ChildProcess?>(nil)
    /// The app through which users sign in.
    let app: SharedDeviceApplication

    init(policy: String = "advisory", microsoftBroker: Bool = true) async throws {
        self.policy = policy
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        device = try await PromptDevice(
            configuration: Self.configuration(policy, microsoftBroker),
            manifests: [
                #"{"id": "org.example.desk", "executable": "\#(program)"}"#,
                Self.manifest(scopes: ["openid", "profile", "orders.read"], replacement: ["openid", "profile"]),
            ]
        )
        app = SharedDeviceApplication(
            identifier: "org.example.desk",
            bus: device.bus.bus,
            stateDirectory: "\(device.directory.path)/desk"
        )
    }

    /// A device whose bridge serves.
    static func serving(_ arguments: [String] = []) async throws -> Device {
        let device = try await Device()
        try await device.serve(arguments)
        return device
    }

    /// The manifest of the bridge.
    ///
    /// - Parameter replacement: the scopes that replace Microsoft's own scope.
    static func manifest(scopes: [String], replacement: [String]) -> String {
        """
        {"id": "\(BrokerContract.application)", "executable": "\(program)", "scopes": \(scopes),
         "microsoftClientIDs": ["\(client)"], "microsoftScopes": {"\(scope)": \(replacement)}}
        """
    }

    func configure(microsoftBroker: Bool) throws {
        try PromptDevice.write(Self.configuration(policy, microsoftBroker), to: "\(directory.path)/managed.json")
    }

    private static func configuration(_ policy: String, _ microsoftBroker: Bool) -> String {
        """
        {"sharedDeviceMode": true, "passwordSignIn": true, "cleanupPolicy": "\(policy)",
         "microsoftBroker": \(microsoftBroker)}
        """
    }

    /// The environment of a desktop session.
    static func environment(_ bus: PrivateBus, _ directory: TemporaryDirectory, display: String) -> [String: String] {
        let path = directory.path
        return [
            "DBUS_SESSION_BUS_ADDRESS": bus.address, "NOTIFY_CENTER_BUS": bus.address, "DISPLAY": display,
            "WAYLAND_DISPLAY": "", "XDG_DATA_HOME": "\(path)/data", "XDG_DATA_DIRS": "\(path)/share",
            "XDG_RUNTIME_DIR": path,
        ]
    }

    var environment: [String: String] { Self.environment(bus, directory, display: "") }

    private var bridgeArguments: [String] {
        ["--configuration", "\(directory.path)/managed.json", "--state", "\(directory.path)/bridge"]
    }

    /// Starts a bridge without waiting until it serves.
    func startBridge() throws -> ChildProcess {
        try ChildProcess(Self.program, bridgeArguments, environment: environment)
    }

    /// Starts the bridge in place of the last one, and waits until it serves.
    func serve(_ arguments: [String] = [], _ more: [String: String] = [:]) async throws {
        let last = serving.withLock { $0 }
        last?.kill()
        _ = await last?.exitStatus()
        let bridge = try await ChildProcess.service(
            Self.program,
            bridgeArguments + arguments,
            environment: environment.merging(more) { $1 }
        )
        serving.withLock { $0 = bridge }
    }

    /// Starts the bridge with a display and a substitute for the program that asks.
    func serve(prompt script: String) async throws {
        try await serve(["--sign-in", directory.writeScript("prompt", script)], ["DISPLAY": ":7"])
    }

    /// Waits until the bridge has written these words.
    func says(_ words: String) async throws {
        try await eventually("the bridge says “\(words)”") {
            serving.withLock { $0 }?.errorText.contains(words) == true
        }
    }

    var isServing: Bool { serving.withLock { $0 }?.isRunning == true }

    /// Signs in through the app. The bridge has no pending cleanup then.
    @discardableResult
    func signIn(_ user: String) async throws -> Account {
        let parameters = InteractiveTokenParameters(scopes: [], loginHint: user) { _ in
            Credentials(username: user, password: "correct horse \(user)")
        }
        return try await app.acquireToken(with: parameters).account
    }

    /// The bridge's progress with the cleanup after a session.
    func cleanup(after session: UInt64) async throws -> CleanupReport.App? {
        let report = try await app.cleanupReport(ofSession: session)
        return report?.apps.first { $0.identifier == BrokerContract.application }
    }

    /// Signs out, and waits until the bridge has cleaned up.
    func signOut(_ account: Account) async throws {
        let session = try await app.signout(with: account).session
        try await eventually("the receipt") { try await cleanup(after: session)?.progress == .finished }
    }

    /// Calls a method as clients do.
    func call(_ method: String, _ request: JSONValue, correlation: String = "c-1") async throws -> JSONValue {
        try await callBridge(bus, method, request.text, correlation: correlation)
    }

    func accounts() async throws -> JSONValue? { try await call("getAccounts", .object([:]))["accounts"] }

    static func parameters(
        account: JSONValue = .null,
        client: String = Device.client,
        scopes: [String] = [Device.scope],
        isBound: Bool = false,
        claims: String = "",
        renewing token: String = ""
    ) -> JSONValue {
        .object([
            "authParameters": .object([
                "account": account, "clientId": .string(client), "requestedScopes": .array(scopes.map { .string($0) }),
                "popParams": isBound ? .object([:]) : .null, "username": .string(""), "decodedClaims": .string(claims),
                "accessTokenToRenew": .string(token),
            ])
        ])
    }
}

/// The message of a client's call.
func bridgeCall(_ method: String, _ text: String, correlation: String) throws -> DBusMessage {
    try DBusMessage.methodCall(
        destination: BrokerContract.busName,
        path: BrokerContract.path,
        interface: "com.microsoft.identity.Broker1",
        member: method,
        arguments: [.string("0.0"), .string(correlation), .string(text)]
    )
}

/// Calls the bridge on a new connection, and returns the response.
func callBridge(
    _ bus: PrivateBus,
    _ method: String,
    _ text: String,
    correlation: String = "c-1"
) async throws -> JSONValue {
    let message = try bridgeCall(method, text, correlation: correlation)
    let answer = try await DBusConnection.open(bus.bus).call(message, timeout: .seconds(60))
    return try JSONValue(parsing: Array((answer.first?.stringValue ?? "").utf8), limits: JSONLimits(size: 1 << 20))
}

extension JSONValue {
    /// The status of a failed response; `nil` if a member that clients need is missing.
    var status: Double? {
        guard let error = self["brokerTokenResponse"]?["error"] ?? self["error"],
            error["subStatus"]?.number == 0, error["errorCode"]?.number == 0, error["tag"]?.number == 0
        else { return nil }
        return error["status"]?.number
    }

    var context: String { (self["brokerTokenResponse"]?["error"] ?? self["error"])?["context"]?.string ?? "" }
}
