import DBus
import Foundation
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("The device's session follows logind", .enabled(if: MockLogind.isInstalled, "python3-dbusmock is not installed"))
struct LoginSessionTests {
    /// A device whose account comes from a mocked logind, with the app `seat`, which follows it.
    private struct Machine {
        let device: DeviceOnPrivateBus
        let login: MockLogind
        let app: SharedDeviceApplication
        let follower: ControlApp

        init(_ settings: String = "") async throws {
            device = try await DeviceOnPrivateBus(starts: false)
            try device.configure(
                #"{"sharedDeviceMode": true, "requiresEnrolment": false, "identity": "login-session"\#(settings)}"#
            )
            // Like the broker of the machine, which follows the seat.
            device.brokerArguments = ["--login-bus", device.bus.address, "--many-users"]
            login = try await MockLogind(device.bus)
            try await device.startBroker()
            follower = ControlApp(on: device, name: "seat")
            app = follower.application
            try await follower.hears("-")
        }
    }

    @Test("logins, switches and logouts are followed, and passwords are refused")
    func changes() async throws {
        let machine = try await Machine()
        try await machine.login.logIn("c9", as: 114, "gdm", seat: "seat1")
        try await machine.login.logIn("1", as: 1000, "ada")
        try await machine.follower.hears("ada")
        #expect(try await machine.app.getCurrentAccount().current?.identifier == "uid-1000.login-session")
        try await machine.login.set("1", ["Active": .boolean(false)])
        try await machine.login.logIn("2", as: 1001, "bea")
        try await machine.follower.hears("bea")
        try await machine.login.set("2", ["State": .string("closing"), "Active": .boolean(false)])
        try await machine.follower.hears("-")
        // The return needs no new login.
        try await machine.login.set("1", ["Active": .boolean(true)])
        try await machine.follower.hears("ada")
        try await machine.login.logOut("1")
        try await machine.follower.hears("-")
        try await machine.device.expectAudit("signed-out", ["switch of users", "logout", "logout"])
        #expect(await code { try await machine.app.signIn("grace") } == .notPermitted)
    }

    @Test("a sign-out ends the login session; logind's refusal is in log and status")
    func endsLoginSession() async throws {
        let machine = try await Machine(#", "endsLoginSession": true"#)
        try await machine.login.logIn("1", as: 1000, "ada")
        try await machine.follower.hears("ada")
        try await machine.app.signOutCurrent()
        try await machine.follower.hears("-")
        try await machine.device.expectAudit("login-ended", ["login session 1"])
        // The log entry is written before logind is asked.
        try await eventually("logind has ended it") { try await machine.login.sessions() == [] }
        try await machine.login.obey(false)
        try await machine.login.logIn("2", as: 1000, "ada")
        try await machine.follower.hears("ada")
        let signOut = try await machine.device.command("sign-out", "--reason", "the shift is over")
        #expect(signOut.status == 0)
        try await eventually("the refusal is in the log") {
            try machine.device.audit("login-ended").contains {
                $0.contains("session 2 cannot be ended: logind does not permit")
            }
        }
        let status = try await machine.device.command("status")
        #expect(status.output.contains("50-shared-device-login.rules"))
        #expect(try await machine.app.getCurrentAccount().current == nil)
    }

    @Test("a shutdown signs out and waits for the receipts")
    func shutdown() async throws {
        let machine = try await Machine()
        let (login, app) = (machine.login, machine.device.application("tardy"))
        var changes = app.accountChanges.makeAsyncIterator()
        try await eventually("the lock is taken") { try await login.delays() == ["shared-device-broker"] }
        try await login.logIn("1", as: 1000, "ada")
        try await machine.follower.hears("ada")
        // After this the app holds the account.
        while let change = await changes.next(), change.current == nil { try await app.cleanupDone(change) }
        try await login.prepareForShutdown()
        let change = try #require(await changes.next())
        #expect(change.current == nil)
        #expect(try await login.delays() == ["shared-device-broker"])
        try await app.cleanupDone(change)
        try await eventually("the shutdown goes on") { try await login.delays() == [] }
        try await machine.device.expectAudit("signed-out", ["shutdown"])
    }
}
