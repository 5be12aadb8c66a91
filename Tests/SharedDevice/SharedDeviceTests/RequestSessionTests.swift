import DBusTransport
import Foundation
import NotifyCenter
import NotifyCenterTestKit
import Synchronization
import Testing

@testable import SharedDevice

@Suite("A request is for the session that the app knows of", .timeLimit(.minutes(10)))
struct RequestSessionTests {
    /// A device on which ada has signed out and in again since `app` heard of her.
    private func lateApp() async throws -> (device: TestDevice, app: SharedDeviceApplication, ada: Account) {
        let device = try await TestDevice()
        let (control, app) = (device.application("control"), device.application("app"))
        try await control.signIn("ada")
        let ada = try #require(try await app.getCurrentAccount().current)
        try await control.signOutCurrent()
        try await control.signIn("ada")
        return (device, app, ada)
    }

    // E14
    @Test("a sign-out that was meant for an earlier session does not end a later one of the same person")
    func lateSignOut() async throws {
        let (device, app, ada) = try await lateApp()
        #expect(await code { try await app.signout(with: ada) } == .currentAccountMismatch)
        #expect(try await device.application("other").getCurrentAccount().current == ada)
        // Once the app has heard of the session, it may end it.
        #expect(try await app.getCurrentAccount().current == ada)
        try await app.signout(with: ada)
        #expect(try await device.application("other").getCurrentAccount().current == nil)
    }

    // E14
    @Test("a token is for the session that the app knows, and not for a later one of the same person")
    func lateToken() async throws {
        let (device, app, ada) = try await lateApp()
        defer { withExtendedLifetime(device) {} }
        let parameters = SilentTokenParameters(scopes: [], account: ada)
        #expect(await code { _ = try await app.acquireTokenSilent(with: parameters) } == .currentAccountMismatch)
        _ = try await app.getCurrentAccount()
        #expect(try await app.acquireTokenSilent(with: parameters).account == ada)
    }

    @Test(
        "an app that cleans up after a session takes no token of it, also if a broker that lost its sign-out gives one"
    )
    func tokenDuringCleanup() async throws {
        let device = try await TestDevice()
        let (control, app) = (device.application("control"), device.application("app"))
        let ada = try await control.signIn("ada").account
        #expect(try await app.getCurrentAccount().current == ada)
        device.killBroker()
        let copy = "\(device.directory.path)/copy"
        try FileManager.default.copyItem(atPath: device.state, toPath: copy)
        try await device.startBroker()
        try await control.signOutCurrent()
        for await change in app.accountChanges {
            #expect(change.previousAccounts == [ada])
            device.killBroker()
            try FileManager.default.removeItem(atPath: device.state)
            try FileManager.default.moveItem(atPath: copy, toPath: device.state)
            try await device.startBroker()
            // As a token's answer that was under way meanwhile.
            let session = DeviceSession(account: ada, epoch: try #require(change.sessionsToCleanUp.first).epoch)
            let refusal = await code {
                try await app.keeper.enter(session, attempted: "get a token", isDoubtful: true)
            }
            #expect(refusal == .currentAccountMismatch)
            try await app.cleanupDone(change)
            // The app is told of the session anew, and then gets its tokens.
            #expect(try await app.getCurrentAccount().current == ada)
            let parameters = SilentTokenParameters(scopes: [], account: ada)
            #expect(try await app.acquireTokenSilent(with: parameters).account == ada)
            break
        }
    }

    @Test(
        "under a strict policy an app whose own record names a debt gets no token, also after an administrator's waiver"
    )
    func waived() async throws {
        let device = try await TestDevice(starts: false)
        try device.configure(#"{"sharedDeviceMode": true, "passwordSignIn": true, "cleanupPolicy": "strict"}"#)
        try await device.startBroker()
        let (control, app) = (device.application("control"), device.application("app"))
        try await control.signIn("ada")
        _ = try await app.getCurrentAccount()
        try await control.signOutCurrent()
        for name in ["app", "control"] {
            let waiver = try await AdministrationCommand(
                "apps",
                "waive",
                "org.example.\(name)",
                "--reason",
                "a test",
                on: device
            )
            #expect(waiver.status == 0, "\(waiver.errors)")
        }
        // The waiver lets somebody in through an app that has nothing to clean up.
        let grace = try await device.application("desk").signIn("grace").account
        _ = try await app.getCurrentAccount()
        let parameters = SilentTokenParameters(scopes: [], account: grace)
        #expect(await code { _ = try await app.acquireTokenSilent(with: parameters) } == .cleanupRequired)
        for await change in app.accountChanges {
            #expect(change.previousAccounts.map(\.username) == ["ada"])
            try await app.cleanupDone(change)
            break
        }
        #expect(try await app.acquireTokenSilent(with: parameters).account == grace)
    }

    @Test("an app that runs and does not ask is told again")
    func reminder() async throws {
        let device = try await TestDevice()
        let control = device.application("control")
        try await control.signIn("ada")
        // It asks, and is then deaf.
        let deaf = try DBusConnection.open(device.bus.bus)
        let question = try DBusMessage.methodCall(
            destination: BrokerProtocol.busName,
            path: BrokerProtocol.path,
            interface: BrokerProtocol.interface,
            member: BrokerProtocol.Method.getCurrentAccount.rawValue,
            arguments: [.fields(["application": .string("org.example.app")])]
        )
        _ = try await deaf.call(question)
        let heard = Locked(0)
        let observation = try await DarwinNotifyCenter(bus: device.bus.bus)
            .observe(.sharedModeCurrentAccountChanged, delivery: .immediate) { _ in heard.withLock { $0 += 1 } }
        defer { observation.cancel() }
        try await control.signOutCurrent()
        try await eventually("the broadcast comes again") { heard.withLock { $0 } >= 2 }
    }
}
