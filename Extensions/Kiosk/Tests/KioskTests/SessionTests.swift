import Foundation
@_spi(Extensions) import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("shared-device-activity in real sessions")
struct SessionTests {
    /// A broker on a private bus with a signed-in person, and the program in a session.
    private final class Device {
        let bus: PrivateBus
        let directory: TemporaryDirectory
        let broker: ChildProcess
        let application: SharedDeviceApplication

        init(inactivityTimeout: Int) async throws {
            bus = try PrivateBus()
            directory = try TemporaryDirectory("kiosk")
            let state = "\(directory.path)/state"
            let configuration = "\(directory.path)/managed.json"
            try #"{"sharedDeviceMode": true, "passwordSignIn": true, "inactivityTimeout": \#(inactivityTimeout)}"#
                .write(toFile: configuration, atomically: true, encoding: .utf8)
            let user = try ChildProcess(
                ChildProcess.built("shared-device"),
                ["user", "add", "ada", "--password-stdin", "--state", state]
            )
            try user.write("correct horse ada")
            #expect(await user.exitStatus() == 0, "\(user.errorText)")
            broker = try await ChildProcess.service(
                ChildProcess.built("shared-device-broker"),
                ["--state", state, "--configuration", configuration, "--bus", bus.address]
            )
            application = SharedDeviceApplication(
                identifier: "org.example.desk",
                bus: bus.bus,
                stateDirectory: "\(directory.path)/desk"
            )
            let parameters = InteractiveTokenParameters(scopes: [], loginHint: "ada") { _ in
                Credentials(username: "ada", password: "correct horse ada")
            }
            _ = try await application.acquireToken(with: parameters)
        }

        func startProgram(in session: any Session) async throws -> ChildProcess {
            try await ChildProcess.service(
                ChildProcess.built("shared-device-activity"),
                ["--bus", bus.address],
                environment: session.environment
            )
        }

        var isSignedIn: Bool {
            get async throws { try await application.getCurrentAccount().current != nil }
        }

        var lastActivity: Date {
            get throws {
                let file = "\(directory.path)/state/last-activity"
                let date = try FileManager.default.attributesOfItem(atPath: file)[.modificationDate]
                return try #require(date as? Date)
            }
        }
    }

    /// Checks that input reaches the broker, and that the program ends with the session.
    private func check(_ session: any Session, _ name: String) async throws {
        let device = try await Device(inactivityTimeout: 900)
        let program = try await device.startProgram(in: session)
        let line = try Regex("following the input by \(name)")
        try await eventually("it names the interface") { program.errorText.contains(line) }
        let signedIn = try device.lastActivity
        try await eventually("the broker knows of the input") {
            try await session.use()
            return try device.lastActivity.timeIntervalSince(signedIn) > 1
        }
        session.kill()
        #expect(await program.exitStatus() == EX_UNAVAILABLE)
        #expect(program.errorText.split(separator: "\n").count == 2, "\(program.errorText)")
    }

    @Test("a Wayland compositor's input is reported", .enabled(if: Sessions.hasSway, "sway or wtype is not installed"))
    func wayland() async throws { try await check(try await SwaySession(), "(ext|org_kde)_") }

    @Test("an X server's input is reported", .enabled(if: Sessions.hasXvfb, "Xvfb or xdotool is not installed"))
    func x() async throws { try await check(try await XSession(), "MIT-SCREEN-SAVER") }

    @Test("Mutter's input is reported")
    func mutter() async throws { try await check(try await MutterSession(), "Mutter's idle monitor") }

