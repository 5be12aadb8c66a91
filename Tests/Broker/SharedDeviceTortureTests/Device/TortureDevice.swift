import DBusTransport
import DeviceStorage
import EmbeddedIdentity
import Foundation
import Identity
import NotifyCenter
import NotifyCenterTestKit
import SharedDeviceBroker

@testable import SharedDevice

/// A device to be tortured: a bus, the broker and its apps, each a process.
final class TortureDevice {
    let apps: [AppProcess]
    let truth: TruthReader
    /// Each user's account, as apps name it.
    let accounts: [String: String]
    private(set) var isStrict = false
    /// The device's epoch when it last came to rest: all sessions up to it are over, and nothing is left of them.
    var restEpoch: UInt64 = 0
    private let bus: PrivateBus
    private let directory: TemporaryDirectory
    private let administrator: DBusConnection
    private var broker: ChildProcess?

    /// - Parameter mutant: what the apps do wrong.
    init(mutant: String? = nil) async throws {
        let bus = try PrivateBus()
        let directory = try TemporaryDirectory("torture")
        self.bus = bus
        self.directory = directory
        apps = (0..<Schedule.appCount).map {
            AppProcess(number: $0, in: directory.path, bus: bus.address, mutant: mutant)
        }
        let database = try DeviceDatabase(directory: Self.state(directory))
        // Hashes that cost nothing: it is not the passwords that are tested.
        let users = UserDirectory(database: database, passwordCost: .minimal)
        accounts = try Schedule.users.reduce(into: [:]) { accounts, user in
            accounts[user] = try users.add(username: user, password: Secret("correct horse \(user)")).account.identifier
        }
        truth = try TruthReader(path: database.path)
        administrator = try DBusConnection.open(bus.bus)
        try enrol()
        try configure()
        try startBroker()
    }

    /// Manifests, by which the broker knows the apps under a strict policy.
    private func enrol() throws {
        let manifests = "\(directory.path)/apps"
        try FileManager.default.createDirectory(atPath: manifests, withIntermediateDirectories: true)
        for app in apps {
            try #"{"id": "\#(app.identifier)", "executable": "\#(ChildProcess.built("torture-app"))"}"#
                .write(toFile: "\(manifests)/\(app.identifier).json", atomically: true, encoding: .utf8)
        }
    }

    // MARK: The broker

    /// How it ended, where nobody killed it.
    var brokerFailure: String? {
        guard let broker, !broker.isRunning else { return nil }
        return broker.errorText
    }
    var isBrokerReady: Bool { broker?.lines.contains("ready") ?? false }
    var isBrokerAlive: Bool { broker != nil }
    /// How many configurations the broker has put in force since its start.
    var configurations: Int { brokerLog.count { $0.contains(" configured mode=") } }
    var brokerLog: [String] { (broker?.errorText ?? "").split(separator: "\n").map(String.init) }

    /// Starts it, where it does not run; it is ready later.
    func startBroker() throws {
        guard broker == nil else { return }
        broker = try ChildProcess(
            ChildProcess.built("shared-device-broker"),
            ["--state", Self.state(directory), "--configuration", configuration, "--bus", bus.address]
        )
    }

    func killBroker() {
        broker?.kill()
        broker?.waitUntilExit()
        broker = nil
    }

    func stopBroker() { broker?.suspend() }
    func resumeBroker() { broker?.resume() }

    /// Puts the policy in force, by another start of the broker where it was another. The broker is ready later.
    func use(strict: Bool) throws {
        guard strict != isStrict else { return }
        isStrict = strict
        killBroker()
        try configure()
        try startBroker()
    }

    /// As an administrator changes it: under the running broker, which takes it up later.
    func becomeStrict() throws {
        isStrict = true
        try configure()
    }

    private func configure() throws {
        let policy = isStrict ? "strict" : "advisory"
        try #"{"sharedDeviceMode": true, "cleanupPolicy": "\#(policy)"}"#
            .write(toFile: configuration, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: configuration)
    }

    private var configuration: String { "\(directory.path)/managed.json" }
    private static func state(_ directory: TemporaryDirectory) -> String { "\(directory.path)/state" }

    // MARK: The bus and the administrator

    func restartBus() throws { try bus.restart() }

    /// Signs out whoever is signed in; whether nobody is then.
    func signOutAnyone() -> Task<Bool, Never> {
        Task { [administrator] in
            do throws(DBusError) {
                let call = try DBusMessage.methodCall(
                    destination: BrokerProtocol.busName,
                    path: BrokerProtocol.path,
                    interface: BrokerProtocol.interface,
                    member: BrokerProtocol.Method.signOutAnyone.rawValue,
                    arguments: [.fields(["reason": .string("the schedule")])]
                )
                _ = try await administrator.call(call)
                return true
            } catch {
                return error.name == BrokerProtocol.errorPrefix + SharedDeviceError.Code.noCurrentAccount.description
            }
        }
    }
}
