import Basics
import DBus
import Foundation
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Synchronization
import Testing

@testable import SignInPrompt

@Suite("The browser of a sign-in", .enabled(if: TestBrowser.chromium.isThere, "chromium is not installed"))
struct BrowserTests {
    @Test("no cookie of a sign-in is present in the next sign-in")
    func cookies() async throws {
        let signIn = try await PromptInBrowser()
        for number in 1...2 {
            let prompt = try signIn.prompt()
            #expect(await prompt.exitStatus() == 0, "\(prompt.errorText)")
            #expect(try PromptResult(prompt) == PromptResult(username: "ada", epoch: 7))
            #expect(try await signIn.visit(number) == "visit -")
            let query = try #require(signIn.broker.asked(.completeSignIn).last?["query"]?.stringValue)
            #expect(FormFields.decode(query) == ["code": "a code", "state": signIn.state])
            #expect(try signIn.profiles == [] && signIn.browsers() == [])
        }
    }

    @Test("the open browser's profile is private, and no command line has the address")
    func secrets() async throws {
        let signIn = try await PromptInBrowser(holds: true)
        let prompt = try signIn.prompt()
        _ = try await signIn.visit(1)
        try signIn.checkSecrets()
        // The browser's memory contains what the user types at the provider's page.
        let limits = try signIn.browsers().compactMap(CoreLimits.init(of:))
        #expect(limits.contains(CoreLimits.ofPrompts) && limits.allSatisfy(\.permitNone), "\(limits)")
        let profile = try #require(signIn.profiles.first)
        for path in ["sign-in", "sign-in/\(profile)"] {
            let attributes = try FileManager.default.attributesOfItem(atPath: "\(signIn.directory.path)/\(path)")
            #expect(attributes[.posixPermissions] as? Int == 0o700, "\(path)")
        }
        try signIn.page.write("go on")
        #expect(await prompt.exitStatus() == 0)
    }

    @Test("closing the browser cancels the sign-in")
    func closed() async throws {
        let signIn = try await PromptInBrowser(holds: true)
        let prompt = try signIn.prompt()
        _ = try await signIn.visit(1)
        kill(try signIn.browser(of: prompt), SIGTERM)
        #expect(await prompt.exitStatus() == 1)
        #expect(try PromptResult(prompt).code == "user_canceled")
        #expect(try signIn.broker.asked(.cancelSignIn).count == 1 && signIn.profiles == [] && signIn.browsers() == [])
    }

