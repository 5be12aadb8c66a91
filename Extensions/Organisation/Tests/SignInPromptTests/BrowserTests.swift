import Basics
import DBus
import Foundation
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@testable import SignInPrompt

@Suite("The browser of a sign-in", .enabled(if: TestBrowser.chromium.isThere, "chromium is not installed"))
struct BrowserTests {
    @Test("no cookie of a sign-in is present in the next sign-in")
    func cookies() async throws { try await PromptInBrowser().checkCookies() }

    @Test("the browser's profile and address are private; closing it cancels the sign-in")
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
        try await signIn.checkClosing(prompt)
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
        #expect(try processes(with: "/\(gone)/", inVariables: true) == [])
        #expect(try !processes(with: "/\(left)/", inVariables: true).isEmpty)
        for _ in 0..<2 { try signIn.page.write("go on") }
        #expect(await other.exitStatus() == 0)
        #expect(try signIn.profiles == [] && signIn.browsers() == [] && signIn.guards() == [])
    }

    @Test("the next prompt removes the browser and profile if the guard was killed too")
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
        #expect(try processes(with: "/\(left)/", inVariables: true) == [])
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
        try await eventually("the prompt prints the reason") { prompt.errorText.contains("register the address") }
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
