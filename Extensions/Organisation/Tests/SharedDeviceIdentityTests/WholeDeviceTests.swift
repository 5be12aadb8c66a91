import DBus
import FoundationEssentials
import Glibc
@_spi(Extensions) import NotifyCenterTestKit
import OpenIDConnect
@_spi(Extensions) import SharedDevice
import TestProviders
import Testing

@Suite("The broker and the identity service together")
struct WholeDeviceTests {
    @Test("a browser that still has Ada's session does not sign Grace in as Ada")
    func keptSession() async throws {
        let device = try await WholeDevice(fault: "kept-session")
        try await device.signIn()
        try await device.signOut()
        try await eventually("the provider has ended Ada's session") { try await device.test.page("ended") == allEnded }
        let error = await #expect(throws: (any Error).self) { try await device.signIn(as: "grace") }
        #expect("\(try #require(error))".contains("took an earlier person's sign-in; close its pages and try again"))
        #expect(try await device.account() == nil)
        try await eventually("the tokens of the rejected sign-in are revoked") {
            try await device.test.page("ended").split(separator: "\n").count { $0 == "revoke refresh_token" } == 2
        }
    }

    @Test(
        "with a device code Ada signs in at a real provider, and an app gets her token",
        .enabled(if: FileManager.default.isExecutableFile(atPath: Glewlwyd.program), "glewlwyd is not installed")
    )
    func deviceCode() async throws {
        let glewlwyd = try await Glewlwyd()
        let issuer = glewlwyd.issuer.text
        let device = try await WholeDevice(
            issuer: issuer,
            secret: "device-secret-7",
            more: #", "oidcScopes": ["openid"]"#,
            scopes: ["openid"]
        )
        let prompt = try device.prompt("none", [], ["--method", "device-code"])
        let curl = try ChildProcess("curl", ["--silent", "--max-time", "60", await prompt.pageAddress()])
        #expect(await curl.exitStatus() == 0)
        let text = curl.lines.joined(separator: "\n")
        #expect(text.contains("\(issuer)/device"))
        let code = try #require(text.firstMatch(of: /[A-Z0-9]{4}-[A-Z0-9]{4}/)).output
        _ = try await glewlwyd.run("device \(code)")
        #expect(await prompt.exitStatus() == 0, "\(prompt.errorText)")
        #expect(prompt.lines.joined().contains("ada@example.com"), "\(prompt.lines)")
        #expect(!(try await device.token(["openid"]).accessToken.isEmpty))
    }

    @Test("an app learns which scopes are granted, and gets a token if it requests those")
    func fewerScopes() async throws {
        let device = try await WholeDevice(fault: "fewer-scopes", scopes: ["openid", "profile", "orders.read"])
        try await device.signIn()
        for _ in 1...2 {
            let error = await #expect(throws: SharedDeviceError.self) {
                try await device.token(["orders.read", "profile"])
            }
            #expect(error?.code == .scopesDeclined)
            #expect(error?.declinedScopes == ["orders.read"] && error?.grantedScopes == ["openid", "profile"])
            #expect(error?.message.contains("does not grant orders.read, and grants openid profile;") == true)
        }
        #expect(try await device.token(["profile"]).scopes.sorted() == ["openid", "profile"])
        #expect(try await device.token([]).scopes.sorted() == ["openid", "profile"])
        #expect(try await device.account()?.username == "ada@example.com")
    }
}

@Suite("A process is killed during a refresh")
struct InterruptedRefreshTests {
    @Test(
        "after a kill during a rotation the same user can reauthenticate in the session",
        arguments: WholeDevice.Program.allCases
    )
    func killed(_ victim: WholeDevice.Program) async throws {
        let device = try await WholeDevice(fault: "refresh-lost.\(victim.rawValue)")
        try await device.signIn()
        let (ada, epoch) = (try #require(try await device.account()), try await device.epoch())
        #expect(epoch != nil)
        let lost = Task { try await device.token() }
        // The provider has issued a new token, and the device's token is used up.
        try await eventually("the rotation at the provider") { try await device.test.page("away") == "True" }
        try await device.kill(victim)
        await #expect(throws: SharedDeviceError.self) { try await lost.value }
        try await device.start(victim)
        // After the restart a refresh in flight is repeated. If there was none, an app's request causes one.
        try await eventually("the device asks for a new sign-in") {
            _ = try? await device.token()
            return try await device.needsSignIn()
        }
        #expect(try await device.account() == ada)
        #expect(try await device.epoch() == epoch)
        let refused = await #expect(throws: SharedDeviceError.self) { try await device.token() }
        #expect(refused?.code == .interactionRequired)
        try await device.signIn()
        #expect(try await !device.token().isEmpty)
        #expect(try await device.account() == ada)
        #expect(try await device.epoch() == epoch)
    }

    @Test("a user who was disabled after a broker crash is signed out at the next start")
    func disabledMeanwhile() async throws {
        let device = try await WholeDevice(fault: "refresh-refused.crash")
        try await device.signIn()
        #expect(try await device.account() != nil)
        try await device.kill(.broker)
        try await device.start(.broker)
        try await eventually("the sign-out") { try await device.account() == nil }
    }

    @Test("a committed rotation survives a kill of both processes without a new sign-in")
    func kept() async throws {
        let device = try await WholeDevice(fault: "kept-rotation")
        try await device.signIn()
        let (ada, first) = (try #require(try await device.account()), try await device.token())
        for program in WholeDevice.Program.allCases { try await device.kill(program) }
        for program in WholeDevice.Program.allCases.reversed() { try await device.start(program) }
        let next = try await device.token()
        #expect(next != first)
        #expect(try await device.account() == ada)
        #expect(try await !device.needsSignIn())
        // The sign-out ends the newest tokens at the provider.
        try await device.signOut()
        try await eventually("the end at the provider") {
            try await device.test.page("ended").hasPrefix("end-session\nrevoke refresh_token\nrevoke access_token")
        }
    }
}
