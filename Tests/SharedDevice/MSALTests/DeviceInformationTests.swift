import Basics
import DBus
import DBusService
import MSAL
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

/// The five situations in which an app asks MSAL for the device's mode.
@Suite("The device's information")
struct DeviceInformationTests {
    private struct Answer: Sendable {
        let mode: MSALDeviceMode?
        let hasBroker: Bool?
        let codes: Codes?
    }

    private func ask(_ app: MSALPublicClientApplication) async -> Answer {
        await withCheckedContinuation { continuation in
            app.getDeviceInformation(with: nil) { information, error in
                let (mode, hasBroker) = (information?.deviceMode, information?.hasAADSSOExtension)
                continuation.resume(returning: Answer(mode: mode, hasBroker: hasBroker, codes: Codes(error)))
            }
        }
    }

    @Test("1: an app without the broker's redirect URI gets an error and no mode")
    func notEnabled() async throws {
        let device = try await DeviceOnPrivateBus()
        let unavailable = Codes.internal(.internalBrokerNotAvailable)
        for redirect in ["app://other", "msauth.://auth", ""] {
            let app = try device.msalApplication { $0.redirectUri = redirect }
            let answer = await ask(app)
            #expect(answer.mode == nil && answer.codes == unavailable, "\(redirect)")
            #expect(await codes { _ = try await app.told() } == unavailable, "\(redirect)")
        }
        let bypassing = try device.msalApplication { $0.bypassRedirectURIValidation = true }
        #expect(await ask(bypassing).codes == unavailable)
        let enabled = try device.msalApplication { $0.redirectUri = "msauth.org.example.other://auth" }
        #expect(await ask(enabled).mode == .shared)
    }

    @Test("2: without a broker the request fails, but a known shared mode is repeated")
    func unreachable() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        let app = try device.msalApplication()
        let unavailable = Codes.internal(.internalBrokerNotAvailable)
        let before = await ask(app)
        #expect(before.mode == nil && before.codes == unavailable)
        #expect(await codes { _ = try await app.deviceInformation(with: nil) } == unavailable)
        try await device.startBroker()
        #expect(await ask(app).mode == .shared)
        device.killBroker()
        let after = await ask(app)
        #expect(after.mode == .shared && after.hasBroker == false && after.codes == unavailable)
        #expect(await codes { _ = try await app.deviceInformation(with: nil) } == unavailable)
        // A personal mode is not repeated.
        try device.configure(#"{"sharedDeviceMode": false}"#)
        try await device.startBroker()
        #expect(await ask(app).mode == .default)
        device.killBroker()
        let personal = await ask(app)
        #expect(personal.mode == nil && personal.codes == unavailable)
    }

    @Test("4: a failing broker or an unknown mode gives an error and no mode")
    func failing() async throws {
        let bus = try PrivateBus()
        let directory = try TemporaryDirectory("msal-test")
        let reported = Locked<String?>(nil)
        let broken = try await StandInBroker(
            on: bus.bus,
            [
                .getDeviceInformation: { _ in
                    guard let mode = reported.withLock({ $0 }) else {
                        throw MethodFailure(name: "org.freedesktop.DBus.Error.Failed", message: "not today")
                    }
                    return [
                        "mode": .string(mode),
                        "signInMethods": .array([.string("password"), .string("badge")], of: "s"),
                    ]
                }
            ]
        )
        let app = try MSALPublicClientApplication(
            configuration: MSALPublicClientApplicationConfig(clientId: "org.example.app"),
            bus: bus.bus,
            stateDirectory: directory.path
        )
        for mode in [nil, "paranoid"] {
            reported.withLock { $0 = mode }
            let answer = await ask(app)
            #expect(answer.mode == nil && answer.codes == .internal(.internalErrorBrokerUnknown))
        }
        reported.withLock { $0 = "shared" }
        #expect(await ask(app).mode == .shared)
        #expect(try await app.deviceInformation(with: nil).configuredPreferredAuthMethod == .qrpin)
        withExtendedLifetime(broken) {}
    }

    @Test("3, 5: overlapping requests each get a response, with the broker's mode")
    func success() async throws {
        let device = try await DeviceOnPrivateBus()
        let app = try device.msalApplication()
        try await withThrowingTaskGroup(of: MSALDeviceMode.self) { group in
            for _ in 0..<16 { group.addTask { try await app.deviceInformation(with: nil).deviceMode } }
            for try await mode in group { #expect(mode == .shared) }
        }
        let information = try await app.getDeviceInformation(with: MSALParameters())
        #expect(information.deviceMode == .shared && information.hasAADSSOExtension)
        #expect(information.configuredPreferredAuthMethod == .notConfigured)
        #expect(information.platformSSOStatus == .notEnabled)
        #expect(information.extraDeviceInformation["organization"] as? String == "Contoso")
        #expect(information.extraDeviceInformation["brokerVersion"] is String)
        try device.configure(#"{"sharedDeviceMode": false}"#)
        try await eventually("it is personal") { try await app.deviceInformation(with: nil).deviceMode == .default }
    }
}
