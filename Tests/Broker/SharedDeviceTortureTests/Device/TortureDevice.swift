import BrokerCore
import DBus
import DeviceStorage
import EmbeddedIdentity
import Foundation
import Glibc
import Identity
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

/// A device under torture: a bus, the broker and its apps, each as a process. If this process is root, it is a device
/// of many users: the bus has the policy of the system bus, and the broker runs as its own user with the capabilities
/// that its unit names.
final class TortureDevice {
    let apps: [AppProcess]
    let adapter: AdapterProcess
    let truth: TruthReader
    /// The account identifier of each user, as apps name it.
    let accounts: [String: String]
    private(set) var isStrict = false
    /// The device's epoch when it last was idle. All sessions up to it are over and have left no data.
    var restEpoch: UInt64 = 0
    private let bus: PrivateBus
    /// Released before its directory.
    private let disk: SmallDisk?
    private let directory: TemporaryDirectory
    private let administrator: BrokerAdministration
    private var broker: ChildProcess?
    private var hostile: ChildProcess?

    /// - Parameter mutant: the deliberate mistake of the apps.
    init(mutant: String? = nil) async throws {
        let busOfManyUsers = PrivateBus.Options.likeSystemBus(
            policies: ["org.notifycenter.SharedDevice1.conf"],
            standIns: ["shared-device": "daemon"]
        )
        let bus = try PrivateBus(Rights.hasUsers ? busOfManyUsers : PrivateBus.Options())
        let directory = try TemporaryDirectory("torture")
        self.bus = bus
        self.directory = directory
        apps = (0..<Schedule.appCount).map {
            AppProcess(number: $0, in: directory.path, bus: bus.address, mutant: mutant)
        }
        adapter = try AdapterProcess(
            in: directory.path,
            bus: bus.address,
            manifests: Self.manifests(directory),
            mutant: mutant
        )
        let state = Self.state(directory)
        mkdir(state, 0o700)
        disk = Rights.canMount ? try await SmallDisk(at: state) : nil
        accounts = try Self.addUsers(in: state)
        if Rights.hasUsers {
            chmod(directory.path, 0o755)
            chown(state, Rights.brokerUser, Rights.brokerUser)
            for name in try FileManager.default.contentsOfDirectory(atPath: state) {
                chown("\(state)/\(name)", Rights.brokerUser, Rights.brokerUser)
            }
        }
        truth = try TruthReader(path: "\(state)/\(DeviceDatabase.fileName)")
        administrator = try BrokerAdministration(bus: bus.bus)
        try enrol()
        try configure()
        try startBroker()
    }

    deinit {
        adapter.end()
        killBroker()
    }

    /// Creates the users, with cheap hashes because passwords are not under test. Closes the database on return,
    /// because its files are given to another owner.
    private static func addUsers(in state: String) throws -> [String: String] {
        let users = UserDirectory(database: try DeviceDatabase(directory: state), passwordCost: .minimal)
        return try Schedule.users.reduce(into: [:]) { accounts, user in
            accounts[user] = try users.add(username: user, password: Secret("correct horse \(user)")).account.identifier
        }
    }

    /// Writes manifests that identify the apps. Only the adapter's names a user, so that two users can run an app.
    private func enrol() throws {
        let manifests = Self.manifests(directory)
        try FileManager.default.createDirectory(atPath: manifests, withIntermediateDirectories: true)
        for app in Set(apps.map(\.participant.app)) {
            try #"{"id": "\#(app)", "executable": "\#(ChildProcess.built("torture-app"))"}"#
                .write(toFile: "\(manifests)/\(app).json", atomically: true, encoding: .utf8)
        }
        guard adapter.takesPart else { return }
        try adapter.manifest.write(toFile: "\(manifests)/\(AdapterProcess.app).json", atomically: true, encoding: .utf8)
    }

    // MARK: User data

    var sights: [Sight] { apps.map(\.sight) + [adapter.sight] }
    var recordedEpochs: [UInt64] { (apps.map(\.recordedEpochs) + [adapter.recordedEpochs]).flatMap { $0 ?? [] } }

    // MARK: The broker

    /// The error output of a broker that ended without being killed.
    var brokerFailure: String? { broker?.failure }
    var isBrokerReady: Bool { broker?.lines.contains("ready") ?? false }
    var isBrokerAlive: Bool { broker != nil }
    /// The number of configurations that the broker has applied since its start.
    var configurations: Int { brokerLog.count { $0.contains(" configured mode=") } }
    var brokerLog: [String] { broker?.log ?? [] }

    /// Starts the broker if it does not run. It becomes ready later.
    func startBroker() throws {
        guard broker == nil else { return }
        broker = try .start(
            "shared-device-broker",
            ["--state", Self.state(directory), "--configuration", configuration, "--bus", bus.address],
            as: Rights.brokerUser,
            options: Rights.brokerOptions
        )
    }

    func killBroker() {
        broker?.end()
        broker = nil
    }

    func stopBroker() { broker?.suspend() }
    func resumeBroker() { broker?.resume() }

    /// Applies the policy by a restart if it has changed. The broker becomes ready later.
    func use(strict: Bool) throws {
        guard strict != isStrict else { return }
        isStrict = strict
        killBroker()
        try configure()
        try startBroker()
    }

    /// Changes the policy under the running broker, which notices later.
    func becomeStrict() throws {
        isStrict = true
        try configure()
    }

    private func configure() throws {
        let policy = isStrict ? "strict" : "advisory"
        // Apps without a manifest may not take part, although the bus is not the system bus.
        try
            #"{"sharedDeviceMode": true, "passwordSignIn": true, "cleanupPolicy": "\#(policy)", "requiresEnrolment": \#(Rights.hasUsers)}"#
            .write(toFile: configuration, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: configuration)
    }

    private var configuration: String { "\(directory.path)/managed.json" }
    private static func manifests(_ directory: TemporaryDirectory) -> String { "\(directory.path)/apps" }
    private static func state(_ directory: TemporaryDirectory) -> String { "\(directory.path)/state" }

    // MARK: Hostile clients

    /// Starts a hostile client unless one is running.
    func attack(_ deed: String) throws {
        guard hostile == nil else { return }
        hostile = try .start("hostile-client", [bus.address, deed], as: Rights.stranger)
    }

    /// Ends the hostile client. Returns whether it got a response.
    func endAttack() -> Bool {
        let wasAnswered = hostile?.lines.contains("ready") ?? false
        hostile?.end()
        hostile = nil
        return wasAnswered
    }

    var leak: String? { hostile?.lines.first { $0.hasPrefix("LEAK") } }

    // MARK: The disk

    private var ballast: Ballast { Ballast(in: Self.state(directory)) }

    func fillDisk() throws { try ballast.fillDisk() }

    /// Returns whether the disk had been filled.
    func freeDisk() -> Bool { ballast.remove() }

    // MARK: The bus and the administrator

    func restartBus() throws { try bus.restart() }

    /// Signs out any account. The value of the task is whether the device is signed out afterwards.
    func signOutAnyone() -> Task<Bool, Never> {
        Task { [administrator] in
            do throws(SharedDeviceError) {
                _ = try await administrator.call(.signOutAnyone, ["reason": .string("the schedule")])
                return true
            } catch { return error.code == .noCurrentAccount }
        }
    }
}
