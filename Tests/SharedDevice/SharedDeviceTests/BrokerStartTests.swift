import DBus
import DeviceStorage
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@Suite("The start of a broker", .timeLimit(.minutes(10)))
struct BrokerStartTests {
    @Test("without a valid configuration sign-ins are refused, and the status says why")
    func invalidConfiguration() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        try device.configure("{ not json")
        // A manifest that deletes the whole device is rejected.
        try device.enrol("org.example.sweeper", "/usr/bin/true", more: #", "cleanup": {"by": "app", "delete": ["/"]}"#)
        try await device.startBroker()
        let application = device.application()
        #expect(await code { try await application.signIn("ada") } == .notSharedDevice)
        let status = try await device.command("status").output
        #expect(status.contains(device.configuration) && status.contains("problem"), "\(status)")
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true}"#)
        try await eventually("a valid one is in force") {
            await application.getDeviceInformation().deviceMode == .shared
        }
        try await application.signIn("ada")
        let later = try await device.command("status").output
        let line = later.split(separator: "\n").first { $0.hasPrefix("manifest ") }
        #expect(line?.contains("org.example.sweeper.json") == true && line?.contains("/") == true, "\(later)")
    }

    // S7
    @Test("a configuration that cannot be saved is saved when the disk recovers")
    func configurationThatIsKeptLater() async throws {
        let device = try await DeviceOnPrivateBus()
        let database = try device.database()
        try database.execute(
            "CREATE TRIGGER fails BEFORE INSERT ON configuration BEGIN SELECT RAISE(ABORT, 'a test'); END"
        )
        try device.configure(
            #"{"sharedDeviceMode": true, "passwordSignIn": true, "tenantIdentifier": "another.example"}"#
        )
        try await eventually("the configuration cannot be saved", within: .seconds(60)) {
            device.broker?.errorText.contains("is not kept for the next start") == true
        }
        try database.execute("DROP TRIGGER fails")
        try await eventually("the configuration is saved", within: .seconds(60)) {
            device.broker?.errorText.contains("is kept for the next start") == true
        }
        device.killBroker()
        try device.configure("{ broken")
        try await device.startBroker()
        let application = device.application()
        #expect(await code { try await application.signIn("ada") } == .tenantMismatch)
    }

    @Test("a broken manifest keeps its last version; a new broken one admits no app")
    func brokenManifestAtStart() async throws {
        let device = try await DeviceOnPrivateBus(starts: false, configuration: #""cleanupPolicy": "strict""#)
        try device.enrol("org.example.app", try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
        let folder = "\(device.directory.path)/apps"
        func empty(_ name: String) throws { try Data().write(to: URL(filePath: "\(folder)/\(name).json")) }
        try await device.startBroker()
        // The broker saves the manifests right after it reports that it is ready.
        try await eventually("it is kept") { try device.database().value("SELECT count(*) > 0 FROM manifest") == 1 }
        device.killBroker()
        try empty("org.example.app")
        try empty("other")
        try await device.startBroker()
        let application = device.application()
        let error = await #expect(throws: SharedDeviceError.self) { try await application.signIn("ada") }
        #expect(error?.message.contains("other.json") == true, "\(String(describing: error))")
        device.killBroker()
        unlink("\(folder)/other.json")
        try await device.startBroker()
        try await application.signIn("ada")
    }

    @Test("a configuration that was valid at the start is on disk at the end")
    func endsAtOnce() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        try device.enrol("org.example.app", "/bin/sh")
        try await device.startBroker()
        device.broker?.send(SIGTERM)
        #expect(await device.broker?.exitStatus() == 0)
        for table in ["configuration", "manifest"] {
            #expect(try device.database().value("SELECT count(*) > 0 FROM \(table)") == 1, "\(table)")
        }
    }

    @Test("a second broker with the same state directory is refused, even on another bus")
    func secondBroker() async throws {
        let device = try await DeviceOnPrivateBus()
        let elsewhere = try PrivateBus()
        let second = try ChildProcess(
            ChildProcess.built("shared-device-broker"),
            ["--state", device.state, "--configuration", device.configuration, "--bus", elsewhere.address]
        )
        #expect(await second.exitStatus() == 78 && second.errorText.contains("another broker uses it"))
    }

    // S8
    @Test("after a restart the first process's receipt does not settle for other processes", arguments: [false, true])
    func severalProcesses(endsMeanwhile: Bool) async throws {
        let device = try await DeviceOnPrivateBus()
        let control = device.application("control")
        try await control.signIn("ada")
        let (first, second) = (try OtherProgram(device), try OtherProgram(device))
        let session = try await first.ask().session.epoch
        #expect(try await second.ask().session.account?.username == "ada")
        try await control.signOutCurrent()
        device.killBroker()
        if endsMeanwhile { second.broker.connection.close() }
        try await device.startBroker()
        let owed = try #require(try await first.ask().owed.first)
        #expect(owed.epoch == session && (owed.mark != 0) == endsMeanwhile && owed.isShared != endsMeanwhile)
        if endsMeanwhile {
            // The earlier cleanup may have begun before the other process ended.
            #expect(try await first.finish(session)["again"] == .boolean(true))
        }
        #expect(try await first.finish(session, mark: owed.mark)["again"] == nil)
        #expect(try await first.progress(.uint64(session))?.isSettled == endsMeanwhile)
        guard !endsMeanwhile else { return }
        #expect(try await second.ask().owed.map(\.epoch) == [session])
        try await second.finish(session)
        #expect(try await second.progress(.uint64(session))?.isSettled == true)
    }

    @Test("a sign-out that the disk did not store still holds after a restart")
    func signOutInMemory() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let memory = try TemporaryDirectory("memory")
        device.brokerCommand = ["env", "RUNTIME_DIRECTORY=\(memory.path)"]
        try await device.startBroker()
        let app = device.application()
        try await app.signIn("ada")
        // The broker ends regularly, so that everything is in the files.
        device.broker?.send(SIGTERM)
        device.broker?.waitUntilExit()
        let before = device.directory.path + "/before"
        try FileManager.default.copyItem(atPath: device.state, toPath: before)
        try await device.startBroker()
        #expect(try await app.getCurrentAccount().current?.username == "ada")
        try await app.signOutCurrent()
        try await eventually("the sign-out is in the small file") {
            (try? String(contentsOfFile: memory.path + "/signed-out", encoding: .utf8))?.hasPrefix("nobody ") == true
        }
        device.killBroker()
        try FileManager.default.removeItem(atPath: device.state)
        try FileManager.default.moveItem(atPath: before, toPath: device.state)
        try await device.startBroker()
        #expect(try await device.application("control").getCurrentAccount().current == nil)
        try FileManager.default.removeItem(atPath: memory.path + "/signed-out")
        try await eventually("the sign-out is in the database") {
            try device.database().value("SELECT count(*) FROM device WHERE account_identifier IS NULL") == 1
        }
        try await device.restartBroker()
        #expect(try await device.application("control").getCurrentAccount().current == nil)
    }
}
