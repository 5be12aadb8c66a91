import DBusTransport
import DeviceStorage
import EmbeddedIdentity
import Foundation
import Glibc
import Identity
import NotifyCenterTestKit
import SharedDevice
import SharedDeviceBroker

/// A device whose bus many users reach, with the real broker and one enrolled app: this process, as root.
final class Device {
    struct Unexpected: Error, CustomStringConvertible {
        let description: String
    }

    let bus: PrivateBus
    let directory: TemporaryDirectory
    let control: SharedDeviceApplication
    /// Another enrolled app, which nobody runs.
    let enrolledProgram: String
    private let state: String
    private let isOnSmallDisk: Bool
    private var broker: ChildProcess?

    /// - Parameter isOnSmallDisk: whether the broker's files are on a file system of 3 MB.
    init(isOnSmallDisk: Bool = false) async throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "../../..").standardized
            .path
        var options = PrivateBus.Options(denials: [
            #"<deny own="*"/>"#, #"<deny send_type="method_call"/>"#,
            #"<allow send_destination="org.freedesktop.DBus"/>"#,
        ])
        options.admitsOtherUsers = true
        options.configurationFiles = ["\(root)/Service/system-bus/org.notifycenter.SharedDevice1.conf"]
        bus = try PrivateBus(options)
        directory = try TemporaryDirectory("hostile-test")
        chmod(directory.path, 0o755)
        state = "\(directory.path)/state"
        self.isOnSmallDisk = isOnSmallDisk
        control = SharedDeviceApplication(
            identifier: "org.example.control",
            bus: bus.bus,
            stateDirectory: "\(directory.path)/control"
        )
        enrolledProgram = "\(directory.path)/enrolled"
        try FileManager.default.copyItem(atPath: "/bin/sleep", toPath: enrolledProgram)
        mkdir(state, 0o700)
        if isOnSmallDisk {
            let mount = try ChildProcess("mount", ["-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", state])
            guard await mount.exitStatus() == 0 else { throw Unexpected(description: mount.errorText) }
        }
        let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        try write(#"{"sharedDeviceMode": true}"#, to: "managed.json")
        mkdir("\(directory.path)/apps", 0o755)
        try write(#"{"id": "org.example.control", "executable": "\#(own)", "user": 0}"#, to: "apps/control.json")
        let enrolled = #"{"id": "org.example.enrolled", "executable": "\#(enrolledProgram)", "user": 65534}"#
        try write(enrolled, to: "apps/enrolled.json")
        let users = try UserDirectory(database: DeviceDatabase(directory: state))
        try users.add(username: "ada", password: Secret("correct horse ada"))
        try await startBroker()
    }

    deinit {
        broker?.kill()
        broker?.waitUntilExit()
        if isOnSmallDisk { umount2(state, CInt(MNT_DETACH)) }
    }

    private func write(_ text: String, to name: String) throws {
        let path = "\(directory.path)/\(name)"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        chmod(path, 0o644)
    }

    func startBroker() async throws {
        broker = try await ChildProcess.service(
            ChildProcess.built("shared-device-broker"),
            [
                "--state", state, "--configuration", "\(directory.path)/managed.json", "--bus", bus.address,
                "--many-users",
                "--log-level", "warning",
            ]
        )
    }

    func killBroker() {
        broker?.kill()
        broker?.waitUntilExit()
    }

    /// Starts a client that means harm, as a user who has nothing to do with this device.
    func hostile(_ deed: String) throws -> ChildProcess {
        try ChildProcess(
            "setpriv",
            [
                "--reuid=65534", "--regid=65534", "--clear-groups", ChildProcess.built("hostile-client"), bus.address,
                deed,
            ]
        )
    }

    func signIn() async throws {
        let parameters = InteractiveTokenParameters(scopes: [], loginHint: "ada") { _ in
            Credentials(username: "ada", password: "correct horse ada")
        }
        _ = try await control.acquireToken(with: parameters)
    }

    /// Signs out, and cleans up.
    func signOut() async throws {
        guard let account = try await control.getCurrentAccount().current else { return }
        _ = try await control.signout(with: account)
    }

    // MARK: What it costs

    /// The broker's resident memory, in bytes.
    func brokerMemory() throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(broker?.identifier ?? 0)/status", encoding: .utf8)
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return (line?.split(separator: " ").compactMap { Int($0) }.first ?? 0) * 1024
    }

    /// How much the broker's files take, in bytes.
    func filesSize() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: state).reduce(0) { sum, name in
            let size = try? FileManager.default.attributesOfItem(atPath: "\(state)/\(name)")[.size] as? Int
            return sum + (size ?? 0)
        }
    }

    // MARK: The small disk

    private var ballast: String { "\(state)/ballast" }

    func fillDisk() throws {
        let file = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Unexpected(description: "no ballast: \(String(cString: strerror(errno)))") }
        defer { close(file) }
        let block = [UInt8](repeating: 7, count: 4096)
        while Glibc.write(file, block, block.count) > 0 {}
    }

    func freeDisk() throws { unlink(ballast) }
}