    @Test("the browser and profile of a killed prompt are removed without another prompt")
    func guarded() async throws {
        let signIn = try await PromptInBrowser(holds: true)
        // The other prompt of this user must be unaffected.
        let (prompt, other) = (try signIn.prompt(), try signIn.prompt())
        _ = try await signIn.visit(2)
        let keeper = try #require(try signIn.keeper(of: prompt))
        // Signals that end sessions and terminals must not end the guard before the prompt.
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] { kill(keeper, signal) }
        let both = Set(signIn.profiles)
        #expect(both.count == 2)
        prompt.kill()
        #expect(await prompt.exitStatus() == 128 + SIGKILL)
        try await eventually("the end of one of two profiles") { signIn.profiles.count == 1 }
        try await eventually("the end of the guard") { try !signIn.guards().contains(keeper) }
        let left = try #require(signIn.profiles.first)
        let gone = try #require(both.first { $0 != left })
        #expect(try signIn.processes(with: "/\(gone)/", inVariables: true) == [])
        #expect(try !signIn.processes(with: "/\(left)/", inVariables: true).isEmpty)
        for _ in 0..<2 { try signIn.page.write("go on") }
        #expect(await other.exitStatus() == 0)
        #expect(try signIn.profiles == [] && signIn.browsers() == [] && signIn.guards() == [])
    }

    @Test("a user who continues at the provider after the time limit is told so")
    func late() async throws { try await withTaskExecutorPreference(OwnThread()) { try await judgeLate() } }

    private func judgeLate() async throws {
        // On a slow machine no browser has started within two seconds, so the time limit is extended.
        for lifetime in [2.0, 8, 30] where try await isJudgedLate(lifetime) { return }
        Issue.record("no browser is open when the time is over")
    }

    /// - Returns: whether the browser was open at the time limit.
    private func isJudgedLate(_ lifetime: Double) async throws -> Bool {
        let signIn = try await PromptInBrowser(holds: true, lifetime: lifetime)
        let prompt = try signIn.prompt()
        try await eventually("the end of the sign-in at the broker") { !signIn.broker.asked(.cancelSignIn).isEmpty }
        let isOpen = try !signIn.browsers().isEmpty
        guard isOpen else {
            prompt.kill()
            return false
        }
        // The provider redirects the browser here.
        let redirect = try #require(signIn.broker.asked(.beginSignIn).last?["redirectURI"]?.stringValue)
        let page = try await Page.get("\(redirect)?state=\(signIn.state)&code=late")
        #expect(page.status == 200 && page.text.contains("begin again"), "\(page.text)")
        #expect(signIn.broker.asked(.completeSignIn).isEmpty)
        // The page would stay open for half a minute.
        prompt.send(SIGTERM)
        #expect(await prompt.exitStatus() == EX_TEMPFAIL)
        #expect(try PromptResult(prompt).code == "login_expired")
        #expect(try signIn.profiles == [] && signIn.browsers() == [])
        return true
    }

    @Test(
        "the next prompt removes the browser and profile if the guard was killed too"
    )
    func killed() async throws {
        let signIn = try await PromptInBrowser(holds: true)
        let first = try signIn.prompt()
        _ = try await signIn.visit(1)
        kill(try #require(try signIn.keeper(of: first)), SIGKILL)
        first.kill()
        #expect(await first.exitStatus() == 128 + SIGKILL)
        let left = try #require(signIn.profiles.first)
        #expect(try signIn.browsers() != [])
        let second = try signIn.prompt()
        #expect(try await signIn.visit(2) == "visit -")
        #expect(!signIn.profiles.contains(left), "\(second.errorText)")
        #expect(try signIn.processes(with: "/\(left)/", inVariables: true) == [])
        // The first line is for the killed browser.
        try signIn.page.write("go on")
        try signIn.page.write("go on")
        #expect(await second.exitStatus() == 0)
        #expect(signIn.profiles == [])
    }

    @Test("a refusal by provider or broker is an error after the user could read it")
    func refused() async throws {
        let refusal = FakeBroker.refusal(.providerMisconfigured, "register the address with the provider")
        let signIn = try await PromptInBrowser(refusal: refusal)
        let prompt = try signIn.prompt()
        try await eventually("the reason is said") { prompt.errorText.contains("register the address") }
        // The page stays until the user closes it. Here the prompt is ended instead.
        prompt.send(SIGTERM)
        #expect(await prompt.exitStatus() == EX_CONFIG)
        #expect(try PromptResult(prompt).code == "provider_misconfigured")
        #expect(signIn.profiles == [])
    }

    @Test("a user can sign in on the page with the keyboard alone, after one mistake")
    func keyboard() async throws {
        let device = try await PromptDevice()
        let (prompt, address) = try await device.page()
        for (password, expected) in [("wrong horse", "wrong"), ("correct horse ada", "ada is signed in")] {
            let visitor = try ChildProcess(
                "\(PromptInBrowser.folder)/page-visitor",
                ["chromium", "\(device.directory.path)/b", address, password == "wrong horse" ? "ada" : "", password]
            )
            #expect(await visitor.exitStatus() == 0, "\(visitor.errorText)")
            #expect(visitor.lines.count == 2)
            #expect(visitor.lines.last?.contains(expected) == true, "\(visitor.lines)")
        }
        #expect(await prompt.exitStatus() == 0)
    }
}
