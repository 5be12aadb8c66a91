import DBusTransport
import FoundationEssentials
import Glibc
import NotifyCenterTestKit
import OpenIDConnect
import SharedDevice
import TestProviders
import Testing

@Suite("Broker and provider's process together")
struct WholeDeviceTests {
    // A profile of its own makes sure that there is no such session: BrowserTests. This is what holds without one.
    @Test("Grace is not signed in as Ada by a browser that has kept Ada's session, and what it brought is given back")
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
        "a real browser whose profile is kept on purpose signs nobody in a second time, where the provider says since when she is known",
        .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/chromium"), "chromium is not installed")
    )
    func keptProfile() async throws {
        let device = try await WholeDevice(fault: "kept-cookie")
        let test = try await FaultyProvider.shared.value.client("kept-cookie")
        // Whatever profile the prompt has made, this one is used, and is there the next time.
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
        // A browser writes cookies when it is closed by itself, and the prompt's is not: she has been at another page of the provider's.
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
        "at the prompt Ada gets a code of a real provider's, types it in on another device, and an app has her token",
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
        // As she sees it, in any browser.
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

    @Test("an app whose provider grants less than it asks for learns what, and gets a token where it asks for that")
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

    @Test("where a provider grants later only what the sign-in asked for, an app gets tokens of what it signed in with")
    func scopesOfSignIn() async throws {
        let rights = ["openid", "profile", "orders.read"]
        let unasked = try await WholeDevice(fault: "strict-scopes", scopes: rights)
        try await unasked.signIn(try await FaultyProvider.shared.value.client("strict-scopes"))
        let error = await #expect(throws: SharedDeviceError.self) { try await unasked.token(["orders.read"]) }
        #expect(error?.code == .scopesDeclined)
        let asked = try await WholeDevice(fault: "strict-scopes.asked", scopes: rights)
        let test = try await FaultyProvider.shared.value.client("strict-scopes.asked")
        // No manifest has the last one.
        try await asked.signIn(test, scopes: ["orders.read", "orders.refund"])
        #expect(try await asked.token(["orders.read"]).scopes == ["orders.read"])
    }
}
