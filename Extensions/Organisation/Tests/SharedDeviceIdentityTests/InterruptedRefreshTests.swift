import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

@Suite("A process is killed during a refresh")
struct InterruptedRefreshTests {
    @Test(
        "after a kill during a rotation the same user can reauthenticate in the session",
        arguments: WholeDevice.Program.allCases
    )
    func killed(_ victim: WholeDevice.Program) async throws {
        let fault = "refresh-lost.\(victim.rawValue)"
        let device = try await WholeDevice(fault: fault)
        let test = try await FaultyProvider.shared.value.client(fault)
        try await device.signIn(test)
        let (ada, epoch) = (try #require(try await device.account()), try await device.epoch())
        #expect(epoch != nil)
        let lost = Task { try await device.token() }
        // The provider has issued a new token, and the device's token is used up.
        try await eventually("the rotation at the provider") { try await test.page("away") == "True" }
        try await device.kill(victim)
        await #expect(throws: SharedDeviceError.self) { try await lost.value }
        try await device.start(victim)
        // After the restart a refresh in flight is repeated. If there was none, an app's request causes one.
        try await eventually("the question for the person") {
            _ = try? await device.token()
            return try await device.needsSignIn()
        }
        #expect(try await device.account() == ada)
        #expect(try await device.epoch() == epoch)
        let refused = await #expect(throws: SharedDeviceError.self) { try await device.token() }
        #expect(refused?.code == .interactionRequired)
        try await device.signIn(test)
        #expect(try await !device.token().isEmpty)
        #expect(try await device.account() == ada)
        #expect(try await device.epoch() == epoch)
    }

    @Test("a user who was disabled after a broker crash is signed out at the next start")
    func disabledMeanwhile() async throws {
        let fault = "refresh-refused.crash"
        let device = try await WholeDevice(fault: fault)
        try await device.signIn(try await FaultyProvider.shared.value.client(fault))
        #expect(try await device.account() != nil)
        try await device.kill(.broker)
        try await device.start(.broker)
        try await eventually("the sign-out") { try await device.account() == nil }
    }

    @Test("a committed rotation survives a kill of both processes without a new sign-in")
    func kept() async throws {
        let device = try await WholeDevice(fault: "kept-rotation")
        let test = try await FaultyProvider.shared.value.client("kept-rotation")
        try await device.signIn(test)
        let (ada, first) = (try #require(try await device.account()), try await device.token())
        for program in WholeDevice.Program.allCases { try await device.kill(program) }
        for program in WholeDevice.Program.allCases.reversed() { try await device.start(program) }
        let next = try await device.token()
        #expect(next != first)
        #expect(try await device.account() == ada)
        #expect(try await !device.needsSignIn())
        // The sign-out ends the newest tokens at the provider.
        _ = try await device.call(.signOut, ["accountIdentifier": .string(ada.identifier)])
        try await eventually("the end at the provider") {
            try await test.page("ended").hasPrefix("end-session\nrevoke refresh_token\nrevoke access_token")
        }
    }
}
