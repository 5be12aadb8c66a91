import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import Testing

/// An app in a sandbox like Flatpak's: bubblewrap runs the app, and the proxy that forwards its messages to the bus.
/// The bus, and therefore the broker, sees the proxy's process.
private struct Sandbox {
    /// The command prefix that starts a program in the sandbox. The program sees the machine's files, and Flatpak's
    /// information file at the root.
    let launcher: [String]
    /// The address of the device's bus as the app sees it.
    let address: String
    private let proxy: ChildProcess

    /// Starts the proxy and waits until it accepts connections.
    ///
    /// - Parameter flatpak: the Flatpak's id; `nil` creates a file without an id.
    init(_ flatpak: String?, on device: DeviceOnPrivateBus) async throws {
        let directory = "\(device.directory.path)/sandbox-\(UUID().uuidString.prefix(8))"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        // Flatpak adds this file to each of its sandboxes.
        let information = "\(directory)/flatpak-info"
        let text = (flatpak.map { "[Application]\nname=\($0)\n\n" } ?? "") + "[Instance]\ninstance-id=1\n"
        try text.write(toFile: information, atomically: true, encoding: .utf8)
        let socket = "\(directory)/bus"
        address = "unix:path=\(socket)"
        launcher = Self.launcher(information)
        let rules = ["--filter", "--talk=org.notifycenter.SharedDevice1"]
        let program = ["xdg-dbus-proxy", device.bus.address, socket]
        proxy = try ChildProcess(launcher[0], Array(launcher.dropFirst()) + program + rules)
        try await eventually("the proxy listens") { FileManager.default.fileExists(atPath: socket) }
    }

    private static func launcher(_ information: String) -> [String] {
        let folders = (try? FileManager.default.contentsOfDirectory(atPath: "/")) ?? []
        let binds = folders.filter { !["proc", "dev", ".flatpak-info"].contains($0) }.sorted()
            .flatMap { ["--bind-try", "/\($0)", "/\($0)"] }
        return ["bwrap"] + binds
            + ["--proc", "/proc", "--dev", "/dev", "--ro-bind", information, "/.flatpak-info", "--die-with-parent"]
    }
}

/// Whether this machine has bubblewrap and Flatpak's proxy, and lets this user create sandboxes.
private func canSandbox() -> Bool {
    guard ["bwrap", "xdg-dbus-proxy"].allSatisfy({ access("/usr/bin/\($0)", X_OK) == 0 }) else { return false }
    return (try? ChildProcess("bwrap", ["--ro-bind", "/", "/", "true"]))?.waitUntilExit() == 0
}

@Suite(
    "Apps in Flatpak's sandbox",
    .enabled(if: canSandbox(), "needs bubblewrap and xdg-dbus-proxy, and a user who may make sandboxes")
)
struct SandboxedAppTests {
    private static let flatpak = "org.example.Listener"
    private static let identifier = "org.example.listener"

    @Test("an app behind Flatpak's proxy is known by its id, and other programs are refused")
    func identified() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let manifest = #"{"id": "\#(Self.identifier)", "flatpak": "\#(Self.flatpak)"}"#
        let path = "\(device.directory.path)/apps/\(Self.identifier).json"
        try manifest.write(toFile: path, atomically: true, encoding: .utf8)
        try await device.startBroker()
        let control = ControlApp(on: device)
        try await control.signIn("ada")
        let other = try await Sandbox("org.example.Other", on: device)
        let nobody = try await Sandbox(nil, on: device)
        // The proxy's program is enrolled, but that must not identify any program in a sandbox.
        try device.enrol("org.example.proxy", "/usr/bin/xdg-dbus-proxy")
        let broker = try #require(device.broker)
        for (launcher, bus, reason) in [
            ([], nil, "in no Flatpak's sandbox"),
            (other.launcher, other.address, "in the sandbox of the Flatpak org.example.Other"),
            (nobody.launcher, nobody.address, "it names no application"),
        ] as [([String], String?, String)] {
            let app = try Listener(on: device, launcher: launcher, bus: bus)
            let mark = app.mark
            try app.start()
            // A slow app may ask again. It is alive until the broker has refused it.
            try await eventually("the broker says why: \(reason)") { broker.errorText.contains(reason) }
            try await eventually("a refusal") { app.story(after: mark).contains { $0.hasPrefix("hidden ") } }
            #expect(!app.story(after: mark).contains("open ada"))
            app.kill()
        }
        // The journal and the log contain the same refusals.
        try await eventually("the refusals are in the log") { try device.audit("refused").count >= 3 }
        let sandbox = try await Sandbox(Self.flatpak, on: device)
        let app = try Listener(on: device, launcher: sandbox.launcher, bus: sandbox.address)
        try await app.start(showing: "ada")
        let mark = app.mark
        let session = try await control.signOut()
        try await app.expectCleanup(after: mark)
        try await control.wait(for: app, in: session, .finished)
        let log = try ChildProcess(ChildProcess.built("shared-device"), ["log", "--state", device.state, "--json"])
        try await log.line { $0.contains("known by Flatpak \(Self.flatpak) (hint)") && $0.contains(Self.identifier) }
        try await log.line { $0.contains("finished") && $0.contains(Self.identifier) }
    }
}
