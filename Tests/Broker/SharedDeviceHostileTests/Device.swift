import DBus
import DeviceConfiguration
import DeviceStorage
import Foundation
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import SharedDeviceBroker

/// A device on a bus for many users. The real broker runs as `daemon` with the capabilities that its unit names. The
/// test process, as root, is the enrolled app `org.example.control`.
final class Device {
    enum Disk {
        case ordinary
        /// A file system of 3 MB.
        case small
        /// A file system that can be frozen.
        case freezable
    }

    /// The user who runs the broker: `daemon`, which exists on every Linux system.
    static let brokerUser: uid_t = 1
    /// The installed broker, if the environment names it. Only its measurements are judged, because a debug build takes
    /// several times as long.
    static let releasedProgram = ProcessInfo.processInfo.environment["NOTIFY_CENTER_TEST_BROKER"]
    private static let program = releasedProgram ?? ChildProcess.built("shared-device-broker")

    struct Unexpected: Error, CustomStringConvertible {
        let description: String
    }

    let bus: PrivateBus
    let directory: TemporaryDirectory
    let control: SharedDeviceApplication
    /// Another enrolled app, which is not running.
    let enrolledProgram: String
    let state: String
    private let disk: Disk
    private(set) var broker: ChildProcess?

    /// - Parameter policy: the users who may call; `nil` for every user.
    init(
        disk: Disk = .ordinary,
        configuration: String = #"{"sharedDeviceMode": true, "passwordSignIn": true}"#,
        policy: BusPolicy? = nil,
        extraUsers: Range<UInt32> = 0..<0,
        bytesPerConnection: Int? = nil
    ) async throws {
        directory = try TemporaryDirectory("hostile-test")
        chmod(directory.path, 0o755)
        let installed = "org.notifycenter.SharedDevice1.conf"
        var options = PrivateBus.Options.likeSystemBus(policies: [installed], standIns: ["shared-device": "daemon"])
        options.extraUsers = extraUsers
        options.bytesPerConnection = bytesPerConnection
        if let policy {
            let file = "\(directory.path)/callers.conf"
            try policy.xml.write(toFile: file, atomically: true, encoding: .utf8)
            options.configurationFiles.append(file)
        }
        bus = try PrivateBus(options)
        state = "\(directory.path)/state"
        self.disk = disk
        control = SharedDeviceApplication(
            identifier: "org.example.control",
            bus: bus.bus,
            stateDirectory: "\(directory.path)/control"
        )
        enrolledProgram = "\(directory.path)/enrolled"
        try FileManager.default.copyItem(atPath: "/bin/sleep", toPath: enrolledProgram)
        mkdir(state, 0o700)
        switch disk {
        case .ordinary: break
        case .small: try await run("mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", state)
        case .freezable:
            try await run("truncate", "--size=16M", image)
            try await run("mkfs.ext4", "-q", image)
            try await run("mount", "-o", "loop", image, state)
        }
        chown(state, Self.brokerUser, Self.brokerUser)
        let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        try configure(configuration)
        mkdir("\(directory.path)/apps", 0o755)
        try write(#"{"id": "org.example.control", "executable": "\#(own)", "user": 0}"#, to: "apps/control.json")
        try FileManager.default.copyItem(atPath: ChildProcess.built("hostile-client"), toPath: hostileApp)
        for (name, program) in [("hostile", hostileApp), ("enrolled", enrolledProgram)] {
            let manifest = #"{"id": "org.example.\#(name)", "executable": "\#(program)", "user": 65534}"#
            try write(manifest, to: "apps/\(name).json")
        }
        try await addUser("ada")
        try await startBroker()
    }

    func addUser(_ name: String) async throws {
        let arguments = ["user", "add", name, "--password-stdin", "--state", state]
        let command = try ChildProcess(ChildProcess.built("shared-device"), arguments)
        try command.write("correct horse \(name)")
        try command.closeInput()
        guard await command.exitStatus() == 0 else { throw Unexpected(description: command.errorText) }
    }

    private var hostileApp: String { "\(directory.path)/hostile-app" }

    private func run(_ program: String, _ arguments: String...) async throws {
        let process = try ChildProcess(program, arguments)
        guard await process.exitStatus() == 0 else { throw Unexpected(description: process.errorText) }
    }

    deinit {
        // No process ends on a frozen file system.
        if disk == .freezable, let thaw = try? ChildProcess("fsfreeze", ["--unfreeze", state]) { thaw.waitUntilExit() }
        broker?.end()
        // The last unmount releases the loop device.
        if disk != .ordinary { umount2(state, CInt(MNT_DETACH)) }
    }

    func configure(_ json: String) throws { try write(json, to: "managed.json") }

    private func write(_ text: String, to name: String) throws {
        let path = "\(directory.path)/\(name)"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        chmod(path, 0o644)
    }

    func startBroker() async throws {
        broker = try await ChildProcess.service(
            "setpriv",
            ChildProcess.identity(Self.brokerUser) + Rights.brokerOptions + [
                Self.program, "--state", state, "--configuration", "\(directory.path)/managed.json",
                "--bus", bus.address, "--many-users", "--log-level", "warning",
            ]
        )
    }

    func killBroker() { broker?.end() }

    /// Starts the hostile client as user 65534, and waits until it is at work. The client is no app of this device,
    /// except for the deed `enrolled`, which runs an enrolled copy.
    func hostile(_ deed: String) async throws -> ChildProcess {
        let program = deed == "enrolled" ? hostileApp : ChildProcess.built("hostile-client")
        let process = try ChildProcess(as: 65534, program, [bus.address, deed])
        try await process.line { $0 == "ready" }
        return process
    }

    func signIn(_ user: String = "ada") async throws {
        let parameters = InteractiveTokenParameters(scopes: [], loginHint: user) { _ in
            Credentials(username: user, password: "correct horse \(user)")
        }
        _ = try await control.acquireToken(with: parameters)
    }

    func signOut() async throws {
        guard let account = try await control.getCurrentAccount().current else { return }
        _ = try await control.signout(with: account)
    }

    /// Reports the cleanup of the last session. Without it, the record of this app would grow with each session, and
    /// with it the time of each request.
    func cleanUp() async throws {
        var changes = control.accountChanges.makeAsyncIterator()
        guard let change = await changes.next(), change.current == nil else { return }
        try await control.cleanupDone(change)
    }

    /// Whether the sign-out is committed. While the disk hangs, a sign-out is answered before that.
    func isSignOutWritten() async throws -> Bool {
        let arguments = ["status", "--json", "--state", state, "--bus", bus.address]
        let command = try ChildProcess(ChildProcess.built("shared-device"), arguments)
        guard await command.exitStatus() == 0 else { throw Unexpected(description: command.errorText) }
        let output = Data(command.lines.joined(separator: "\n").utf8)
        let status = try JSONSerialization.jsonObject(with: output) as? [String: Any]
        guard let status, status["epoch"] != nil else { throw Unexpected(description: "no status: \(command.lines)") }
        return status["account"] as? String == nil
    }

    // MARK: Resource use

    /// In bytes.
    func brokerMemory() throws -> Int { try broker?.memory().resident ?? 0 }

    /// In bytes.
    func filesSize() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: state).reduce(0) { sum, name in
            let size = try? FileManager.default.attributesOfItem(atPath: "\(state)/\(name)")[.size] as? Int
            return sum + (size ?? 0)
        }
    }

    // MARK: The disk

    private var image: String { "\(directory.path)/image" }

    /// Blocks each write to the broker's files until the disk is thawed.
    func freezeDisk() async throws { try await run("fsfreeze", "--freeze", state) }
    func thawDisk() async throws { try await run("fsfreeze", "--unfreeze", state) }

    private var ballast: Ballast { Ballast(in: state) }

    func fillDisk() throws { try ballast.fillDisk() }
    func freeDisk() { ballast.remove() }
}
