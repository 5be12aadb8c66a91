import Basics
import DBus
import DeviceConfiguration
import DeviceStorage
import EmbeddedIdentity
import Foundation
import Identity
import MicrosoftBroker
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice

/// A device for one test: bus, broker, the users `ada` and `grace`, an app in this process, and the bridge as a
/// process.
final class Device: Sendable {
    static let client = "d7b530a4-7680-4c23-a8bf-c52c121d2e87"

    let bus: PrivateBus
    let directory: TemporaryDirectory
    let broker: ChildProcess
    private let policy: String
    /// The app through which users sign in.
    let app: SharedDeviceApplication

    init(policy: String = "advisory", microsoftBroker: Bool = true) async throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory("microsoft-broker")
        self.policy = policy
        let path = directory.path
        try FileManager.default.createDirectory(atPath: "\(path)/apps", withIntermediateDirectories: true)
        try Self.configure(path, policy, microsoftBroker)
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        try Self.write(#"{"id": "org.example.desk", "executable": "\#(program)"}"#, to: "\(path)/apps/desk.json")
        try Self.write(
            """
            {"id": "\(BrokerContract.application)", "executable": "\(ChildProcess.built("shared-device-microsoft-broker"))",
             "scopes": ["openid", "profile", "orders.read"], "microsoftClientIDs": ["\(Self.client)"],
             "microsoftScopes": {"https://graph.microsoft.com/.default": ["openid", "profile"]}}
            """,
            to: "\(path)/apps/microsoft.json"
        )
        let users = try UserDirectory(database: DeviceDatabase(directory: "\(path)/state"), passwordCost: .minimal)
        for user in ["ada", "grace"] {
            try users.add(username: user, displayName: user.capitalized, password: Secret("correct horse \(user)"))
        }
        broker = try await ChildProcess.service(
            ChildProcess.built("shared-device-broker"),
            ["--state", "\(path)/state", "--configuration", "\(path)/managed.json", "--bus", bus.address]
        )
        app = SharedDeviceApplication(identifier: "org.example.desk", bus: bus.bus, stateDirectory: "\(path)/desk")
    }

    func configure(microsoftBroker: Bool) throws { try Self.configure(directory.path, policy, microsoftBroker) }

    private static func configure(_ path: String, _ policy: String, _ microsoftBroker: Bool) throws {
        try write(
            #"{"sharedDeviceMode": true, "passwordSignIn": true, "cleanupPolicy": "\#(policy)", "microsoftBroker": \#(microsoftBroker)}"#,
            to: "\(path)/managed.json"
        )
    }

    static func write(_ text: String, to path: String) throws {
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: path)
    }

    var environment: [String: String] {
        [
            "DBUS_SESSION_BUS_ADDRESS": bus.address, "NOTIFY_CENTER_BUS": bus.address, "DISPLAY": "",
            "WAYLAND_DISPLAY": "", "XDG_DATA_HOME": "\(directory.path)/data",
            "XDG_DATA_DIRS": "\(directory.path)/share",
            "XDG_RUNTIME_DIR": directory.path,
        ]
    }

    private static let program = ChildProcess.built("shared-device-microsoft-broker")
    private var bridgeArguments: [String] {
        ["--configuration", "\(directory.path)/managed.json", "--state", "\(directory.path)/bridge"]
    }

    /// Starts the bridge without waiting until it serves.
    func startBridge() throws -> ChildProcess {
        try ChildProcess(Self.program, bridgeArguments, environment: environment)
    }

    /// Starts the bridge and waits until it serves.
    func bridge(_ arguments: [String] = [], _ more: [String: String] = [:]) async throws -> ChildProcess {
        try await ChildProcess.service(
            Self.program,
            bridgeArguments + arguments,
            environment: environment.merging(more) { $1 }
        )
    }

    /// Signs in through the app. The bridge has no pending cleanup then.
    @discardableResult
    func signIn(_ user: String) async throws -> Account {
        let parameters = InteractiveTokenParameters(scopes: [], loginHint: user) { _ in
            Credentials(username: user, password: "correct horse \(user)")
        }
        return try await app.acquireToken(with: parameters).account
    }

    func hasCleanedUp(after session: UInt64) async throws -> Bool {
        try await eventually {
            let report = try await app.cleanupReport(ofSession: session)
            return report?.apps.first { $0.identifier == BrokerContract.application }?.progress == .finished
        }
    }

    /// Calls a method as clients do.
    func call(_ method: String, _ request: JSONValue, correlation: String = "c-1") async throws -> JSONValue {
        try await call(method, request.text, correlation: correlation)
    }

    func call(_ method: String, _ text: String, correlation: String = "c-1") async throws -> JSONValue {
        let message = try DBusMessage.methodCall(
            destination: BrokerContract.busName,
            path: BrokerContract.path,
            interface: "com.microsoft.identity.Broker1",
            member: method,
            arguments: [.string("0.0"), .string(correlation), .string(text)]
        )
        let answer = try await DBusConnection.open(bus.bus).call(message, timeout: .seconds(60))
        return try JSONValue(
            parsing: Array((answer.first?.stringValue ?? "").utf8),
            limits: JSONLimits(size: 1 << 20)
        )
    }

    static func parameters(
        account: JSONValue = .null,
        client: String = Device.client,
        scopes: [String] = ["https://graph.microsoft.com/.default"],
        isBound: Bool = false,
        claims: String = "",
        renewing token: String = ""
    ) -> JSONValue {
        .object([
            "authParameters": .object([
                "account": account, "clientId": .string(client),
                "requestedScopes": .array(scopes.map { .string($0) }),
                "popParams": isBound ? .object([:]) : .null, "username": .string(""), "decodedClaims": .string(claims),
                "accessTokenToRenew": .string(token),
            ])
        ])
    }
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

/// Waits up to a minute until a condition holds. Checks it once more after the deadline.
func eventually(_ condition: () async throws -> Bool) async throws -> Bool {
    let deadline = ContinuousClock.now + .seconds(60)
    while true {
        let isLast = ContinuousClock.now >= deadline
        if try await condition() { return true }
        if isLast { return false }
        try await Task.sleep(for: .milliseconds(20))
    }
}
