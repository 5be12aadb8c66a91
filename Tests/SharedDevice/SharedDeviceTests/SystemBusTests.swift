import Foundation
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

/// The policy that is installed for the system bus, tested on a bus that denies by default like the system bus. These
/// tests need several users, and so root.
@Suite("The broker on a system bus", .needsRoot)
struct SystemBusTests {
    private let device: DeviceOnPrivateBus

    init() async throws {
        let policy = "org.notifycenter.SharedDevice1.conf"
        let options = PrivateBus.Options.likeSystemBus(policies: [policy], standIns: ["shared-device": "root"])
        device = try await DeviceOnPrivateBus(bus: PrivateBus(options))
    }

    @Test("the broker's broadcasts arrive, and another user's are blocked")
    func broadcasts() async throws {
        let control = ControlApp(on: device)
        let app = try Listener(on: device)
        try await control.signIn("ada")
        try await app.start(showing: "ada")
        let mark = app.mark
        for name in ["SHARED_MODE_CURRENT_ACCOUNT_CHANGED", "SHARED_MODE_DEVICE_MODE_CHANGED"] {
            let signal = "org.notifycenter.Darwin1.\(name).Posted"
            let call = ["--bus=\(device.bus.address)", "--type=signal", "/org/notifycenter", signal, "string:\(name)"]
            // The user daemon, which exists on every Linux system.
            let program = try ChildProcess(as: 1, "dbus-send", call)
            _ = await program.exitStatus()
        }
        try await control.signOut()
        try await app.expectCleanup(after: mark)
        #expect(control.application.ignoredBroadcasts == 0)
    }
}

/// The policy that `shared-device bus-policy` generates, at the path where the installed policy includes it.
@Suite("The users that the system bus admits to the broker", .needsRoot)
struct GeneratedBusPolicyTests {
    private static let (daemon, bin) = (UInt32(1), UInt32(2))
    /// Also dbus-broker if it is installed.
    private static let daemons = [PrivateBus.Daemon.daemon, .broker].filter {
        $0 == .daemon || access("/usr/bin/dbus-broker-launch", X_OK) == 0
    }

    /// Calls the broker as another user.
    private func ask(_ device: DeviceOnPrivateBus, as user: UInt32) async throws -> (status: Int32, errors: String) {
        let call = [
            "--bus=\(device.bus.address)", "--print-reply", "--dest=org.notifycenter.SharedDevice1",
            "/org/notifycenter/SharedDevice", "org.notifycenter.SharedDevice1.GetDeviceInformation",
        ]
        let program = try ChildProcess(as: user, "dbus-send", call)
        return (await program.exitStatus(), program.errorText)
    }

    @Test("the bus admits users of manifests and root; a bad manifest excludes no app", arguments: Self.daemons)
    func generated(_ daemon: PrivateBus.Daemon) async throws {
        let folder = try TemporaryDirectory("bus-policy")
        _ = try folder.folder("dbus-1")
        let installed = "\(folder.path)/org.notifycenter.SharedDevice1.conf"
        try String(contentsOfFile: shippedFile("system-bus/org.notifycenter.SharedDevice1.conf"), encoding: .utf8)
            .replacing("@SYSCONFDIR@", with: folder.path)
            .write(toFile: installed, atomically: true, encoding: .utf8)
        var options = PrivateBus.Options.likeSystemBus(policies: [], standIns: ["shared-device": "root"])
        options.configurationFiles = [installed]
        options.daemon = daemon
        let device = try await DeviceOnPrivateBus(bus: PrivateBus(options))
        #expect(try await ask(device, as: Self.daemon).status == 0, "without a generated policy any user may call")

        let command = [
            "bus-policy", "--configuration", device.configuration, "--bus", device.bus.address,
            "--output", "\(folder.path)/dbus-1/org.notifycenter.SharedDevice1.callers.conf",
        ]
        try device.enrol("org.example.bin", "/usr/bin/bin-app", more: #", "user": "bin""#)
        let first = try await CommandOutcome(command)
        #expect(first.status == 0, "\(first.errors)")
        let refused = try await ask(device, as: Self.daemon)
        #expect(refused.status != 0 && refused.errors.contains("AccessDenied"), "\(refused.errors)")
        for user in [Self.bin, 0] {
            let answer = try await ask(device, as: user)
            #expect(answer.status == 0, "\(user): \(answer.errors)")
        }

        try device.enrol("org.example.bin", "/usr/bin/bin-app", more: #", "user": 1.5"#)
        try device.enrol("org.example.daemon", "/usr/bin/daemon-app", more: #", "user": "daemon""#)
        let bad = try await CommandOutcome(command)
        #expect(bad.status == EX_DATAERR && bad.errors.contains("org.example.bin.json"), "\(bad.errors)")
        for user in [Self.bin, Self.daemon] {
            let answer = try await ask(device, as: user)
            #expect(answer.status == 0, "\(user): \(answer.errors)")
        }
    }
}
