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
    // BrowserTests checks that a separate profile prevents such a session. This test checks the behaviour without one.
    @Test("a browser that still has Ada's session does not sign Grace in as Ada")
    func keptSession() async throws {
        let device = try await WholeDevice(fault: "kept-session")
        let test = try await FaultyProvider.shared.value.client("kept-session")
        try await device.signIn(test)
        let ada = try #require(try await device.account())
        _ = try await device.call(.signOut, ["accountIdentifier": .string(ada.identifier)])
        try await eventually("the provider's being told") {
            try await test.page("ended").split(separator: "\n").count == 3
        }
        let error = await #expect(throws: (any Error).self) { try await device.signIn(test, as: "grace") }
        #expect("\(try #require(error))".contains("took an earlier person's sign-in; close its pages and try again"))
        #expect(try await device.account() == nil)
        try await eventually("the tokens' being revoked") {
            try await test.page("ended").split(separator: "\n").count { $0 == "revoke refresh_token" } == 2
        }
    }

    @Test(
        "a kept browser profile cannot sign in again if the provider sends auth_time",
        .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/chromium"), "chromium is not installed")
    )
    func keptProfile() async throws {
        let device = try await WholeDevice(fault: "kept-cookie")
        let test = try await FaultyProvider.shared.value.client("kept-cookie")
        // The script ignores the profile of the prompt and uses a persistent profile.
        let browser = try device.directory.writeScript(
            "chromium",
            """
            for argument; do
                shift
                case $argument in --user-data-dir=*) argument=--user-data-dir=\(device.directory.path)/kept ;; esac
                set -- "$@" "$argument"
            done
            exec /usr/bin/chromium "$@"
            """
        )
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors"]
        let first = try device.prompt(browser, arguments)
        #expect(await first.exitStatus() == 0, "\(first.errorText)")
        let ada = try #require(try await device.account())
        _ = try await device.call(.signOut, ["accountIdentifier": .string(ada.identifier)])
        // A browser writes its cookies on a clean exit, and the prompt kills its browser. Therefore the user visits
        // another page of the provider first.
        let page = try await FaultyProvider.shared.value.issuer("kept-cookie") + "/visit"
        let visit = try ChildProcess(browser, arguments + ["--user-data-dir=", "--dump-dom", page])
        #expect(await visit.exitStatus() == 0, "\(visit.errorText)")
        let second = try device.prompt(browser, arguments)
        try await eventually("the page says why nobody is signed in") {
            second.errorText.contains("took an earlier person's sign-in") || !second.isRunning
        }
        try #require(second.isRunning, "\(second.lines) \(second.errorText)")
        #expect(try await device.account() == nil)
        second.send(SIGTERM)
        #expect(await second.exitStatus() != 0)
        #expect(second.lines.joined().contains("took an earlier person's sign-in"))
        try await eventually("the tokens' being revoked") {
            try await test.page("ended").split(separator: "\n").count { $0 == "revoke refresh_token" } == 2
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
        var page = ""
        try await eventually("the page's address") {
            page = prompt.errorText.split(separator: " ").last.map(String.init) ?? ""
            return page.hasPrefix("http://")
        }
        let curl = try ChildProcess("curl", ["--silent", "--max-time", "60", page])
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
        try await device.signIn(try await FaultyProvider.shared.value.client("fewer-scopes"))
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

    @Test("with a strict provider, apps get tokens only for scopes of the sign-in")
    func scopesOfSignIn() async throws {
        let rights = ["openid", "profile", "orders.read"]
        let unasked = try await WholeDevice(fault: "strict-scopes", scopes: rights)
        try await unasked.signIn(try await FaultyProvider.shared.value.client("strict-scopes"))
        let error = await #expect(throws: SharedDeviceError.self) { try await unasked.token(["orders.read"]) }
        #expect(error?.code == .scopesDeclined)
        let asked = try await WholeDevice(fault: "strict-scopes.asked", scopes: rights)
        let test = try await FaultyProvider.shared.value.client("strict-scopes.asked")
        // No manifest has the last scope.
        try await asked.signIn(test, scopes: ["orders.read", "orders.refund"])
        #expect(try await asked.token(["orders.read"]).scopes == ["orders.read"])
    }
}
