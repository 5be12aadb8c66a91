import DBusTransport
import DeviceConfiguration
import Foundation
import Glibc
import NotifyCenterTestKit
import SharedDevice
import StrictJSON
import Testing

@testable import MicrosoftBroker

/// How long, how many, and whether at all.
@Suite("What bounds the bridge to Microsoft's clients")
struct BoundTests {
    @Test("a prompt that takes too long is ended, and is told from one that ended by itself")
    func patience() async throws {
        let directory = try TemporaryDirectory("patience")
        let mark = directory.path + "/ended"
        let script = "trap 'touch \(mark); exit 1' TERM; echo; while :; do sleep 0.02; done"
        let start = Prompter.program("/bin/sh", ["-c", script], patience: .milliseconds(300))
        #expect(await start() == .expired)
        #expect(FileManager.default.fileExists(atPath: mark))
        #expect(await Prompter.program("/bin/sh", ["-c", "exit 1"])() == .ended(1))
    }

    @Test("nobody who signs in within the time: the client reads 8, and that it may try again")
    func expired() async throws {
        let device = try await Device()
        let broker = MicrosoftBroker(
            MicrosoftBroker.Parts(
                connection: try DBusConnection.open(device.bus.bus),
                application: device.app,
                prompt: nil,
                removeSecrets: { "" }
            ),
            prompter: Prompter { .expired }
        )
        var rights = TokenRights()
        rights.scopes = ["openid", "profile"]
        rights.microsoftClientIdentifiers = [Device.client]
        rights.microsoftScopes = ["https://graph.microsoft.com/.default": ["openid", "profile"]]
        broker.use(rights)
        let answer = await broker.answer(.acquireTokenInteractively, correlation: "c", Device.parameters().text)
        #expect(answer.status == 8 && answer.context.contains("ten minutes"), "\(answer.text)")
    }

    @Test("32 requests are under way at a time; the next one is told to come again, and does")
    func requests() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let version: JSONValue = .object(["msalCppVersion": .string("1")])
        device.broker.send(SIGSTOP)
        defer { device.broker.send(SIGCONT) }
        // Each waits for the device's broker, which does not answer.
        let waiting = (1...BrokerContract.requests).map { _ in
            Task { try await device.call("getAccounts", .object([:]))["accounts"] }
        }
        #expect(try await eventually { try await device.call("getLinuxBrokerVersion", version).status == 15 })
        device.broker.send(SIGCONT)
        for task in waiting { #expect(try await task.value == .array([])) }
        #expect(try await device.call("getLinuxBrokerVersion", version)["linuxBrokerVersion"] != nil)
    }

    @Test("where the configuration wants it no more it serves nobody, but pays its debts; and then it serves again")
    func unwanted() async throws {
        let device = try await Device()
        let bridge = try await device.bridge()
        defer { bridge.kill() }
        let ada = try await device.signIn("ada")
        #expect(try await device.call("getAccounts", .object([:]))["accounts"]?.array?.count == 1)
        let connection = try DBusConnection.open(device.bus.bus)
        func isServed() async throws -> Bool { try await connection.owner(of: BrokerContract.busName) != nil }
        try device.configure(microsoftBroker: false)
        #expect(try await eventually { try await !isServed() })
        await #expect(throws: DBusError.self) { try await device.call("getAccounts", .object([:])) }
        let session = try await device.app.signout(with: ada).session
        #expect(
            try await eventually {
                let report = try await device.app.cleanupReport(ofSession: session)
                return report?.apps.first { $0.identifier == BrokerContract.application }?.progress == .finished
            }
        )
        #expect(try await !isServed())
        #expect(bridge.isRunning)
        try device.configure(microsoftBroker: true)
        #expect(try await eventually { try await isServed() })
        #expect(try await device.call("getAccounts", .object([:]))["accounts"] == .array([]))
    }
}
