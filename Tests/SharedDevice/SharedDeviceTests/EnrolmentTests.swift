import Foundation
import NotifyCenterTestKit
import SharedDevice
import Testing

@Suite("A device joins its organisation and leaves it")
struct EnrolmentTests {
    // 833511: a registration by somebody who is no administrator is refused.
    @Test("only an administrator joins the device; it is on record, and outlasts a crash")
    func join() async throws {
        let device = try await TestDevice()
        let application = device.application()
        #expect(await application.getDeviceInformation().isJoined == false)
        #expect(try await device.enrol("join", as: "ada").status == 77)
        #expect(try await device.enrol("join", as: "ada", password: "wrong horse").status == 77)
        #expect(await application.getDeviceInformation().isJoined == false)
        #expect(try await device.user("role", "ada", "administrator").status == 0)
        let joined = try await device.enrol("join", as: "ada")
        #expect(joined.status == 0, "\(joined.errors)")
        device.killBroker()
        try await device.startBroker()
        let information = await application.getDeviceInformation()
        #expect(information.isJoined == true)
        let account = try await application.signIn("ada").account
        #expect(information.tenantIdentifier == account.tenantIdentifier)
        #expect(try await device.enrol("join", as: "ada").status == 0)
        try await device.expectAudit("joined", ["tenant \(account.tenantIdentifier)"])
        try await device.expectAudit("refused", ["not_permitted Join", "authentication_failed Join"])
    }

    @Test("leaving signs out whoever is signed in, and all apps hear of it")
    func leave() async throws {
        let device = try await TestDevice()
        try await device.add("root", "--role", "administrator")
        #expect(try await device.enrol("leave", as: "root").status == 65)
        #expect(try await device.enrol("join", as: "root").status == 0)
        let follower = Follower(device.application("listener"))
        try await device.application().signIn("ada")
        try await follower.hears("ada")
        #expect(try await device.enrol("leave", as: "ada").status == 77)
        #expect(try await device.application().getCurrentAccount().current != nil)
        #expect(try await device.enrol("leave", as: "root").status == 0)
        try await follower.hears("-")
        let information = await device.application().getDeviceInformation()
        #expect(information.isJoined == false && information.tenantIdentifier == nil)
        try await device.expectAudit("signed-out", ["the device's leaving"])
        try await device.expectAudit("left", [""])
    }

    @Test("a role and a tenant that are none are refused")
    func wrongUsage() async throws {
        let device = try await TestDevice(starts: false)
        #expect(try await device.user("role", "ada", "king").status == 64)
        #expect(try await device.user("role", "nobody", "administrator").status == 67)
        let tenant = try await device.run(
            ["user", "add", "eve", "--tenant", "no tenant", "--password-stdin", "--state", device.state],
            input: "correct horse eve"
        )
        #expect(tenant.status == 65)
        #expect(try await device.enrol("join", as: "ada").status == 69)
    }

    @Test("a user who is signed in is disabled with a sign-out that all apps hear of")
    func disabling() async throws {
        let device = try await TestDevice()
        let follower = Follower(device.application("listener"))
        try await device.application().signIn("grace")
        try await follower.hears("grace")
        let disabled = try await device.user("disable", "grace", "--sign-out", "--bus", device.bus.address)
        #expect(disabled.status == 0, "\(disabled.errors)")
        try await follower.hears("-")
        #expect(await code { try await device.application().signIn("grace") } == .authenticationFailed)
        try await device.expectAudit("signed-out", ["the user's being disabled"])
    }

    @Test("without a broker to sign the user out, nobody is removed or disabled")
    func removalWithoutBroker() async throws {
        let device = try await TestDevice()
        try await device.application().signIn("ada")
        device.killBroker()
        #expect(try await device.user("remove", "ada", "--sign-out", "--bus", device.bus.address).status == 69)
        #expect(try await device.user("disable", "ada", "--sign-out", "--bus", device.bus.address).status == 69)
        // Another device's broker is no help.
        let other = try await TestDevice()
        let elsewhere = try await device.user("remove", "ada", "--sign-out", "--bus", other.bus.address)
        #expect(elsewhere.status == 69 && elsewhere.errors.contains("another state directory"))
        try await device.startBroker()
        #expect(try await device.application().getCurrentAccount().current?.username == "ada")
        // A user who is not signed in needs none.
        #expect(try await device.user("remove", "grace", "--sign-out", "--bus", device.bus.address).status == 0)
    }
}