    @Test(
        "input keeps the person signed in, and without input the device signs out",
        .enabled(if: Sessions.hasSway, "sway or wtype is not installed")
    )
    func inactivity() async throws {
        let session = try await SwaySession()
        let device = try await Device(inactivityTimeout: 8)
        let program = try await device.startProgram(in: session)
        let end = ContinuousClock.now + .seconds(12)
        while ContinuousClock.now < end {
            try await session.use()
            try await Task.sleep(for: .milliseconds(500))
        }
        #expect(try await device.isSignedIn)
        try await eventually("the device signs out") { try await !device.isSignedIn }
        #expect(program.isRunning && program.errorText.split(separator: "\n").count == 1, "\(program.errorText)")
    }

    @Test(
        "a compositor that does not respond is no input",
        .enabled(if: Sessions.hasSway, "sway or wtype is not installed")
    )
    func frozen() async throws {
        let session = try await SwaySession()
        let device = try await Device(inactivityTimeout: 8)
        let program = try await device.startProgram(in: session)
        // The program learns of this input, and not of the pause after it.
        try await session.use()
        session.compositor.suspend()
        defer { session.compositor.resume() }
        try await eventually("the device signs out") { try await !device.isSignedIn }
        #expect(program.isRunning)
    }

    @Test(
        "SIGTERM ends it while the X server hangs",
        .enabled(if: Sessions.hasXvfb, "Xvfb or xdotool is not installed")
    )
    func hangingServer() async throws {
        let session = try await XSession()
        session.server.suspend()
        defer { session.server.resume() }
        let program = try ChildProcess(ChildProcess.built("shared-device-activity"), environment: session.environment)
        let status = "/proc/\(program.identifier)/status"
        try await eventually("it handles signals") {
            let text = try String(contentsOfFile: status, encoding: .utf8)
            let caught = text.split(separator: "\n").first { $0.hasPrefix("SigCgt:") }?.split(separator: "\t").last
            return (caught.flatMap { UInt64($0, radix: 16) } ?? 0) & 1 << (SIGTERM - 1) != 0
        }
        program.send(SIGTERM)
        #expect(await program.exitStatus(within: .seconds(30)) == 0)
    }

    @Test(
        "a session without an interface or a display server is refused with the reason",
        arguments: [
            (
                nil, EX_CONFIG,
                ["neither WAYLAND_DISPLAY nor DISPLAY is set", "Mutter cannot be asked", "Start this program inside"]
            ),
            (("WAYLAND_DISPLAY", "/nonexistent"), EX_UNAVAILABLE, ["could not connect", "WAYLAND_DISPLAY"]),
            (("DISPLAY", ":4711"), EX_UNAVAILABLE, ["could not connect", "DISPLAY"]),
        ] as [((name: String, value: String)?, Int32, [String])]
    )
    func missing(_ variable: (name: String, value: String)?, status: Int32, words: [String]) async throws {
        var environment = Sessions.none
        if let variable { environment[variable.name] = variable.value }
        let program = try ChildProcess(ChildProcess.built("shared-device-activity"), environment: environment)
        #expect(await program.exitStatus() == status)
        for word in words { #expect(program.errorText.contains(word), "\(program.errorText)") }
    }

    @Test("a bus that fails is tried again where only Mutter is left to ask")
    func failingBus() async throws {
        let directory = try TemporaryDirectory("compositor")
        let socket = "\(directory.path)/wayland"
        let compositor = try StandInDisplay.compositor(at: socket)
        defer { withExtendedLifetime(compositor) {} }
        let bus = try PrivateBus(
            PrivateBus.Options(denials: [#"<deny send_interface="org.freedesktop.DBus" send_member="GetNameOwner"/>"#])
        )
        let environment = ["WAYLAND_DISPLAY": socket, "DISPLAY": "", "DBUS_SESSION_BUS_ADDRESS": bus.address]
        let program = try ChildProcess(ChildProcess.built("shared-device-activity"), environment: environment)
        // Its service starts it again after this status, and not after EX_CONFIG.
        #expect(await program.exitStatus() == EX_UNAVAILABLE, "\(program.errorText)")
        #expect(program.errorText.contains("could not ask the session's bus"), "\(program.errorText)")
    }
}
