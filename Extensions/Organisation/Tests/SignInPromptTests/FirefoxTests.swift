import Basics
import DBus
import Foundation
import Glibc
import Identity
@_spi(Extensions) import NotifyCenterTestKit
@_spi(Extensions) import SharedDevice
import Testing

@testable import SignInPrompt

@Suite(
    "Firefox as the browser of a sign-in",
    .enabled(if: TestBrowser.firefox.isThere, "firefox-esr is not installed"),
    .timeLimit(.minutes(5))
)
struct FirefoxTests {
    @Test("Firefox has no cookie of a sign-in in the next sign-in")
    func cookies() async throws { try await PromptInBrowser(.firefox).checkCookies() }

    @Test("Firefox writes only to the private profile, and closing it cancels the sign-in")
    func places() async throws {
        let signIn = try await PromptInBrowser(.firefox, holds: true)
        let prompt = try signIn.prompt()
        _ = try await signIn.visit(1)
        try signIn.checkSecrets()
        let browsers = try signIn.browsers()
        #expect(!browsers.isEmpty)
        let runtime = "\(signIn.directory.path)/"
        for path in browsers.flatMap(filesWritten) where !path.hasPrefix("/dev/") && !path.hasPrefix("/proc/") {
            #expect(path.hasPrefix("\(runtime)sign-in/"), "\(path)")
        }
        try await signIn.checkClosing(prompt)
    }

    @Test("Firefox and the profile of a killed prompt are removed with the cookies")
    func guarded() async throws {
        // The provider has redirected the browser and set a cookie. The page with the reason stays open.
        let reason = "register the address with the provider"
        let signIn = try await PromptInBrowser(.firefox, refusal: FakeBroker.refusal(.providerMisconfigured, reason))
        let prompt = try signIn.prompt()
        try await eventually("the prompt prints the reason") { prompt.errorText.contains(reason) }
        #expect(try await signIn.visit(1) == "visit -")
        #expect(try signIn.profiles.count == 1 && !signIn.browsers().isEmpty)
        prompt.kill()
        #expect(await prompt.exitStatus() == 128 + SIGKILL)
        try await eventually("the end of the guard") { try signIn.guards() == [] }
        #expect(try signIn.profiles == [] && signIn.browsers() == [])
        let next = try signIn.prompt()
        #expect(try await signIn.visit(2) == "visit -")
        try await eventually("the next prompt prints the reason") { next.errorText.contains(reason) }
        next.send(SIGTERM)
        #expect(await next.exitStatus() == EX_CONFIG)
        #expect(signIn.profiles == [])
    }
}

/// The regular files that a process has open for writing, without shared memory.
private func filesWritten(by process: Int32) -> [String] {
    let folder = "/proc/\(process)/fd"
    return ((try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []).compactMap { number in
        let path = (try? FileManager.default.destinationOfSymbolicLink(atPath: "\(folder)/\(number)")) ?? ""
        let information = (try? String(contentsOfFile: "/proc/\(process)/fdinfo/\(number)", encoding: .utf8)) ?? ""
        guard path.hasPrefix("/"), !path.contains("memfd:"), !path.hasSuffix(" (deleted)"),
            let flags = information.split(separator: "\n").first(where: { $0.hasPrefix("flags:") }),
            let bits = Int32(flags.split(separator: "\t").last ?? "", radix: 8), bits & O_ACCMODE != O_RDONLY
        else { return nil }
        return path
    }
}
