import ArgumentParser
import FleetStage
import Foundation
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDeviceTestKit

@main
struct DemoFleetCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo-fleet",
        abstract: "Plays an order to a fleet: three devices, each with its own bus, broker and two apps.",
        discussion: """
            Makes certificates, starts mosquitto with TLS, the controller and three agents, signs people in, gives an order, and shows what the \
            operator sees and the receipts. Leaves nothing behind, also after Ctrl-C.
            Exit status: 0 if every device is clean; 1 if not.
            """
    )

    private static let apps = ["point-of-sale", "flight-briefing"].map { name in
        TestApp(
            "org.notifycenter.example.\(name)",
            executable: TestApp.built(name),
            arguments: ["--stay", "--bus", "{bus}", "--data", "{data}"]
        )
    }

    func run() async throws {
        Interruption.handle(by: "demo-fleet")
        let begin = ContinuousClock.now
        let say = { (line: String) in
            let tenths = Int(begin.duration(to: .now) / .milliseconds(100))
            print("\(tenths / 10).\(tenths % 10) s  \(line)")
        }
        let stage = try await FleetStage()
        say("certificates are made, mosquitto serves with TLS on port \(stage.port)")
        try await stage.startController()
        var devices: [(name: String, device: TestDevice, agent: ChildProcess)] = []
        for (name, user) in [("ward-1", "ada"), ("ward-2", "grace"), ("ward-3", nil)] {
            try await stage.enrol(name)
            let device = try await TestDevice(apps: Self.apps)
            let agent = try await stage.startAgent(name, bus: device.bus.address)
            devices.append((name, device, agent))
            if let user {
                try await device.signIn(user)
                try await device.waitUntilRunning()
                for app in device.apps {
                    try await app.line { $0.contains("signed in: ") }
                    try app.write("work")
                }
            }
            let signedIn = user.map { "\($0) is signed in" } ?? "no account is signed in"
            say("\(name): bus, broker, two apps, agent; \(signedIn)")
        }
        _ = try await stage.fleet(["device", "add", "--group", "wards"] + devices.map(\.name))
        // One app of ward-2 is suspended for a while, so that the operator sees a pending cleanup.
        let slow = try devices[1].device.app(Self.apps[0].identifier)
        try await slow.stop()
        let goingOn = Task {
            try await Task.sleep(for: .seconds(3))
            try slow.resume()
        }

        let words = ["sign-out", "--all", "--reason", "shift is over", "--wait", "45"]
        print("\n$ shared-device fleet \(words.map { $0.contains(" ") ? "'\($0)'" : $0 }.joined(separator: " "))")
        let outcome = try await stage.fleet(words)
        print((outcome.lines + [outcome.errors].filter { !$0.isEmpty }).joined(separator: "\n"))
        print("$ echo $?\n\(outcome.status)\n\n$ shared-device fleet devices")
        print(try await stage.fleet("devices").lines.joined(separator: "\n"))
        for (name, device, _) in devices {
            let words = ["status", "--state", "\(device.directory)/broker", "--bus", device.bus.address]
            let status = try ChildProcess(ChildProcess.built("shared-device"), words)
            _ = await status.exitStatus()
            // The round is below the facts.
            let receipts = status.lines.drop { !$0.hasPrefix("cleanup after session") }
            print((["\n\(name):"] + (receipts.isEmpty ? ["nothing was owed"] : receipts)).joined(separator: "\n"))
        }
        print("")
        say(outcome.status == 0 ? "every device is clean, by the receipts of its apps" : "not every device is clean")
        goingOn.cancel()
        withExtendedLifetime(devices) {}
        if outcome.status != 0 { throw ExitCode(1) }
    }
}
