import Foundation
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("Joining and leaving the organisation")
struct EnrolmentTests {
    // Test 833511 of MSAL for Android: a registration by a user without the administrator's role is refused.
    @Test("only an administrator joins and leaves; leaving signs out, and all apps are told")
    func join() async throws {
        let device = try await DeviceOnPrivateBus()
        let application = device.application()
        #expect(await application.getDeviceInformation().isJoined == false)
        #expect(try await device.enrol("join", as: "ada").status == 77)
        #expect(try await device.enrol("join", as: "ada", password: "wrong horse").status == 77)
        #expect(await application.getDeviceInformation().isJoined == false)
        #expect(try await device.user("role", "ada", "administrator").status == 0)
        #expect(try await device.enrol("leave", as: "ada").status == 65)
        let joined = try await device.enrol("join", as: "ada")
        #expect(joined.status == 0, "\(joined.errors)")
        try await device.restartBroker()
        let information = await application.getDeviceInformation()
        let follower = ControlApp(on: device, name: "listener")
        let account = try await application.signIn("grace").account
        try await follower.hears("grace")
        #expect(information.isJoined == true && information.tenantIdentifier == account.tenantIdentifier)
        #expect(try await device.enrol("join", as: "ada").status == 0)
        try await device.expectAudit("joined", ["tenant \(account.tenantIdentifier)"])
        #expect(try await device.enrol("leave", as: "grace").status == 77)
        #expect(try await application.getCurrentAccount().current != nil)
        #expect(try await device.enrol("leave", as: "ada").status == 0)
        try await follower.hears("-")
        let left = await application.getDeviceInformation()
        #expect(left.isJoined == false && left.tenantIdentifier == nil)
        try await device.expectAudit("signed-out", ["the device's leaving"])
        try await device.expectAudit("left", [""])
        let refusals = ["not_permitted Join", "authentication_failed Join"]
        try await eventually("the log has the refusals") {
            try device.audit("refused").filter { $0.hasSuffix(" Join") } == refusals
        }
    }

    @Test("an invalid role or tenant is refused")
    func wrongUsage() async throws {
        let device = try await DeviceOnPrivateBus(starts: false)
        #expect(try await device.user("role", "ada", "king").status == 64)
        #expect(try await device.user("role", "nobody", "administrator").status == 67)
        #expect(try await device.add("eve", "--tenant", "no tenant").status == 65)
        #expect(try await device.enrol("join", as: "ada").status == 69)
    }

    @Test("removing or disabling a user signs out, for which a broker is needed")
    func removal() async throws {
        let device = try await DeviceOnPrivateBus()
        try await device.application().signIn("ada")
        device.killBroker()
        #expect(try await device.user("remove", "ada", "--sign-out", "--bus", device.bus.address).status == 69)
        #expect(try await device.user("disable", "ada", "--sign-out", "--bus", device.bus.address).status == 69)
        // The broker of another device does not count.
        let other = try await DeviceOnPrivateBus()
        let elsewhere = try await device.user("remove", "ada", "--sign-out", "--bus", other.bus.address)
        #expect(elsewhere.status == 69 && elsewhere.errors.contains("another state directory"))
        try await device.startBroker()
        #expect(try await device.application().getCurrentAccount().current?.username == "ada")
        let follower = ControlApp(on: device, name: "listener")
        try await follower.hears("ada")
        let disabled = try await device.user("disable", "ada", "--sign-out", "--bus", device.bus.address)
        #expect(disabled.status == 0, "\(disabled.errors)")
        try await follower.hears("-")
        #expect(await code { try await device.application().signIn("ada") } == .authenticationFailed)
        try await device.expectAudit("signed-out", ["the user is disabled"])
        // A user who is not signed in needs no broker.
        #expect(try await device.user("remove", "grace", "--sign-out", "--bus", device.bus.address).status == 0)
    }
}
