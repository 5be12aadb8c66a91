import DBusTransport
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("A broker that starts", .timeLimit(.minutes(10)))
struct BrokerStartTests {
    @Test("a broker that has never had a valid configuration signs nobody in, and says why")
    func invalidConfiguration() async throws {
        let device = try await TestDevice(starts: false)
        try device.configure("{ not json")
        try await device.startBroker()
        let application = device.application()
        #expect(await code { try await application.signIn("ada") } == .notSharedDevice)
        let status = try await AdministrationCommand("status", on: device).output
        #expect(status.contains(device.configuration) && status.contains("problem"), "\(status)")
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true}"#)
        try await eventually("a valid one is in force") {
            await application.getDeviceInformation().deviceMode == .shared
        }
        try await application.signIn("ada")
    }

    // S7
    @Test("the last valid configuration stays in force when the broker starts with a broken one")
    func brokenConfigurationAtStart() async throws {
        let device = try await TestDevice(starts: false)
        try device.configure(
            #"{"sharedDeviceMode": true, "passwordSignIn": true, "tenantIdentifier": "another.example"}"#
        )
        try await device.startBroker()
        let application = device.application()
        #expect(await code { try await application.signIn("ada") } == .tenantMismatch)
        device.killBroker()
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, "tenantIdentifier": "#)
        try await device.startBroker()
        #expect(await code { try await application.signIn("ada") } == .tenantMismatch)
        #expect(await application.getDeviceInformation().deviceMode == .shared)
        // Broken in another way, it is as invalid as before.
        try device.configure(#"{"requiresJoin": "yes"}"#)
        try await eventually("the broker has read it") {
            try await AdministrationCommand("status", on: device).output.contains("requiresJoin")
        }
        #expect(await code { try await application.signIn("ada") } == .tenantMismatch)
    }

    @Test("a second broker on the same state directory is refused, also on another bus")
    func secondBroker() async throws {
        let device = try await TestDevice()
        let elsewhere = try PrivateBus()
        let second = try ChildProcess(
            ChildProcess.built("shared-device-broker"),
            ["--state", device.state, "--configuration", device.configuration, "--bus", elsewhere.address]
        )
        #expect(await second.exitStatus() == 78)
        try await eventually("the reason is told") { second.errorText.contains("another broker uses it") }
    }

    // S8
    @Test(
        "the first process that asks a broker that was started anew does not settle the cleanup for the others",
        arguments: [false, true]
    )
    func severalProcesses(endsMeanwhile: Bool) async throws {
        let device = try await TestDevice()
        let control = device.application("control")
        try await control.signIn("ada")
        let (first, second) = (try OtherProgram(device), try OtherProgram(device))
        let session = try await first.ask().session.epoch
        #expect(try await second.ask().session.account?.username == "ada")
        try await control.signOutCurrent()
        device.killBroker()
        if endsMeanwhile { second.connection.close() }
        try await device.startBroker()
        #expect(try await first.ask().owed.map(\.epoch) == [session])
        try await first.finish(session)
        #expect(try await first.progress(.uint64(session))?.isSettled == endsMeanwhile)
        guard !endsMeanwhile else { return }
        #expect(try await second.ask().owed.map(\.epoch) == [session])
        try await second.finish(session)
        #expect(try await second.progress(.uint64(session))?.isSettled == true)
    }
}
