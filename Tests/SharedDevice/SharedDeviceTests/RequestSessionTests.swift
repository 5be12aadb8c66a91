import DBus
import Foundation
import NotifyCenter
@_spi(Extensions) import NotifyCenterTestKit
import Testing

@_spi(Extensions) @testable import SharedDevice

@Suite("A request belongs to the session that the app knows", .timeLimit(.minutes(10)))
struct RequestSessionTests {
    // E14
    @Test("a request for an earlier session does not affect the same user's later one")
    func laterSession() async throws {
        // ada has signed out and in again since the app learned of her session.
        let device = try await DeviceOnPrivateBus()
        let (control, app) = (device.application("control"), device.application("app"))
        try await control.signIn("ada")
        let ada = try #require(try await app.getCurrentAccount().current)
        try await control.signOutCurrent()
        try await control.signIn("ada")
        let token = SilentTokenParameters(scopes: [], account: ada)
        #expect(await code { _ = try await app.acquireTokenSilent(with: token) } == .currentAccountMismatch)
        #expect(await code { try await app.signout(with: ada) } == .currentAccountMismatch)
        #expect(try await device.application("other").getCurrentAccount().current == ada)
        // When the app knows the new session, it may end it.
        #expect(try await app.getCurrentAccount().current == ada)
        #expect(try await app.acquireTokenSilent(with: token).account == ada)
        try await app.signout(with: ada)
        #expect(try await device.application("other").getCurrentAccount().current == nil)
    }

    @Test("an app that cleans up after a session accepts no token of it")
    func tokenDuringCleanup() async throws {
        let device = try await DeviceOnPrivateBus()
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
            // Like a token response that arrives during the cleanup.
            let session = DeviceSession(account: ada, epoch: try #require(change.sessionsToCleanUp.first).epoch)
            let refusal = await code { try await app.keeper.enter(session, attempted: "get a token", isDoubtful: true) }
            #expect(refusal == .currentAccountMismatch)
            try await app.cleanupDone(change)
            // The app is told of the session again, and then gets its tokens.
            #expect(try await app.getCurrentAccount().current == ada)
            let parameters = SilentTokenParameters(scopes: [], account: ada)
            #expect(try await app.acquireTokenSilent(with: parameters).account == ada)
            break
        }
    }

    @Test(
        "a strict device gives no token while waived data of an earlier session is left",
        arguments: ["ada", "grace"]
    )
    func waived(next: String) async throws {
        let device = try await DeviceOnPrivateBus(configuration: DeviceOnPrivateBus.strict)
        let (control, app) = (device.application("control"), device.application("other"))
        let ada = try await control.signIn("ada").account
        _ = try await app.getCurrentAccount()
        try await control.signout(with: ada)
        try await control.cleanupDone(control.reportCurrentAccount().change)
        let waiver = try await device.command("apps", "waive", app.identifier, "--reason", "lost")
        #expect(waiver.status == 0, "\(waiver.errors)")
        let account = try await control.signIn(next).account
        let change = try await app.reportCurrentAccount().change
        #expect(change.previousAccounts == [ada])
        let parameters = SilentTokenParameters(scopes: ["orders.read"], account: account)
        #expect(await code { _ = try await app.acquireTokenSilent(with: parameters) } == .cleanupRequired)
        try await app.cleanupDone(change)
        #expect(try await app.acquireTokenSilent(with: parameters).account == account)
    }
}
